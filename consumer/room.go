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

	window   time.Time // begin of the present measurement
	finished int       // tasks in it
}

const (
	// lookAhead is how long a task may wait for an executor at the measured pace.
	lookAhead = 50 * time.Millisecond
	// maxAhead bounds it as a multiple of the executors.
	maxAhead = 4
)

func newRoom(limit int) *room {
	return &room{limit: limit, change: make(chan struct{}), window: time.Now()}
}

// take reserves up to most free places and returns how many: 0 if there are none.
func (r *room) take(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := max(0, min(most, r.size()-r.held))
	r.held += n
	return n
}

// size is how many tasks may be in hand now. r.mu is held.
func (r *room) size() int {
	if passed := time.Since(r.window); passed >= lookAhead {
		r.ahead = min(maxAhead*r.limit, int(float64(r.finished)*float64(lookAhead)/float64(passed)))
		r.window, r.finished = time.Now(), 0
	}
	return r.limit + r.ahead
}

// done gives the place of a finished task free.
func (r *room) done() {
	r.mu.Lock()
	r.finished++
	r.mu.Unlock()
	r.add(-1)
}

// add reserves n places more even beyond the limit, for a message that carries more
// tickets than there was room for; a negative n gives places back.
func (r *room) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
	if n < 0 {
		close(r.change)
		r.change = make(chan struct{})
	}
}

// free returns the number of free places, and a channel that is closed when
// there may be more.
func (r *room) free() (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.size()-r.held), r.change
}

// wait returns true when there is a free place, false when patience is over (0
// means never) or ctx is done.
func (r *room) wait(ctx context.Context, patience time.Duration) bool {
	var over <-chan time.Time
	for {
		free, change := r.free()
		if free > 0 {
			return true
		}
		if over == nil && patience > 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-change:
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
