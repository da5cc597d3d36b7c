package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// capacity limits the tasks in progress over all queues. The limit is the number of executors. While tasks are short,
// the limit also includes the tasks that will probably end within lookAhead. So the worker claims short tasks while
// others run, and long tasks do not wait for each other.
//
// A page reserves an executor for each of its tasks if all tasks in progress, including those of the page, fit into the
// executors. These tasks start when the claim has been answered. The worker claims any other page into its buffer. A
// buffered task starts when more executors are free than reserved. Pages of requeued tickets always reserve executors.
// If the worker handles a type that runs at most once, all pages reserve executors. Otherwise the handler of a buffered
// task could have started before a crash, and the janitor that hands the task back would not know that.
//
// While pages of several priorities wait for capacity, shares selects the next one.
//
// It is safe for concurrent use.
type capacity struct {
	mu        sync.Mutex
	limit     int           // executors
	mean      time.Duration // moving average of the task durations; 0 before the first task
	used      int
	gathering int           // part of used: for pages that are being gathered and have no reserved executors
	more      chan struct{} // closed when there may be more capacity; nil if no caller waits
	paused    bool          // the worker takes no more tasks

	waiting   [levels]waiters // callers that wait in reserve, by priority
	shares    shares
	unwritten int // number of results to write

	// unbuffered reports whether the worker must claim no task before an executor is free; nil means never.
	unbuffered func() bool

	fault fault // limits a worker that is at fault

	reserved atomic.Int64 // number of executors reserved for tasks that have not started
}

// waiters counts the callers that wait in reserve.
type waiters struct{ ordinary, requeued int }

const (
	// lookAhead is the maximum time that a task should wait for an executor, if tasks take as long as the recent ones.
	lookAhead = 50 * time.Millisecond
	// meanTasks is the approximate number of recent tasks that the mean covers.
	meanTasks = 16
	// maxBuffered bounds the tasks in progress beyond the executors, as a multiple of the executors.
	maxBuffered = 8
	// maxUnwritten bounds the results to write, as a multiple of the executors. With more results, the worker claims no
	// tasks.
	maxUnwritten = 4
)

func newCapacity(limit int) *capacity {
	return &capacity{limit: limit}
}

// allowed returns how many tasks may be in progress now. The caller holds c.mu.
func (c *capacity) allowed() int {
	if c.paused || c.unwritten > maxUnwritten*c.limit+maxGroupResults {
		return 0
	}
	if limit := c.fault.limit(c.limit); limit < c.limit || c.mean <= 0 || c.mean > lookAhead {
		return limit
	}
	if !c.buffers() {
		return c.limit
	}
	return c.limit + min(maxBuffered*c.limit, int(int64(c.limit)*int64(lookAhead)/int64(c.mean)))
}

// buffers reports whether the worker may claim tasks before executors are free.
func (c *capacity) buffers() bool { return c.unbuffered == nil || !c.unbuffered() }

// settled frees the capacity of a task whose result waits to be written. took is how long its handler ran, or 0 if the
// handler did not run.
func (c *capacity) settled(took time.Duration, into store.Place) {
	c.mu.Lock()
	c.unwritten++
	switch {
	case took <= 0:
		c.unreserve(1, into)
	case c.mean == 0:
		c.mean = took
	default:
		c.mean += (took - c.mean) / meanTasks
	}
	c.mu.Unlock()
	c.add(-1)
}

// written records that n results are written.
func (c *capacity) written(n int) {
	c.mu.Lock()
	c.unwritten -= n
	c.mu.Unlock()
	c.add(0)
}

// faulty records an error for which this worker is at fault. It returns the new limit of tasks in progress, and whether
// the limit is lower than before.
func (c *capacity) faulty(err error) (most int, lowered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lowered = c.fault.note(err, c.used, c.limit, func() { c.add(0) })
	return c.fault.limit(c.limit), lowered
}

// succeeded records the success of a task, which may raise a limit that faulty has lowered.
func (c *capacity) succeeded() {
	if c.fault.succeeded(c.limit) {
		c.add(0)
	}
}

// assign replaces the capacity from reserve with capacity for the n tasks of the page, even beyond the limit; see
// canExceed. It returns where the tasks go: into executors or into the buffer.
func (c *capacity) assign(given, n int, by rank) (into store.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares.started(level(by.priority), n)
	if by.requeued {
		c.unreserve(given-n, store.IntoExecutors)
		c.addLocked(n - given)
		return store.IntoExecutors
	}
	c.gathering -= given
	c.addLocked(n - given)
	if c.used-c.gathering > c.limit {
		return store.IntoBuffer
	}
	c.unreserve(-n, store.IntoExecutors)
	return store.IntoExecutors
}

