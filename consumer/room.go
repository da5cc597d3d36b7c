package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// room counts the tasks in hand over all lanes. There is room for as many as
// there are executors and, while tasks are short, for those that will be finished within a
// moment: so short tasks are claimed while others run, and long tasks do not wait behind
// each other.
//
// If all tasks of a page find a free executor, the page reserves those executors before its claim. The tasks then start
// when the answer arrives. The worker claims every other page into its buffer; its tasks start while more executors are
// free than reserved. A page finds enough free executors if all tasks in progress, running or not, are no more than the
// executors. Pages of preferred tickets always reserve executors.
type room struct {
	mu        sync.Mutex
	limit     int           // executors
	mean      time.Duration // of the last tasks, more or less; 0 before the first
	held      int
	gathering int           // of the places held, those of pages that are still being gathered and have not reserved executors
	more      chan struct{} // closed when there may be more room; nil while nobody waits for that
	closed    bool          // the worker takes no more tasks

	waiting   int // preferred ones that wait for a place
	unwritten int // results

	fault fault // of this worker's own

	reserved atomic.Int64 // executors, for tasks that have not started
}

const (
	// lookAhead is how long a task may wait for an executor if the next ones take as long as the last.
	lookAhead = 50 * time.Millisecond
	// memory is how many tasks the mean roughly goes back.
	memory = 16
	// maxAhead bounds what is claimed ahead as a multiple of the executors.
	maxAhead = 8
	// maxUnwritten, likewise, bounds the results that wait for the store: with more, nothing is taken.
	maxUnwritten = 4
)

func newRoom(limit int) *room {
	return &room{limit: limit}
}

// size is how many tasks may be in hand now. r.mu is held.
func (r *room) size() int {
	if r.closed || r.unwritten > maxUnwritten*r.limit+resultBatch {
		return 0
	}
	if limit := r.fault.limit(r.limit); limit < r.limit || r.mean <= 0 || r.mean > lookAhead {
		return limit
	}
	return r.limit + min(maxAhead*r.limit, int(int64(r.limit)*int64(lookAhead)/int64(r.mean)))
}

// judged gives the place of a task free whose result now waits to be written. took is
// how long its handler ran; 0 if it was handed back without having run, which says nothing.
func (r *room) judged(took time.Duration, into store.Place) {
	r.mu.Lock()
	r.unwritten++
	switch {
	case took <= 0:
		r.unreserve(1, into)
	case r.mean == 0:
		r.mean = took
	default:
		r.mean += (took - r.mean) / memory
	}
	r.mu.Unlock()
	r.add(-1)
}

// written notes that n results are in the store.
func (r *room) written(n int) {
	r.mu.Lock()
	r.unwritten -= n
	r.mu.Unlock()
	r.add(0)
}

// faulty records an error for which this worker is at fault. It returns how many tasks may be in progress now, and
// whether that is fewer than before.
func (r *room) faulty(err error) (most int, lowered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lowered = r.fault.note(err, r.held, r.limit, func() { r.add(0) })
	return r.fault.limit(r.limit), lowered
}

// succeeded records the success of a task, which can raise a limit that faulty has lowered.
func (r *room) succeeded() {
	if r.fault.succeeded(r.limit) {
		r.add(0)
	}
}

// settle turns the places that reserve gave to a page into places of its n tasks, even beyond the limit, see bears. It
// returns where the page's tasks go: into executors or into the buffer.
func (r *room) settle(given, n int, by rank) (into store.Place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if by == preferred {
		r.unreserve(given-n, store.IntoExecutors)
		r.change(n - given)
		return store.IntoExecutors
	}
	r.gathering -= given
	r.change(n - given)
	if r.held-r.gathering > r.limit {
		return store.IntoBuffer
	}
	r.unreserve(-n, store.IntoExecutors)
	return store.IntoExecutors
}

// leave gives back the places of n tasks that were not claimed.
func (r *room) leave(n int, into store.Place) {
	r.unreserve(n, into)
	r.add(-n)
}

// unreserve gives back the executors that were reserved for n tasks.
func (r *room) unreserve(n int, into store.Place) {
	if into == store.IntoExecutors {
		r.reserved.Add(-int64(n))
	}
}

// add takes n places more; a negative n gives places back.
func (r *room) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(n)
}

// change is add for a caller that holds r.mu.
func (r *room) change(n int) {
	r.held += n
	if n <= 0 && r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// bears reports whether n tasks more than there is room for would still find an executor within a moment. A message
// that carries more tickets than there is room for can then be taken whole.
func (r *room) bears(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mean > 0 && time.Duration(n)*r.mean <= time.Duration(r.limit)*lookAhead
}

// shut keeps anything more from being taken until open is called.
func (r *room) shut() { r.close(true) }

func (r *room) open() { r.close(false) }

func (r *room) close(closed bool) {
	r.mu.Lock()
	r.closed = closed
	r.mu.Unlock()
	r.add(0)
}

// taken is the number of places that are taken.
func (r *room) taken() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// free returns the number of free places.
func (r *room) free() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.size()-r.held)
}

// rank says who gets a place first.
type rank uint8

const (
	ordinary  rank = iota
	preferred      // before every ordinary one that waits
)

// reserve waits for free places, takes at most most of them and returns how many it
// took: 0 if patience was over first (0 means never) or ctx is done. The caller passes them to settle. While tasks are short
// it waits for at least least places, so that a preferred page is not cut to one task.
func (r *room) reserve(ctx context.Context, least, most int, patience time.Duration, by rank) int {
	r.queue(by, +1)
	defer r.queue(by, -1)
	var over <-chan time.Time
	for {
		n, change := r.tryReserve(least, most, by)
		if n > 0 {
			return n
		}
		if over == nil && patience > 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-change:
		case <-over:
			n, _ := r.tryReserve(1, most, by)
			return n
		case <-ctx.Done():
			return 0
		}
	}
}

// queue counts the preferred who wait; when the last one leaves, the others look again.
func (r *room) queue(by rank, change int) {
	if by != preferred {
		return
	}
	r.mu.Lock()
	r.waiting += change
	r.mu.Unlock()
	if change < 0 {
		r.add(0)
	}
}

// tryReserve takes what is free now, or returns a channel that is closed when there
// may be more.
func (r *room) tryReserve(least, most int, by rank) (n int, change <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := r.size()
	switch {
	case by == preferred:
		n = max(0, min(most, min(size, r.limit)-(r.held-r.gathering)))
		if size > r.limit && n < min(least, r.limit/2) {
			n = 0
		}
		r.unreserve(-n, store.IntoExecutors)
	case r.waiting == 0:
		n = max(0, min(most, size-r.held))
		r.gathering += n
	}
	r.held += n
	if n == 0 && r.more == nil {
		r.more = make(chan struct{})
	}
	return n, r.more
}
