package consumer

import (
	"sync"
	"time"
)

// fault limits the tasks of a worker while errors of the worker itself occur; see holdfast.WorkerFault. It keeps the
// last error and the limit of tasks in progress. An error halves the limit, at most once in faultCutInterval. The limit
// doubles after a wait, and after as many successes in a row as it allows tasks. The wait grows if errors recur.
type fault struct {
	mu        sync.Mutex
	most      int // tasks in progress; 0 means no limit
	wait      time.Duration
	lastCut   time.Time
	lastSeen  time.Time
	err       error
	timer     *time.Timer
	successes int // successes in a row since the limit last changed
}

const (
	faultCutInterval = time.Second
	faultWait        = time.Second // until the limit first doubles
	faultMaxWait     = 30 * time.Second
	// faultVisible is how long the worker's status contains the last error.
	faultVisible = 10 * time.Second
)

// note records an error and reports whether it lowered the limit. inProgress is the number of tasks in progress, and
// limit the maximum number of them. note arranges for a call of raised each time the limit has grown.
func (f *fault) note(err error, inProgress, limit int, raised func()) (lowered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.err, f.lastSeen, f.successes = err, now, 0
	if now.Sub(f.lastCut) < faultCutInterval {
		return false
	}
	if now.Sub(f.lastCut) > faultMaxWait+2*f.wait { // the series of errors had ended
		f.wait = 0
	}
	f.lastCut = now
	f.wait = min(max(faultWait, 2*f.wait), faultMaxWait)
	if f.most == 0 {
		f.most = limit
	}
	f.most = max(1, min(f.most, inProgress)/2)
	if f.timer != nil {
		f.timer.Stop()
	}
	f.timer = time.AfterFunc(f.wait, func() { f.raise(limit, raised) })
	return true
}

// raise doubles the limit, and doubles it again after each wait until there is no limit.
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
	f.successes = 0
	if f.most *= 2; f.most >= limit {
		f.most = 0
	}
}

// succeeded records the success of a task and reports whether it raised the limit. Successes raise the limit so that a
// few failing tasks do not slow down the others.
func (f *fault) succeeded(limit int) (raised bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most == 0 {
		return false
	}
	if f.successes++; f.successes < f.most {
		return false
	}
	f.double(limit)
	return true
}

// limit returns how many tasks may be in progress. The result is at most most.
func (f *fault) limit(most int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > 0 {
		return min(most, f.most)
	}
	return most
}

// current returns the last error if it is recent or still limits the worker, and nil otherwise.
func (f *fault) current() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > 0 || !f.lastSeen.IsZero() && time.Since(f.lastSeen) < faultVisible {
		return f.err
	}
	return nil
}

// stop stops the timer. The worker calls stop when it claims no more tasks.
func (f *fault) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}
