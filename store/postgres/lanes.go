package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// Lanes implements store.Desk.
func (s *Store) Lanes(ctx context.Context) ([]store.Lane, error) {
	var rows []struct {
		Name                string
		Ready, Due, Running int64
		Oldest              int64
		DrainedThrough      sql.NullTime `db:"drained_through"`
	}
	err := s.do(ctx, "describe lanes", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "lanes")
	})
	if err != nil {
		return nil, err
	}
	lanes := make([]store.Lane, len(rows))
	for i, row := range rows {
		lanes[i] = store.Lane{
			Name: row.Name, Ready: row.Ready, Due: row.Due, Running: row.Running,
			OldestDue: time.Duration(row.Oldest) * time.Microsecond, DrainedAt: moment(row.DrainedThrough),
		}
	}
	return lanes, nil
}
