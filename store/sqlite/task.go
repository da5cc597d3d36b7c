package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Task implements store.Desk.
func (s *Store) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	var row fullRow
	err := s.read(ctx, "read task", func(ctx context.Context, c *session) error {
		var err error
		row, err = one[fullRow](ctx, c, "task", int64(id))
		return notFound(err, id)
	})
	if err != nil {
		return holdfast.Task{}, err
	}
	return row.task(), nil
}
