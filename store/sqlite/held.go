package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Held implements store.Work.
func (s *Store) Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	rows, err := list[taskRow](ctx, s, "find held tasks", "held", int64(run), int64(after), int64(through))
	if err != nil {
		return nil, err
	}
	return tasksOf(rows), nil
}
