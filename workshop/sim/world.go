package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// world is one simulated deployment. One goroutine, the driver, runs the steps. All other goroutines only add steps.
type world struct {
	plan     Plan
	began    time.Time
	store    *memory.Store
	broker   *simbroker.Broker
	topology broker.Topology
	check    *checker
	log      *journal

	mu    sync.Mutex // guards the fields below, and all fields of processes and check
	rng   *rand.Rand // random numbers for the network
	steps steps
	seq   uint64
	ended bool
	clock clock
	state serverState

	submitMu  sync.Mutex    // guards submitted and closed; a holder never waits
	submitted []func()      // functions that the driver will call before its next step
	closed    bool          // the driver has ended
	wakeup    chan struct{} // holds a token if submitted is not empty

	processes        []*process // the current process of each role in the plan
	lives            []int      // the number of starts of each role's process
	processesRunning sync.WaitGroup
	started          map[int]int64   // by machine: the start time given to its newest process
	silences         map[string]int  // by AMQP queue: the number of active faults that make it confirm nothing
	todo             map[string]bool // names of the tasks, operations, pauses and limits that no process has begun
	faults           int             // the number of faults that have not ended
	settingsChanged  time.Time       // when a person last changed the delay after a failure
	base             time.Duration   // the delay that the person has set; 0 means none
	following        int             // the number of unfinished operations, pauses and limits of a person
}

// step is an event that happens at a given time. Steps never overlap.
type step struct {
	at   time.Time
	seq  uint64
	what string        // the kind of step; part of the sum of the journal
	note func() string // text for the printed journal; may be nil
	run  func()

	owner     *process // the process that the step belongs to, or nil
	direction direction
	onLost    func() // called if the process dies or the connection breaks first; may be nil
	dropped   bool   // the driver skips the step
}

// direction says where a step's message goes.
type direction uint8

const (
	inside    direction = iota // no message: a step of the simulator
	toStore                    // a request
	toBroker                   // a request or a frame
	toProcess                  // an answer or a frame
)

type steps []*step

func (s steps) Len() int { return len(s) }
func (s steps) Less(i, j int) bool {
	if s[i].at.Equal(s[j].at) {
		return s[i].seq < s[j].seq
	}
	return s[i].at.Before(s[j].at)
}
func (s steps) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *steps) Push(x any)   { *s = append(*s, x.(*step)) }
func (s *steps) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// clock is the clock of the store. It can drift and leap.
type clock struct {
	drift float64
	leap  time.Duration
	began time.Time
}

func (c *clock) now() time.Time {
	passed := time.Since(c.began)
	return c.began.Add(passed + time.Duration(float64(passed)*c.drift) + c.leap)
}

// after adds a step that runs after wait. The caller holds w.mu.
func (w *world) after(wait time.Duration, s *step) *step {
	return w.at(time.Now().Add(wait), s)
}

// at adds a step that runs at the given time. The caller holds w.mu.
func (w *world) at(at time.Time, s *step) *step {
	w.seq++
	s.at, s.seq = at, w.seq
	heap.Push(&w.steps, s)
	return s
}

