package consumer

import (
	"sync"
	"time"
)

// fault is what a worker knows of trouble of its own, as handlers report it with holdfast.WorkerFault: the last error, and how
// many tasks may be in hand because of it. The limit is halved at most once in faultCut. It is doubled after as many successes
// in a row as it allows tasks, and after a wait, which grows as long as the trouble returns.
type fault struct {
	mu    sync.Mutex
	most  int // tasks in progress; 0 means that no trouble limits them
	wait  time.Duration
	cut   time.Time
	seen  time.Time
	err   error
	timer *time.Timer
	good  int // successes in a row since the limit last changed
}

const (
	faultCut     = time.Second
	faultWait    = time.Second // before the limit is doubled the first time,
	faultMaxWait = 30 * time.Second
	// faultShown is how long a worker says that it has trouble after the last error.
	faultShown = 10 * time.Second
)

// note takes an error and returns whether it lowered the limit. inHand is how many tasks the worker has in hand, limit how many
// it may run, and raised is called when the limit has grown again.
func (f *fault) note(err error, inHand, limit int, raised func()) (lowered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.err, f.seen, f.good = err, now, 0
	if now.Sub(f.cut) < faultCut {
		return false
	}
	if now.Sub(f.cut) > faultMaxWait+2*f.wait { // that trouble was over
		f.wait = 0
	}
	f.cut = now
	f.wait = min(max(faultWait, 2*f.wait), faultMaxWait)
	if f.most == 0 {
		f.most = limit
	}
	f.most = max(1, min(f.most, inHand)/2)
	if f.timer != nil {
		f.timer.Stop()
	}
	f.timer = time.AfterFunc(f.wait, func() { f.raise(limit, raised) })
	return true
}

// raise doubles the limit, and goes on with it until there is none.
func (f *fault) raise(limit int, raised func()) {
	f.mu.Lock()
	f.double(limit)
	if f.most > 0 {
		f.timer.Reset(f.wait)
	}
	f.mu.Unlock()
	raised()
}

// double doubles the limit, or ends it. f.mu is held.
func (f *fault) double(limit int) {
	f.good = 0
	if f.most *= 2; f.most >= limit {
		f.most = 0
	}
}

// succeeded takes the success of a task and returns whether it raised the limit: a few tasks with trouble must not keep a
// worker from the others.
func (f *fault) succeeded(limit int) (raised bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most == 0 {
		return false
	}
	if f.good++; f.good < f.most {
		return false
	}
	f.double(limit)
	return true
}

// limit returns how many tasks may be in progress in the worker: most, or fewer while there is trouble.
func (f *fault) limit(most int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > 0 {
		return min(most, f.most)
	}
	return most
}

// current is the error of trouble that lasts; nil if there is none.
func (f *fault) current() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > 0 || !f.seen.IsZero() && time.Since(f.seen) < faultShown {
		return f.err
	}
	return nil
}

// stop ends the timer; the worker takes nothing any more.
func (f *fault) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}
