package presence

import (
	"sync"
	"time"
)

// quiet says for how long nothing has happened that also ends the signs of processes that live. Nobody is fenced before the
// end of its lease until every live process has had the time to show its signs again and say so.
type quiet struct {
	mu    sync.Mutex
	since time.Time // of the last trouble
	// The janitor's own signs, by whose end it learns that those of others may have ended for the same reason: a session at
	// the store and a witness at the broker. Each is closed when its sign has ended, and nil while there is none.
	watch, witness <-chan struct{}
}

// disturbed notes trouble.
func (q *quiet) disturbed(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at.After(q.since) {
		q.since = at
	}
}

// holds notes one of the janitor's own signs.
func (q *quiet) holds(sign *<-chan struct{}, gone <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	*sign = gone
}

// lasted reports whether both signs are held, and there was no trouble for that long.
func (q *quiet) lasted(need time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return there(q.watch) && there(q.witness) && time.Since(q.since) >= need
}

// there reports whether a sign is held. It is asked at the last moment: word of its end may be there that nobody
// has heard yet.
func there(gone <-chan struct{}) bool {
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
