package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// job is one claimed task in this process, from its claim until its result is committed.
type job struct {
	task    holdfast.Task
	page    int64
	into    store.Place
	now     time.Time // the store's clock at the claim
	claimed time.Time // this process's clock at the claim
	started time.Time

	// Guarded by jobs.mu.
	phase     phase
	cancel    context.CancelCauseFunc // of the running handler
	cancelled bool
}

type phase uint8

const (
	waiting  phase = iota // for a free executor
	running               // its handler was called
	finished              // judged; its result waits to be committed
)

func (j *job) ticket() message.Ticket {
	return message.Ticket{Task: j.task.ID, Attempt: j.task.Attempt}
}

// storeTime is the store's clock now, as well as this process can know it.
func (j *job) storeTime() time.Time { return j.now.Add(time.Since(j.claimed)) }

// jobs are the tasks in hand. At most as many as there are executors run at once, the others wait. The goroutines they run on are kept for
// the next ones: a new one would grow its stack for every task.
type jobs struct {
	room   *room      // knows the number of executors, and how many are reserved
	start  func(*job) // calls the handler and returns when it has returned, if it does not end its goroutine
	expect func()     // told, before anybody can know, that a job is judged and its result will come

	mu      sync.Mutex
	held    map[message.Ticket]*job // nil value: being claimed
	early   map[message.Ticket]bool // cancelled while being claimed
	firm    []*job                  // with an executor reserved for each; they do not wait
	queue   []*job                  // the others
	active  int                     // executors with a job
	spare   int                     // executors without
	next    chan *job               // to those; closed when stopped
	stopped bool
	quiet   chan struct{} // closed when stopped and nothing runs
	waits   chan struct{} // has a token if a job has begun to wait
}

func newJobs(room *room, start func(*job), expect func()) *jobs {
	return &jobs{room: room, start: start, expect: expect, held: make(map[message.Ticket]*job), early: make(map[message.Ticket]bool), next: make(chan *job, room.limit), quiet: make(chan struct{}), waits: make(chan struct{}, 1)}
}

// reserve marks tickets as being claimed, except those that are in hand already. It
// keeps two copies of one ticket from being claimed, and so run, twice.
func (js *jobs) reserve(tickets []message.Ticket) (fresh, inHand []message.Ticket) {
	js.mu.Lock()
	defer js.mu.Unlock()
	fresh = make([]message.Ticket, 0, len(tickets))
	for _, t := range tickets {
		if _, held := js.held[t]; held {
			inHand = append(inHand, t)
			continue
		}
		js.held[t] = nil
		fresh = append(fresh, t)
	}
	return fresh, inHand
}

// forget lets go of tickets that were not claimed or whose results are committed.
func (js *jobs) forget(tickets ...message.Ticket) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, t := range tickets {
		delete(js.held, t)
		delete(js.early, t)
	}
}

// add takes claimed jobs in hand. It returns them once jobs are stopped; then they have not begun and are the
// caller's to hand back.
func (js *jobs) add(list ...*job) (refused []*job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range list {
		ticket := j.ticket()
		js.held[ticket] = j
		if len(js.early) > 0 {
			j.cancelled = js.early[ticket]
			delete(js.early, ticket)
		}
		if js.stopped {
			js.judge(j)
		}
	}
	if js.stopped {
		return list
	}
	if len(list) > 0 && list[0].into == store.IntoExecutors {
		js.firm = append(js.firm, list...)
	} else {
		js.queue = append(js.queue, list...)
	}
	js.fill()
	if js.wait() {
		select {
		case js.waits <- struct{}{}:
		default:
		}
	}
	return nil
}

// fill starts waiting jobs while there are free executors. js.mu is held.
func (js *jobs) fill() {
	for j := js.first(); j != nil; j = js.first() {
		if js.spare > 0 {
			js.spare--
			js.next <- j // which has room for all executors
		} else {
			go js.execute(j) // waited for through quiet
		}
	}
}

// first takes the next job for a free executor; nil if there is none. js.mu is held.
func (js *jobs) first() (j *job) {
	switch {
	case js.active >= js.room.limit:
		return nil
	case len(js.firm) > 0:
		j, js.firm = js.firm[0], js.firm[1:]
		js.room.unreserve(1, j.into)
	case len(js.queue) > 0 && js.active+int(js.room.reserved.Load()) < js.room.limit:
		j, js.queue = js.queue[0], js.queue[1:]
	default:
		return nil
	}
	js.active++
	j.phase, j.started = running, time.Now()
	return j
}

