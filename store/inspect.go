package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Desk is what people ask.
type Desk interface {
	// Task returns a task with its payload; ErrNotFound.
	Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error)
	// List returns tasks without payload, newest id first.
	List(ctx context.Context, f Filter) ([]holdfast.Task, error)
	// Count counts tasks by state; states with none are present with 0.
	Count(ctx context.Context, f Filter) (map[holdfast.State]int64, error)
	// Attempts returns the kept attempts of a task, oldest first; ErrNotFound if
	// there is no such task.
	Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error)
	// Lanes describes every known lane, sorted by name.
	Lanes(ctx context.Context) ([]Lane, error)
}

// Filter chooses tasks. The zero value chooses all.
type Filter struct {
	States []holdfast.State
	Type   string
	Lane   string
	Error  string // text that the last error contains, ignoring case
	// Since and Until, if not zero, choose the tasks whose time is not before Since, and before Until. The time of a task
	// is when it reached a final state, and until then when it was created.
	Since, Until time.Time
	Before       holdfast.TaskID // only smaller ids: the last id of the page before
	Limit        int             // at most this many; 0 means 50; List only
}

// Lane describes one lane.
type Lane struct {
	Name      string
	Ready     int64 // waiting, whenever they are due
	Due       int64 // of them, those that could run now
	Running   int64
	OldestDue time.Duration // age of the one that has been due for longest
	DrainedAt time.Time     // up to when its sentinel has proved it drained
}
