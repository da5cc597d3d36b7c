package postgres

import (
	"context"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// OpenRun implements store.Leases.
func (s *Store) OpenRun(ctx context.Context, info store.RunInfo, lease time.Duration) (holdfast.RunID, error) {
	var run holdfast.RunID
	err := s.do(ctx, "open run", func() error {
		if _, err := s.exec(ctx, s.db, "insert_lanes", append(pq.StringArray{}, info.Lanes...)); err != nil {
			return err
		}
		row, err := one[struct{ ID holdfast.RunID }](ctx, s, s.db, "open_run",
			clean(info.Name), clean(info.Host), info.PID, clean(info.Version), info.Concurrency, append(pq.StringArray{}, info.Lanes...), micros(lease),
			clean(info.Process.Boot), clean(info.Process.Namespace), info.Process.Started)
		run = row.ID
		return err
	})
	return run, err
}
