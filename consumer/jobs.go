package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// job is a claimed task in this process. It exists from the answer to the claim until its result is committed.
type job struct {
	session *session
	effects effect.Context
	task    *holdfast.Task
	probe   bool // from store.Claim
	page    int64
	into    store.Place
	now     time.Time // the store's clock at the claim
	claimed time.Time // this process's clock at the claim
	started time.Time
	took    time.Duration // duration of the handler; 0 before its end, or if it did not start

	// Guarded by jobs.mu.
	phase     phase
	attempt   context.Context         // context of the handler; nil if the handler has certainly not been called
	cancel    context.CancelCauseFunc // cancels attempt
	cancelled bool
	overSince time.Time            // when lookForStuck first found the handler running after the end of its context
	stuck     bool                 // reported as stuck
	abandoned bool                 // the worker has given up the attempt and replaced its executor
	span      holdfast.AttemptSpan // nil without tracing, and if the handler has certainly not been called
}

type phase uint8

const (
	waiting  phase = iota // waits for an executor
	running               // runs on an executor
	finished              // its result is not committed yet
)

func (j *job) ticket() message.Ticket {
	return message.Ticket{Task: j.task.ID, Attempt: j.task.Attempt}
}

// storeTime estimates the present time of the store's clock.
func (j *job) storeTime() time.Time { return j.now.Add(time.Since(j.claimed)) }

// jobs are the tasks in progress in this process: tasks that are being claimed, wait, run, or are finished but not yet
// committed. Jobs run on executors. An executor is a goroutine that runs many jobs, because a new goroutine for each
// task would have to grow its stack each time.
type jobs struct {
	capacity *capacity  // has the number of executors and of reserved ones
	start    func(*job) // runs the job; it may end its goroutine instead of returning
	expect   func()     // called when a job is finished, before its result is added to the results

	mu             sync.Mutex
	inProgress     map[message.Ticket]*job // nil value: the task is being claimed
	cancelledEarly map[message.Ticket]bool // tasks cancelled while being claimed
	forExecutors   []*job                  // jobs with a reserved executor; they start at once
	buffered       [levels][]*job          // all other waiting jobs, by priority
	shares         shares                  // selects the priority of the next buffered job
	active         int                     // executors with a job
	idleExecutors  int                     // executors without a job
	abandoned      *atomic.Int64           // former executors whose handlers still run
	next           chan *job               // sends jobs to idle executors; closed when stopped
	stopped        bool
	handlersDone   chan struct{} // closed when stopped and no handler runs
	waitBegan      chan struct{} // has a token if a job has begun to wait
}

func newJobs(capacity *capacity, start func(*job), expect func()) *jobs {
	return &jobs{capacity: capacity, start: start, expect: expect, abandoned: new(atomic.Int64), inProgress: make(map[message.Ticket]*job), cancelledEarly: make(map[message.Ticket]bool), next: make(chan *job, capacity.limit), handlersDone: make(chan struct{}), waitBegan: make(chan struct{}, 1)}
}

// reserve marks tickets as being claimed. It returns the tickets that it marked, and those whose tasks are already in
// progress. So if a ticket arrives twice, the worker claims and runs its task once.
func (js *jobs) reserve(tickets []message.Ticket) (fresh, inProgress []message.Ticket) {
	js.mu.Lock()
	defer js.mu.Unlock()
	fresh = make([]message.Ticket, 0, len(tickets))
	for _, t := range tickets {
		if _, held := js.inProgress[t]; held {
			inProgress = append(inProgress, t)
			continue
		}
		js.inProgress[t] = nil
		fresh = append(fresh, t)
	}
	return fresh, inProgress
}

// forget removes tickets that were not claimed, or whose results are committed.
func (js *jobs) forget(tickets ...message.Ticket) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, t := range tickets {
		delete(js.inProgress, t)
		delete(js.cancelledEarly, t)
	}
}

