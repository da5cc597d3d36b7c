package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

type runRow struct {
	ID             holdfast.RunID
	Name           string
	Host           string
	PID            int
	Version        string
	Concurrency    int
	Lanes          pq.StringArray
	State          store.RunState
	Draining       bool
	StartedAt      time.Time    `db:"started_at"`
	RenewedAt      time.Time    `db:"renewed_at"`
	LeaseUntil     time.Time    `db:"lease_until"`
	EndedAt        sql.NullTime `db:"ended_at"`
	Taken, Settled int64
	Running        int
}

// Runs implements store.Leases.
func (s *Store) Runs(ctx context.Context, all bool) ([]store.Run, error) {
	var rows []runRow
	err := s.do(ctx, "list runs", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "runs", all)
	})
	if err != nil {
		return nil, err
	}
	runs := make([]store.Run, len(rows))
	for i, r := range rows {
		runs[i] = store.Run{
			ID: r.ID,
			RunInfo: store.RunInfo{
				Name: r.Name, Host: r.Host, PID: r.PID, Version: r.Version, Concurrency: r.Concurrency, Lanes: r.Lanes,
			},
			State: r.State, Draining: r.Draining,
			StartedAt: r.StartedAt.UTC(), RenewedAt: r.RenewedAt.UTC(), LeaseUntil: r.LeaseUntil.UTC(), EndedAt: moment(r.EndedAt),
			Taken: r.Taken, Settled: r.Settled, Running: r.Running,
		}
	}
	return runs, nil
}
