package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// TasksByID implements store.Fencing.
func (s *Store) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []taskRow
	err := s.do(ctx, "read tasks", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "tasks_by_id", numbers(ids))
	})
	return tasksOf(rows), err
}
