package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// TaskPage is a page of tasks without payloads.
type TaskPage struct {
	Tasks []holdfast.Task `json:"tasks"`
	// Next is the cursor of the next page, and null on the last page.
	Next *holdfast.TaskID `json:"next"`
}

// NewTaskPage returns the form of a page.
func NewTaskPage(p store.Page) TaskPage {
	page := TaskPage{Tasks: append([]holdfast.Task{}, p.Tasks...)}
	if p.Next > 0 {
		page.Next = &p.Next
	}
	return page
}

// TaskDetails is a task with its payload and its attempts.
type TaskDetails struct {
	holdfast.Task
	Attempts []holdfast.Attempt `json:"attempts"`
}

// Task reads a task with its attempts. It returns an ErrNotFound if the store has no such task.
func Task(ctx context.Context, b *app.Backend, id holdfast.TaskID) (TaskDetails, error) {
	task, err := b.Task(ctx, id)
	if err != nil {
		return TaskDetails{}, err
	}
	attempts, err := b.Store.Attempts(ctx, id)
	if err != nil {
		return TaskDetails{}, err
	}
	return TaskDetails{task, append([]holdfast.Attempt{}, attempts...)}, nil
}

// TaskState is the state of a task after a change.
type TaskState struct {
	ID    holdfast.TaskID `json:"id"`
	State holdfast.State  `json:"state"`
}

// DeathGroup is a group of dead tasks.
type DeathGroup struct {
	Group    string          `json:"group"`
	Type     string          `json:"type"`
	Class    string          `json:"class"`
	Host     string          `json:"host,omitempty"`
	Status   int             `json:"status,omitempty"`
	Tasks    int64           `json:"tasks"`
	LastHour int64           `json:"last_hour"`
	FirstAt  time.Time       `json:"first_at"`
	LastAt   time.Time       `json:"last_at"`
	Sample   holdfast.TaskID `json:"sample"`
	Error    string          `json:"error"`
}

// DeathGroups reads the groups of dead tasks that a filter selects.
func DeathGroups(ctx context.Context, b *app.Backend, f store.DeathFilter) ([]DeathGroup, error) {
	found, err := b.Store.DeathGroups(ctx, f)
	if err != nil {
		return nil, err
	}
	groups := make([]DeathGroup, len(found))
	for i, g := range found {
		groups[i] = DeathGroup{g.Fingerprint, g.Type, g.Class, g.Host, g.Status, g.Tasks, g.LastHour, g.FirstAt, g.LastAt, g.Sample, g.Error}
	}
	return groups, nil
}
