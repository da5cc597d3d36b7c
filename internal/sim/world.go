package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/sim/simbroker"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
)

// world is one simulated deployment. Steps are run by one goroutine, the driver; everything else only adds to the
// list.
type world struct {
	plan     Plan
	began    time.Time
	store    *simstore.Store
	broker   *simbroker.Broker
	topology broker.Topology
	check    *checker
	log      *journal

	mu    sync.Mutex // of what follows, and of everything in processes and check
	rng   *rand.Rand // of the network
	steps steps
	seq   uint64
	over  bool
	clock clock
	state weather

	inbox   sync.Mutex    // of news, and held for moments only
	news    []func()      // what processes want of the driver
	closed  bool          // no driver any more
	arrived chan struct{} // has a token if there is news

	processes []*process // the current one of each role in the plan
	lives     []int      // their numbers
	living    sync.WaitGroup
	started   map[int]int64   // by machine: the newest start of a process
	silences  map[string]int  // faults that make a queue confirm nothing
	todo      map[string]bool // tasks that no producer has begun to enqueue
	faults    int             // that have not ended
}

// step is something that takes place at its moment, alone.
type step struct {
	at   time.Time
	seq  uint64
	what string
	note func() string
	run  func()

	of      *process // whose it is, if anybody's
	way     way
	lost    func() // told if its process or the way breaks before; nil if nobody needs to know
	dropped bool   // does not take place
}

// way is where a step's message goes.
type way uint8

const (
	inside   way = iota // nowhere: the simulator's own step
	toStore             // a question
	toBroker            // a question or a frame
	back                // an answer or a frame to the process
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

// clock is the store's, which drifts and leaps.
type clock struct {
	drift float64
	leap  time.Duration
	began time.Time
}

func (c *clock) now() time.Time {
	passed := time.Since(c.began)
	return c.began.Add(passed + time.Duration(float64(passed)*c.drift) + c.leap)
}

// in schedules a step; the caller holds w.mu.
func (w *world) in(wait time.Duration, s *step) *step {
	return w.on(time.Now().Add(wait), s)
}

func (w *world) on(at time.Time, s *step) *step {
	w.seq++
	s.at, s.seq = at, w.seq
	heap.Push(&w.steps, s)
	return s
}

// submit has the driver do something before its next step. It may be called under any lock but the world's, and by
// a step.
func (w *world) submit(f func()) {
	w.inbox.Lock()
	closed := w.closed
	if !closed {
		w.news = append(w.news, f)
	}
	w.inbox.Unlock()
	if closed {
		w.mu.Lock()
		f()
		w.mu.Unlock()
		return
	}
	select {
	case w.arrived <- struct{}{}:
	default:
	}
}

// hear does what was submitted.
func (w *world) hear() {
	w.inbox.Lock()
	news := w.news
	w.news = nil
	w.inbox.Unlock()
	for _, f := range news {
		f()
	}
}

// drive runs steps until everything is over, an invariant is broken or time is up.
func (w *world) drive() {
	deadline := w.began.Add(loadTime + faultTime + longest + patience)
	timer := time.NewTimer(0)
	for {
		synctest.Wait()
		w.mu.Lock()
		w.hear()
		if w.check.violation != "" || w.finished() {
			w.mu.Unlock()
			return
		}
		now := time.Now()
		if w.log.count > tooMany {
			w.check.fail("restless: %d steps; %s", tooMany, w.check.unfinished())
			w.mu.Unlock()
			return
		}
		if now.After(deadline) {
			w.check.fail("stuck: %s", w.check.unfinished())
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
			case <-w.arrived:
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

// tooMany steps are more than any run needs.
const tooMany = 200_000

// finished reports whether nothing is left to happen that matters.
func (w *world) finished() bool {
	return w.faults == 0 && len(w.todo) == 0 && w.check.settled()
}

// end stops all processes and waits for their goroutines.
func (w *world) end() {
	w.mu.Lock()
	w.over = true
	w.inbox.Lock()
	w.closed = true
	w.inbox.Unlock()
	w.hear()
	for _, p := range w.processes {
		p.cancel()
		p.die()
	}
	for len(w.steps) > 0 {
		if s := heap.Pop(&w.steps).(*step); s.lost != nil {
			s.lost()
		}
	}
	w.mu.Unlock()
	w.living.Wait()
}

// journal keeps what happened, for a person and for comparing two replays.
type journal struct {
	mu    sync.Mutex // of lines; the rest is the driver's
	keep  bool
	lines []string
	sum   uint64 // of all steps
	count int
}

func (j *journal) step(at time.Duration, s *step) {
	j.count++
	who := "-"
	if s.of != nil {
		who = s.of.name
	}
	j.add(uint64(at))
	j.text(who)
	j.text(s.what)
	if j.keep {
		note := ""
		if s.note != nil {
			note = s.note()
		}
		j.line(fmt.Sprintf("%10.4fs %-4s %-24s %s", at.Seconds(), who, s.what, note))
	}
}

func (j *journal) say(at time.Duration, format string, args ...any) {
	if j.keep {
		j.line(fmt.Sprintf("%10.4fs      %s", at.Seconds(), fmt.Sprintf(format, args...)))
	}
}

func (j *journal) line(text string) {
	j.mu.Lock()
	j.lines = append(j.lines, text)
	j.mu.Unlock()
}

// add and text are FNV-1a over what they are given.
func (j *journal) add(v uint64) {
	for range 8 {
		j.sum = (j.sum ^ v&0xff) * 0x100000001b3
		v >>= 8
	}
}

func (j *journal) text(s string) {
	for i := range len(s) {
		j.sum = (j.sum ^ uint64(s[i])) * 0x100000001b3
	}
}
