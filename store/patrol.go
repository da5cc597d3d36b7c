package store

import (
	"context"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
)

// Patrol says where runs and tasks stand. A janitor asks it about open manifests and returned tickets.
type Patrol interface {
	// RunStates answers for the runs that exist.
	RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]RunStatus, error)
	// Positions says where the tasks of the tickets stand.
	Positions(ctx context.Context, tickets []message.Ticket) ([]Position, error)
	// TasksByID returns the tasks without payload, those that exist, in any order.
	TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
}

// RunStatus is what the patrol needs of a run.
type RunStatus struct {
	State   RunState
	Settled int64
}

// Position is where a task stands with respect to a ticket.
type Position struct {
	Found    bool
	State    holdfast.State
	Attempt  int
	Run      holdfast.RunID
	RunState RunState // "" if there is no run
	Ticketed bool     // if ready: a ticket was published, so nothing else will publish one
}
