package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// RunStates implements store.Fencing.
func (s *Store) RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]store.RunStatus, error) {
	rows, err := list[struct {
		ID      holdfast.RunID
		State   store.RunState
		Settled int64
	}](ctx, s, "read runs", "run_states", numbers(runs))
	if err != nil {
		return nil, err
	}
	states := make(map[holdfast.RunID]store.RunStatus, len(rows))
	for _, row := range rows {
		states[row.ID] = store.RunStatus{State: row.State, Settled: row.Settled}
	}
	return states, nil
}
