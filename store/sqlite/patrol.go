package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// patroller is the role store.Patrol.
type patroller struct{ *database }

// RunStates implements store.Patrol.
func (s *patroller) RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]store.RunStatus, error) {
	rows, err := list[scan.RunState](ctx, s, "read runs", "run_states", numbers(runs))
	if err != nil {
		return nil, err
	}
	return scan.RunStates(rows), nil
}

// Positions implements store.Patrol.
func (s *patroller) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	ids := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		ids[i] = ticket.Task
	}
	rows, err := list[scan.Position](ctx, s, "read positions", "positions", numbers(ids))
	if err != nil {
		return nil, err
	}
	return scan.Positions(rows), nil
}

// TasksByID implements store.Patrol.
func (s *patroller) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := list[scan.Task](ctx, s, "read tasks", "tasks_by_id", numbers(ids))
	if err != nil {
		return nil, err
	}
	return scan.Tasks(rows), nil
}
