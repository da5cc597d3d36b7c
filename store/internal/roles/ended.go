package roles

import (
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
)

// Ended collects the tasks whose permits may be free: those of which this process has stored a result, or which it has
// blocked. The next call of ReleaseBlocked looks at their permits first. A task that another process has changed, or that
// is lost here, is found when the sweep over all permits comes to it. Ended is safe for concurrent use.
type Ended struct {
	mu    sync.Mutex
	tasks []holdfast.TaskID
}

// maxEnded is the highest number of collected tasks.
const maxEnded = 10_000

// Add adds tasks.
func (e *Ended) Add(tasks ...holdfast.TaskID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tasks = append(e.tasks, tasks[:min(len(tasks), maxEnded-len(e.tasks))]...)
}

// Moved adds the tasks of moves.
func (e *Ended) Moved(moves []holdfast.Transition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range moves[:min(len(moves), maxEnded-len(e.tasks))] {
		e.tasks = append(e.tasks, moves[i].Task)
	}
}

// take returns the tasks and forgets them.
func (e *Ended) take() []holdfast.TaskID {
	e.mu.Lock()
	defer e.mu.Unlock()
	tasks := e.tasks
	e.tasks = nil
	return tasks
}

// How often the sweep over all permits continues, and at how many it looks: many if many of those before were free.
const (
	sweepPermits = 500 * time.Millisecond
	sweepFew     = 500
	sweepMany    = 5000
)

// permitID names a permit.
type permitID struct{ Task, Gate int64 }

// permitSweep is where the sweep over all permits is.
type permitSweep struct {
	last permitID // the last permit at which it has looked
	many bool
	next time.Time // when it continues
}

// due reports whether the sweep is to continue.
func (s *permitSweep) due() bool { return !time.Now().Before(s.next) }

// size returns at how many permits the next step looks.
func (s *permitSweep) size() int {
	if s.many {
		return sweepMany
	}
	return sweepFew
}

// moved returns the sweep after a step that has looked at the given permits, of which so many were free.
func (s permitSweep) moved(looked []permitID, free int) permitSweep {
	if len(looked) < s.size() { // the end
		return permitSweep{next: time.Now().Add(sweepPermits)}
	}
	s.last, s.many, s.next = looked[len(looked)-1], free > len(looked)/10, time.Now()
	if !s.many {
		s.next = s.next.Add(sweepPermits)
	}
	return s
}