// wait reports whether jobs wait for an executor. The caller holds js.mu.
func (js *jobs) wait() bool { return len(js.firm)+len(js.queue) > 0 }

// execute is an executor: it runs jobs until they are stopped.
func (js *jobs) execute(j *job) {
	exited := true
	defer func() {
		if exited { // a handler has ended this goroutine with runtime.Goexit
			js.returned()
		}
	}()
	for j != nil {
		js.start(j)
		j = js.another()
	}
	exited = false
}

// another is an executor's return from one job to the next one, for which it waits; nil once jobs are stopped.
func (js *jobs) another() *job {
	js.mu.Lock()
	js.free()
	next := js.first()
	switch {
	case next != nil:
		js.mu.Unlock()
		return next
	case js.stopped:
		js.mu.Unlock()
		return nil
	}
	js.spare++
	js.mu.Unlock()
	return <-js.next
}

// free notes that an executor is free again. js.mu is held.
func (js *jobs) free() {
	js.active--
	js.settle()
}

// settle tells who waits for the last handler that it has returned. js.mu is held.
func (js *jobs) settle() {
	if js.stopped && js.active == 0 {
		select {
		case <-js.quiet:
		default:
			close(js.quiet)
		}
	}
}

// bind gives a running job the means to be cancelled; false if it was cancelled already.
func (js *jobs) bind(j *job, cancel context.CancelCauseFunc) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	j.cancel = cancel
	return !j.cancelled
}

// cancel cancels the handler of a job, or keeps it from being called.
func (js *jobs) cancel(t message.Ticket) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, inHand := js.held[t]
	if j == nil {
		if inHand { // its claim's answer is on the way
			js.early[t] = true
		}
		return
	}
	j.cancelled = true
	if j.cancel != nil {
		j.cancel(holdfast.ErrCancelled)
	}
}

// end marks a job as judged; false if somebody has judged it before.
func (js *jobs) end(j *job) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j.phase == finished {
		return false
	}
	js.judge(j)
	return true
}

// judge marks a job as judged. js.mu is held.
func (js *jobs) judge(j *job) {
	j.phase = finished
	js.expect()
}

// returned notes that an executor is gone and another one can have its place.
func (js *jobs) returned() {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.free()
	js.fill()
}

// anyWaits reports whether a job waits for an executor.
func (js *jobs) anyWaits() bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.wait()
}

// takeWaiting removes and ends the jobs that have waited for an executor since before
// the given moment.
func (js *jobs) takeWaiting(since time.Time) []*job {
	js.mu.Lock()
	defer js.mu.Unlock()
	var taken []*job
	for _, queue := range []*[]*job{&js.firm, &js.queue} {
		n := 0
		for n < len(*queue) && (*queue)[n].claimed.Before(since) {
			js.judge((*queue)[n])
			n++
		}
		taken, *queue = append(taken, (*queue)[:n]...), (*queue)[n:]
	}
	return taken
}

// stop keeps further jobs from starting and returns those that wait, ended.
func (js *jobs) stop() []*job {
	js.mu.Lock()
	js.stopped = true
	js.mu.Unlock()
	taken := js.takeWaiting(time.Now().Add(time.Hour))
	js.mu.Lock()
	js.settle()
	js.spare = 0
	close(js.next)
	js.mu.Unlock()
	return taken
}

// takeRunning ends and returns the jobs whose handlers have not returned.
func (js *jobs) takeRunning() []*job {
	js.mu.Lock()
	defer js.mu.Unlock()
	var taken []*job
	for _, j := range js.held {
		if j != nil && j.phase == running {
			js.judge(j)
			taken = append(taken, j)
		}
	}
	return taken
}

// idle is closed when, after stop, no handler runs any more.
func (js *jobs) idle() <-chan struct{} { return js.quiet }

// none reports whether nothing is in hand: nothing is being claimed, runs or waits to be written.
func (js *jobs) none() bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	return len(js.held) == 0
}

// has reports whether a ticket is in hand.
func (js *jobs) has(t message.Ticket) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	_, held := js.held[t]
	return held
}

// running is the number of handlers that run.
func (js *jobs) running() int {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.active
}
