package postgres

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast"
)

// Held implements store.Work. It reads every task of the range.
func (s *Store) Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	var rows []taskRow
	err := s.do(ctx, "find held tasks", func() error {
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			rows = nil
			if _, err := s.exec(ctx, tx, "steps_settings"); err != nil {
				return err
			}
			return s.all(ctx, tx, &rows, "held", int64(after), int64(through), int64(run))
		})
	})
	if err != nil {
		return nil, err
	}
	return tasksOf(rows), nil
}
