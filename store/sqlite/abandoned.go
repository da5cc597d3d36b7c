package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Abandoned implements store.Fencing.
func (s *Store) Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error) {
	const operation = "find abandoned tasks"
	if limit <= 0 {
		return nil, nil
	}
	// First the runs: what is over before the look at the tasks takes nothing any more.
	over, err := list[idRow](ctx, s, operation, "abandoned_runs", int64(run))
	if err != nil {
		return nil, err
	}
	rows, err := list[taskRow](ctx, s, operation, "abandoned", int64(run), limit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 && len(over) > 0 {
		err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			_, err := tx.exec(ctx, "abandoned_swept", numbers(idsOf(over)))
			return err
		})
	}
	return tasksOf(rows), err
}
