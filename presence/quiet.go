package presence

import (
	"sync"
	"time"
)

// quiet measures the quiet period, which is the time since the last disturbance. A disturbance is an event that can
// also end the presence locks of live processes. The watcher fences no worker early until every live process has had
// time to acquire its locks again and to renew its lease.
type quiet struct {
	mu    sync.Mutex
	since time.Time // time of the last disturbance
	// These are the janitor's own locks: a session at the store and a presence queue at the broker. If the janitor
	// loses one, other processes may have lost theirs for the same reason. Each channel is closed when the lock is
	// lost. It is nil while the janitor does not have the lock.
	watch, ownPresence <-chan struct{}
}

// disturbed records a disturbance.
func (q *quiet) disturbed(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at.After(q.since) {
		q.since = at
	}
}

// set records the channel of one of the janitor's own locks.
func (q *quiet) set(lock *<-chan struct{}, gone <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*lock = gone
}

// lasted reports whether the janitor has both of its own locks and the quiet period is at least as long as period.
func (q *quiet) lasted(period time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return present(q.watch) && present(q.ownPresence) && time.Since(q.since) >= period
}

// present reports whether this process still has a lock. It reads the channel, because the goroutine that waits for the
// channel may not have run yet.
func present(gone <-chan struct{}) bool {
	if gone == nil {
		return false
	}
	select {
	case <-gone:
		return false
	default:
		return true
	}
}