// add adds claimed jobs, which start as soon as executors are free. After stop, it marks them as finished and returns
// them, and the caller must hand them back.
func (js *jobs) add(list ...*job) (refused []*job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range list {
		ticket := j.ticket()
		js.inProgress[ticket] = j
		if len(js.cancelledEarly) > 0 {
			j.cancelled = js.cancelledEarly[ticket]
			delete(js.cancelledEarly, ticket)
		}
		if js.stopped {
			js.markFinished(j)
		}
	}
	if js.stopped {
		return list
	}
	if len(list) > 0 && list[0].into == store.IntoExecutors {
		js.forExecutors = append(js.forExecutors, list...)
	} else {
		for _, j := range list {
			l := level(j.task.Priority)
			js.buffered[l] = append(js.buffered[l], j)
		}
	}
	js.fill()
	if js.anyWaitingLocked() {
		select {
		case js.waitBegan <- struct{}{}:
		default:
		}
	}
	return nil
}

// fill starts waiting jobs while there are free executors. The caller holds js.mu.
func (js *jobs) fill() {
	for j := js.takeNext(); j != nil; j = js.takeNext() {
		if js.idleExecutors > 0 {
			js.idleExecutors--
			js.next <- j // does not block: the channel has a buffer for all executors
		} else {
			go js.execute(j) // the worker waits for its end through handlersDone
		}
	}
}

// takeNext returns the next job for a free executor, or nil if no executor is free or no job waits. The caller holds
// js.mu.
func (js *jobs) takeNext() (j *job) {
	switch {
	case js.active >= js.capacity.limit:
		return nil
	case len(js.forExecutors) > 0:
		j, js.forExecutors = js.forExecutors[0], js.forExecutors[1:]
		js.capacity.unreserve(1, j.into)
	case js.active+int(js.capacity.reserved.Load()) < js.capacity.limit:
		l := js.shares.next(func(l int) bool { return len(js.buffered[l]) > 0 })
		if l < 0 {
			return nil
		}
		js.shares.started(l, 1)
		j, js.buffered[l] = js.buffered[l][0], js.buffered[l][1:]
	default:
		return nil
	}
	js.active++
	j.phase, j.started = running, time.Now()
	return j
}

// anyWaitingLocked reports whether a job waits for an executor. The caller holds js.mu.
func (js *jobs) anyWaitingLocked() bool {
	waiting := len(js.forExecutors)
	for _, list := range js.buffered {
		waiting += len(list)
	}
	return waiting > 0
}

// execute is the loop of an executor. It runs jobs until stop is called.
func (js *jobs) execute(j *job) {
	exited := true
	defer func() {
		if exited { // a handler has ended this goroutine with runtime.Goexit
			js.executorExited(j)
		}
	}()
	for j != nil {
		js.start(j)
		j = js.nextJob(j)
	}
	exited = false
}

// nextJob records that a job has ended, waits for the next job and returns it. It returns nil after stop, and if the
// calling executor was replaced.
func (js *jobs) nextJob(ended *job) *job {
	js.mu.Lock()
	if ended.abandoned {
		js.abandoned.Add(-1)
		js.mu.Unlock()
		return nil
	}
	js.freeExecutor()
	next := js.takeNext()
	switch {
	case next != nil:
		js.mu.Unlock()
		return next
	case js.stopped:
		js.mu.Unlock()
		return nil
	}
	js.idleExecutors++
	js.mu.Unlock()
	return <-js.next
}

// freeExecutor records that an executor is free. The caller holds js.mu.
func (js *jobs) freeExecutor() {
	js.active--
	js.closeIfDone()
}

// closeIfDone closes handlersDone if stop was called and no handler is running any more. The caller holds js.mu.
func (js *jobs) closeIfDone() {
	if js.stopped && js.active == 0 {
		select {
		case <-js.handlersDone:
		default:
			close(js.handlersDone)
		}
	}
}

// bind sets the context of a running job and the function that cancels it. It returns false if the handler must not be
// called: the job was cancelled, or it was finished because the worker ends.
func (js *jobs) bind(j *job, attempt context.Context, cancel context.CancelCauseFunc) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j.cancelled || j.phase == finished {
		return false
	}
	j.attempt, j.cancel = attempt, cancel
	return true
}

