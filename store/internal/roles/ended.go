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

// Add adds tasks. Beyond maxEnded, it drops them.
func (e *Ended) Add(tasks ...holdfast.TaskID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tasks = append(e.tasks, tasks[:min(len(tasks), maxEnded-len(e.tasks))]...)
}

// AddMoved adds the tasks of moves.
func (e *Ended) AddMoved(moves []holdfast.Transition) {
	tasks := make([]holdfast.TaskID, len(moves))
	for i := range moves {
		tasks[i] = moves[i].Task
	}
	e.Add(tasks...)
}

// take returns the tasks and forgets them.
func (e *Ended) take() []holdfast.TaskID {
	e.mu.Lock()
	defer e.mu.Unlock()
	tasks := e.tasks
	e.tasks = nil
	return tasks
}

// The time between two steps of the sweep over all permits, and the number of permits of a step. If many permits of a step
// were free, the next step comes at once and has many permits.
const (
	sweepPause = 500 * time.Millisecond
	sweepFew   = 500
	sweepMany  = 5000
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

// after returns the sweep after a step that has looked at the given permits. free is how many of them were free.
func (s permitSweep) after(looked []permitID, free int) permitSweep {
	if len(looked) < s.size() { // the end
		return permitSweep{next: time.Now().Add(sweepPause)}
	}
	s.last, s.many, s.next = looked[len(looked)-1], free > len(looked)/10, time.Now()
	if !s.many {
		s.next = s.next.Add(sweepPause)
	}
	return s
}
