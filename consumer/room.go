package consumer

import (
	"context"
	"sync"
	"time"
)

// room counts the tasks in hand against the executors, over all lanes.
type room struct {
	mu     sync.Mutex
	limit  int
	held   int
	change chan struct{} // closed and renewed when held shrinks
}

func newRoom(limit int) *room { return &room{limit: limit, change: make(chan struct{})} }

// take reserves up to most free places and returns how many: 0 if there are none.
func (r *room) take(most int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := max(0, min(most, r.limit-r.held))
	r.held += n
	return n
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
	return max(0, r.limit-r.held), r.change
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
