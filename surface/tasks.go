package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// ListedTask is a task of a list, without its payload.
type ListedTask struct {
	holdfast.Task
	Tags []string  `json:"tags"` // those of Task, but never nil
	Gate *TaskGate `json:"gate,omitempty" doc:"What keeps the ready task from starting, such as a pause, a limit or a breaker."`
}

// inList returns the form of a task in a list.
func inList(task holdfast.Task, gate *TaskGate) ListedTask {
	return ListedTask{task, append([]string{}, task.Tags...), gate}
}

// TaskPage is a page of tasks without payloads.
type TaskPage struct {
	Tasks []ListedTask `json:"tasks"`
	// Next is the cursor of the next page, and null on the last page.
	Next *holdfast.TaskID `json:"next"`
}

// List reads a page of tasks with their gates.
func List(ctx context.Context, b *app.Backend, f store.Filter) (TaskPage, error) {
	found, err := b.Store.List(ctx, f)
	if err != nil {
		return TaskPage{}, err
	}
	gateOf, err := gatesOf(ctx, b, found.Tasks...)
	if err != nil {
		return TaskPage{}, err
	}
	page := TaskPage{Tasks: Each(found.Tasks, func(task holdfast.Task) ListedTask { return inList(task, gateOf(task.ID)) })}
	if found.Next > 0 {
		page.Next = &found.Next
	}
	return page, nil
}

// TaskDetails is a task with its payload, its values and its attempts.
type TaskDetails struct {
	ListedTask
	Values
	KeptUntil time.Time          `json:"kept_until,omitzero" doc:"The time from which a janitor deletes the task. A task of a batch stays until the batch has ended, too."`
	Attempts  []holdfast.Attempt `json:"attempts"`
}

// Task reads a task with its values and its attempts. It returns an ErrNotFound if the store has no such task.
func Task(ctx context.Context, b *app.Backend, id holdfast.TaskID) (TaskDetails, error) {
	task, err := b.Task(ctx, id)
	if err != nil {
		return TaskDetails{}, err
	}
	attempts, err := b.Store.Attempts(ctx, id)
	if err != nil {
		return TaskDetails{}, err
	}
	data, err := b.TaskData(ctx, id)
	if err != nil {
		return TaskDetails{}, err
	}
	gateOf, err := gatesOf(ctx, b, task)
	if err != nil {
		return TaskDetails{}, err
	}
	return TaskDetails{inList(task, gateOf(id)), valuesOf(data), b.PruneAges().KeptUntil(&task), append([]holdfast.Attempt{}, attempts...)}, nil
}

// TaskState is the state of a task after a change.
type TaskState struct {
	ID    holdfast.TaskID `json:"id"`
	State holdfast.State  `json:"state"`
}

// StateCounts has the number of tasks in each state, in the order of holdfast.States.
type StateCounts struct {
	Ready     int64 `json:"ready"`
	Running   int64 `json:"running"`
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Archived  int64 `json:"archived"`
}

// Place returns the place of the number of tasks in a state.
func (c *StateCounts) Place(state holdfast.State) *int64 {
	switch state {
	case holdfast.Ready:
		return &c.Ready
	case holdfast.Running:
		return &c.Running
	case holdfast.Done:
		return &c.Done
	case holdfast.Dead:
		return &c.Dead
	case holdfast.Cancelled:
		return &c.Cancelled
	default:
		return &c.Archived
	}
}

// Of returns the number of tasks in a state.
func (c StateCounts) Of(state holdfast.State) int64 { return *c.Place(state) }

// Counts has the number of tasks in each state that match a search.
type Counts struct {
	StateCounts
	// Next is set if not all tasks were counted; see store.Counts.
	Next holdfast.TaskID `json:"next,omitempty"`
}

// CountsOf returns the JSON form of counts.
func CountsOf(c store.Counts) Counts {
	counts := Counts{Next: c.Next}
	for state, n := range c.By {
		*counts.Place(state) = n
	}
	return counts
}
