package flow

import (
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
)

// Ended collects tasks whose permits may be free: this process has stored a result of them, or has blocked them. The
// next call of ReleaseBlocked checks their permits first. The sweep over all permits finds the tasks that another
// process has changed, and those that Ended drops. Ended is safe for concurrent use.
type Ended struct {
	mu    sync.Mutex
	tasks []holdfast.TaskID
}

// maxEnded is the maximum number of collected tasks.
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

// take removes the collected tasks and returns them.
func (e *Ended) take() []holdfast.TaskID {
	e.mu.Lock()
	defer e.mu.Unlock()
	tasks := e.tasks
	e.tasks = nil
	return tasks
}

// The time between two steps of the sweep over all permits, and the number of permits that a step checks. If many
// permits of a step were free, the next step starts at once and checks more.
const (
	sweepPause = 500 * time.Millisecond
	sweepFew   = 500
	sweepMany  = 5000
)

// permitID identifies a permit.
type permitID struct{ Task, Gate int64 }

// permitSweep is the position of the sweep over all permits.
type permitSweep struct {
	last permitID // last checked permit
	many bool
	next time.Time // time of the next step
}

// due reports whether it is time for the next step of the sweep.
func (s *permitSweep) due() bool { return !time.Now().Before(s.next) }

// size returns the number of permits that the next step checks.
func (s *permitSweep) size() int {
	if s.many {
		return sweepMany
	}
	return sweepFew
}

// after returns the position after a step that has checked the given permits, of which free were free.
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