// trace sets the span of a running job. It returns false if the job was finished in the meantime.
func (js *jobs) trace(j *job, span holdfast.AttemptSpan) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j.phase != finished {
		j.span = span
		return true
	}
	return false
}

// spanOf returns the span of a job, or nil.
func (js *jobs) spanOf(j *job) holdfast.AttemptSpan {
	js.mu.Lock()
	defer js.mu.Unlock()
	return j.span
}

// cancel cancels the handler of a job. If the job has not started, its handler is not called.
func (js *jobs) cancel(t message.Ticket) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j, found := js.inProgress[t]
	if j == nil {
		if found { // the task is being claimed
			js.cancelledEarly[t] = true
		}
		return
	}
	j.cancelled = true
	if j.cancel != nil {
		j.cancel(holdfast.ErrCancelled)
	}
}

// finish marks a job as finished. It returns false if the job was finished before.
func (js *jobs) finish(j *job) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j.phase == finished {
		return false
	}
	js.markFinished(j)
	return true
}

// markFinished marks a job as finished. The caller holds js.mu.
func (js *jobs) markFinished(j *job) {
	j.phase = finished
	js.expect()
}

// executorExited records that a job has ended its executor's goroutine, and starts a new executor for waiting jobs.
func (js *jobs) executorExited(ended *job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if ended.abandoned {
		js.abandoned.Add(-1)
		return
	}
	js.freeExecutor()
	js.fill()
}

// anyWaiting reports whether a job waits for an executor.
func (js *jobs) anyWaiting() bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.anyWaitingLocked()
}

// takeWaiting marks as finished, and returns, the jobs that were claimed before the given time and still wait for an
// executor.
func (js *jobs) takeWaiting(since time.Time) []*job {
	js.mu.Lock()
	defer js.mu.Unlock()
	lists := []*[]*job{&js.forExecutors}
	for l := range js.buffered {
		lists = append(lists, &js.buffered[l])
	}
	var taken []*job
	for _, list := range lists {
		n := 0
		for n < len(*list) && (*list)[n].claimed.Before(since) {
			js.markFinished((*list)[n])
			n++
		}
		taken, *list = append(taken, (*list)[:n]...), (*list)[n:]
	}
	return taken
}

// stop prevents further jobs from starting. It marks the waiting jobs as finished and returns them.
func (js *jobs) stop() []*job {
	js.mu.Lock()
	js.stopped = true
	js.mu.Unlock()
	taken := js.takeWaiting(time.Now().Add(time.Hour))
	js.mu.Lock()
	js.closeIfDone()
	js.idleExecutors = 0
	close(js.next)
	js.mu.Unlock()
	return taken
}

// takeRunning marks the jobs whose handlers have not returned as finished, and returns them.
func (js *jobs) takeRunning() []*job {
	js.mu.Lock()
	defer js.mu.Unlock()
	var taken []*job
	for _, j := range js.inProgress {
		if j != nil && j.phase == running {
			js.markFinished(j)
			taken = append(taken, j)
		}
	}
	return taken
}

// done returns a channel that is closed after stop, when no handler runs.
func (js *jobs) done() <-chan struct{} { return js.handlersDone }

// empty reports whether no task is in progress.
func (js *jobs) empty() bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	return len(js.inProgress) == 0
}

// has reports whether the task of a ticket is in progress.
func (js *jobs) has(t message.Ticket) bool {
	js.mu.Lock()
	defer js.mu.Unlock()
	_, held := js.inProgress[t]
	return held
}

// running returns the number of running jobs.
func (js *jobs) running() int {
	js.mu.Lock()
	defer js.mu.Unlock()
	return js.active
}

// tasks returns the claimed tasks whose results are not committed.
func (js *jobs) tasks() []holdfast.TaskID {
	js.mu.Lock()
	defer js.mu.Unlock()
	ids := make([]holdfast.TaskID, 0, len(js.inProgress))
	for ticket, j := range js.inProgress {
		if j != nil {
			ids = append(ids, ticket.Task)
		}
	}
	return ids
}
