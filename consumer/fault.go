package consumer

import (
	"sync"
	"time"
)

// fault limits the tasks of a worker that is at fault itself, which handlers report with holdfast.WorkerFault. It keeps
// the last error and the limit of tasks in progress. An error halves the limit, at most once in faultCut. The limit
// doubles after as many successes in a row as it allows tasks, and after a wait. The wait grows if the trouble returns.
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
	faultWait    = time.Second // before the limit doubles the first time
	faultMaxWait = 30 * time.Second
	// faultShown is how long after the last error a worker reports that it has trouble.
	faultShown = 10 * time.Second
)

// note records an error and reports whether it lowered the limit. inHand is the number of tasks in progress, and limit
// the number of tasks that the worker may run. note calls raised each time the limit has grown again.
func (f *fault) note(err error, inHand, limit int, raised func()) (lowered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.err, f.seen, f.good = err, now, 0
	if now.Sub(f.cut) < faultCut {
		return false
	}
	if now.Sub(f.cut) > faultMaxWait+2*f.wait { // the earlier trouble had ended
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

// raise doubles the limit, and repeats that after each wait until no limit is left.
func (f *fault) raise(limit int, raised func()) {
	f.mu.Lock()
	f.double(limit)
	if f.most > 0 {
		f.timer.Reset(f.wait)
	}
	f.mu.Unlock()
	raised()
}

// double doubles the limit, or removes it. The caller holds f.mu.
func (f *fault) double(limit int) {
	f.good = 0
	if f.most *= 2; f.most >= limit {
		f.most = 0
	}
}

// succeeded records the success of a task and reports whether it raised the limit. A few tasks with trouble must not
// slow down the others.
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

// current returns the last error if it is recent, else nil.
func (f *fault) current() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > 0 || !f.seen.IsZero() && time.Since(f.seen) < faultShown {
		return f.err
	}
	return nil
}

// stop ends the timer. The worker calls it when it takes no more tasks.
func (f *fault) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}
