package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// Lanes implements store.Desk.
func (s *Store) Lanes(ctx context.Context) ([]store.Lane, error) {
	rows, err := list[struct {
		Name                string
		Ready, Due, Running int64
		Oldest              int64
		DrainedThrough      int64 `db:"drained_through"`
	}](ctx, s, "describe lanes", "lanes", s.now().UnixMicro())
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