// release frees the capacity of n tasks that were not claimed.
func (c *capacity) release(n int, into store.Place) {
	c.unreserve(n, into)
	c.add(-n)
}

// unreserve gives back n reserved executors, or reserves them if n is negative. It does nothing for tasks in the
// buffer.
func (c *capacity) unreserve(n int, into store.Place) {
	if into == store.IntoExecutors {
		c.reserved.Add(-int64(n))
	}
}

// add records n more tasks in progress. If n is negative, it frees capacity.
func (c *capacity) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(n)
}

// addLocked is add for a caller that holds c.mu.
func (c *capacity) addLocked(n int) {
	c.used += n
	if n <= 0 && c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// canExceed reports whether n tasks beyond the limit would still get an executor within lookAhead. If so, the worker
// can take all tickets of a message that exceeds the limit.
func (c *capacity) canExceed(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mean > 0 && time.Duration(n)*c.mean <= time.Duration(c.limit)*lookAhead && c.buffers()
}

// pause makes all later calls of reserve wait until resume is called.
func (c *capacity) pause() { c.setPaused(true) }

// resume ends a pause.
func (c *capacity) resume() { c.setPaused(false) }

func (c *capacity) setPaused(closed bool) {
	c.mu.Lock()
	c.paused = closed
	c.mu.Unlock()
	c.add(0)
}

// inUse returns the number of tasks in progress.
func (c *capacity) inUse() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// free returns how many more tasks may be in progress.
func (c *capacity) free() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.allowed()-c.used)
}

// rank is the rank of a caller of reserve.
type rank struct {
	priority holdfast.Priority
	requeued bool // goes before ordinary callers of its priority
}

// reserve waits for free capacity and takes it for up to most tasks. It returns the number of tasks, or 0 if ctx or
// patience ends first. A patience of 0 means no limit. The caller passes the result to assign.
//
// While tasks are short, a caller with requeued tickets waits until there is capacity for least tasks. Otherwise its
// page could be cut to a single task.
func (c *capacity) reserve(ctx context.Context, least, most int, patience time.Duration, by rank) int {
	n, change := c.tryReserve(least, most, by, +1)
	if n > 0 {
		return n
	}
	defer c.stopWaiting(by)
	var over <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	for n == 0 {
		select {
		case <-change:
			n, change = c.tryReserve(least, most, by, 0)
		case <-over:
			n, _ := c.tryReserve(1, most, by, 0)
			return n
		case <-ctx.Done():
			return 0
		}
	}
	return n
}

// wait counts a caller that starts or stops waiting. The caller holds c.mu.
func (c *capacity) wait(by rank, change int) {
	if w := &c.waiting[level(by.priority)]; by.requeued {
		w.requeued += change
	} else {
		w.ordinary += change
	}
}

// stopWaiting counts a caller that stops waiting, and wakes the others.
func (c *capacity) stopWaiting(by rank) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait(by, -1)
	c.addLocked(0)
}

// isNext reports whether no waiting caller takes precedence over this one. The caller holds c.mu.
func (c *capacity) isNext(by rank) bool {
	own := level(by.priority)
	if !by.requeued && c.waiting[own].requeued > 0 {
		return false
	}
	return c.shares.next(func(l int) bool { return l == own || c.waiting[l] != waiters{} }) == own
}

// tryReserve takes capacity that is free now. If there is none, it adds begins to the number of waiting callers, and
// returns a channel that is closed when there may be more capacity.
func (c *capacity) tryReserve(least, most int, by rank, begins int) (n int, change <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch size := c.allowed(); {
	case !c.isNext(by):
	case by.requeued:
		inUse := c.used
		if c.buffers() { // pages that are being gathered may go into the buffer instead
			inUse -= c.gathering
		}
		n = max(0, min(most, min(size, c.limit)-inUse))
		if size > c.limit && n < min(least, c.limit/2) {
			n = 0
		}
		c.unreserve(-n, store.IntoExecutors)
	default:
		n = max(0, min(most, size-c.used))
		c.gathering += n
	}
	c.used += n
	if n > 0 {
		return n, nil
	}
	c.wait(by, begins)
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return 0, c.more
}
