package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

type positionRow struct {
	Found    bool
	State    holdfast.State
	Attempt  int
	Run      holdfast.RunID
	RunState store.RunState `db:"run_state"`
	Ticketed bool
}

// Positions implements store.Fencing.
func (s *Store) Positions(ctx context.Context, tickets []holdfast.Ticket) ([]store.Position, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	ids := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		ids[i] = ticket.Task
	}
	rows, err := list[positionRow](ctx, s, "read positions", "positions", numbers(ids))
	if err != nil {
		return nil, err
	}
	positions := make([]store.Position, len(rows))
	for i, row := range rows {
		positions[i] = store.Position(row)
	}
	return positions, nil
}