// submit makes the driver call f before its next step. After the driver has ended, submit calls f itself. The caller
// may hold any lock except w.mu, and may be a step.
func (w *world) submit(f func()) {
	w.submitMu.Lock()
	closed := w.closed
	if !closed {
		w.submitted = append(w.submitted, f)
	}
	w.submitMu.Unlock()
	if closed {
		w.mu.Lock()
		f()
		w.mu.Unlock()
		return
	}
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// runSubmitted calls the submitted functions.
func (w *world) runSubmitted() {
	w.submitMu.Lock()
	submitted := w.submitted
	w.submitted = nil
	w.submitMu.Unlock()
	for _, f := range submitted {
		f()
	}
}

// drive runs steps until every task is final, an invariant is broken, or the time limit is reached.
func (w *world) drive() {
	longer := w.plan.Lasts + w.plan.oneByOne()
	deadline := w.began.Add(loadTime + faultTime + longestFault + patience + longer)
	limit := maxSteps + int(longer/time.Second)*maxSteps/100
	timer := time.NewTimer(0)
	for {
		synctest.Wait()
		w.mu.Lock()
		w.runSubmitted()
		if w.check.violation != "" || w.finished() {
			w.mu.Unlock()
			return
		}
		now := time.Now()
		if w.log.count > limit {
			w.check.fail("not finished after %d steps: %s", limit, w.check.unfinished())
			w.mu.Unlock()
			return
		}
		if now.After(deadline) {
			w.check.fail("not finished in time: %s", w.check.unfinished())
			w.mu.Unlock()
			return
		}
		if len(w.steps) == 0 || w.steps[0].at.After(now) {
			until := deadline.Add(time.Second)
			if len(w.steps) > 0 {
				until = w.steps[0].at
			}
			w.mu.Unlock()
			timer.Reset(time.Until(until))
			select {
			case <-w.wakeup:
			case <-timer.C:
			}
			continue
		}
		next := heap.Pop(&w.steps).(*step)
		if next.dropped {
			w.mu.Unlock()
			continue
		}
		w.log.step(now.Sub(w.began), next)
		next.run()
		w.check.afterStep()
		w.mu.Unlock()
	}
}

// oneByOne returns how long all tasks take one after the other if limits may make them run so, and otherwise 0.
func (p *Plan) oneByOne() (sum time.Duration) {
	if len(p.Limits) == 0 {
		return 0
	}
	for i := range p.Tasks {
		sum += p.Tasks[i].Takes
	}
	return sum
}

// maxSteps is more steps than any simulation needs.
const maxSteps = 200_000

// finished reports whether every fault has ended, every task was enqueued, every person has finished, and the checker
// reports that all is settled.
func (w *world) finished() bool {
	return w.faults == 0 && w.following == 0 && len(w.todo) == 0 && time.Since(w.began) >= w.plan.Lasts && w.check.settled()
}

// end kills all processes and waits for their goroutines.
func (w *world) end() {
	w.mu.Lock()
	w.ended = true
	w.submitMu.Lock()
	w.closed = true
	w.submitMu.Unlock()
	w.runSubmitted()
	for _, p := range w.processes {
		p.cancel()
		p.die()
	}
	for len(w.steps) > 0 {
		if s := heap.Pop(&w.steps).(*step); s.onLost != nil {
			s.onLost()
		}
	}
	w.mu.Unlock()
	w.processesRunning.Wait()
}

// journal records the steps, for people and for comparing two replays. Only the driver uses sum and count.
type journal struct {
	mu    sync.Mutex // guards lines
	keep  bool       // record lines
	lines []string
	sum   uint64 // the FNV-1a hash of all steps
	count int
}

func (j *journal) step(at time.Duration, s *step) {
	j.count++
	owner := "-"
	if s.owner != nil {
		owner = s.owner.name
	}
	j.add(uint64(at))
	j.addText(owner)
	j.addText(s.what)
	if j.keep {
		note := ""
		if s.note != nil {
			note = s.note()
		}
		j.line(fmt.Sprintf("%10.4fs %-4s %-24s %s", at.Seconds(), owner, s.what, note))
	}
}

func (j *journal) logf(at time.Duration, format string, args ...any) {
	if j.keep {
		j.line(fmt.Sprintf("%10.4fs      %s", at.Seconds(), fmt.Sprintf(format, args...)))
	}
}

func (j *journal) line(text string) {
	j.mu.Lock()
	j.lines = append(j.lines, text)
	j.mu.Unlock()
}

// add adds a number to the sum.
func (j *journal) add(v uint64) {
	for range 8 {
		j.sum = (j.sum ^ v&0xff) * 0x100000001b3
		v >>= 8
	}
}

// addText adds a text to the sum.
func (j *journal) addText(s string) {
	for i := range len(s) {
		j.sum = (j.sum ^ uint64(s[i])) * 0x100000001b3
	}
}
