package consumer

import (
	"context"
	"sync"
	"time"
)

// room counts the tasks in hand over all lanes. There is room for as many as
// there are executors, and for those that will be finished within a moment at the present pace:
// so short tasks are claimed while others run, and long tasks never wait behind each other.
type room struct {
	mu     sync.Mutex
	limit  int // executors
	ahead  int // further tasks that there is room for
	held   int
	change chan struct{} // closed and renewed when there may be more room

	waiting   int // preferred ones that wait for a place
	unwritten int // results

	window   time.Time // begin of the present measurement
	finished int       // tasks in it
}

const (
	// lookAhead is how long a task may wait for an executor at the measured pace.
	lookAhead = 50 * time.Millisecond
	// maxAhead bounds it as a multiple of the executors.
	maxAhead = 4
	// maxUnwritten, likewise, bounds the results that wait for the store: with more, nothing is taken.
	maxUnwritten = 4
)

func newRoom(limit int) *room {
	return &room{limit: limit, change: make(chan struct{}), window: time.Now()}
}

// size is how many tasks may be in hand now. r.mu is held.
func (r *room) size() int {
	if passed := time.Since(r.window); passed >= lookAhead {
		r.ahead = min(maxAhead*r.limit, int(float64(r.finished)*float64(lookAhead)/float64(passed)))
		r.window, r.finished = time.Now(), 0
	}
	if r.unwritten > maxUnwritten*r.limit+resultBatch {
		return 0
	}
	return r.limit + r.ahead
}

// judged gives the place of a task free whose result now waits to be written. One that
// was handed back without having run says nothing about the pace.
func (r *room) judged(ran bool) {
	r.mu.Lock()
	r.unwritten++
	if ran {
		r.finished++
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

// add reserves n places more even beyond the limit, for a message that carries more
// tickets than there was room for; a negative n gives places back.
func (r *room) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	if n <= 0 {
		close(r.change)
		r.change = make(chan struct{})
	}
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
// took: 0 if patience was over first (0 means never) or ctx is done.
func (r *room) reserve(ctx context.Context, most int, patience time.Duration, by rank) int {
	r.queue(by, +1)
	defer r.queue(by, -1)
	var over <-chan time.Time
	for {
		n, change := r.tryReserve(most, by)
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
			return 0
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
func (r *room) tryReserve(most int, by rank) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if by == ordinary && r.waiting > 0 {
		return 0, r.change
	}
	n := max(0, min(most, r.size()-r.held))
	r.held += n
	return n, r.change
}
