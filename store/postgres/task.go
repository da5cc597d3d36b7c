package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast"
)

// Task implements store.Desk.
func (s *Store) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	var row fullRow
	err := s.do(ctx, "read task", func() error {
		var err error
		row, err = one[fullRow](ctx, s, s.db, "task", int64(id))
		return notFound(err, id)
	})
	if err != nil {
		return holdfast.Task{}, err
	}
	return row.task(), nil
}

// notFound explains the error of a statement that returned no row.
func notFound(err error, id holdfast.TaskID) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: there is no task %s", holdfast.ErrNotFound, id)
	}
	return err
}
