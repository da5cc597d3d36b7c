package surface

import (
	"context"

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
