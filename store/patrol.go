package store

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// Patrol returns the states of workers and tasks. A janitor calls it for open manifests and returned tickets.
type Patrol interface {
	// WorkerStates returns the status of each given worker that exists.
	WorkerStates(ctx context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]WorkerStatus, error)
	// Positions returns the position of each ticket's task.
	Positions(ctx context.Context, tickets []message.Ticket) ([]Position, error)
	// TasksByID returns the given tasks that exist, without payload, in any order.
	TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
}

// WorkerStatus is the state of a worker.
type WorkerStatus struct {
	State   WorkerState
	Settled int64 // every page up to this one is settled
}

// Position is the state of the task of a ticket.
type Position struct {
	Found       bool
	State       holdfast.State
	Attempt     int
	Worker      holdfast.WorkerID
	WorkerState WorkerState // "" if no worker runs the task
	Ticketed    bool        // the task is ready and its ticket was published, so DispatchDue does not publish one
}
