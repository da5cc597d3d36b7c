package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// TasksByID implements store.Fencing.
func (s *Store) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := list[taskRow](ctx, s, "read tasks", "tasks_by_id", numbers(ids))
	if err != nil {
		return nil, err
	}
	return tasksOf(rows), nil
}
