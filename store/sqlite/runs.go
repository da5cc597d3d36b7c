package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

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
	Lanes          string
	State          store.RunState
	Draining       bool
	StartedAt      int64 `db:"started_at"`
	RenewedAt      int64 `db:"renewed_at"`
	LeaseUntil     int64 `db:"lease_until"`
	EndedAt        int64 `db:"ended_at"`
	Taken, Settled int64
	Running        int
}

// Runs implements store.Leases.
func (s *Store) Runs(ctx context.Context, all bool) ([]store.Run, error) {
	const operation = "list runs"
	rows, err := list[runRow](ctx, s, operation, "runs", all)
	if err != nil {
		return nil, err
	}
	runs := make([]store.Run, len(rows))
	for i, r := range rows {
		runs[i] = store.Run{
			ID:      r.ID,
			RunInfo: store.RunInfo{Name: r.Name, Host: r.Host, PID: r.PID, Version: r.Version, Concurrency: r.Concurrency},
			State:   r.State, Draining: r.Draining,
			StartedAt: moment(r.StartedAt), RenewedAt: moment(r.RenewedAt), LeaseUntil: moment(r.LeaseUntil), EndedAt: moment(r.EndedAt),
			Taken: r.Taken, Settled: r.Settled, Running: r.Running,
		}
		if err := json.Unmarshal([]byte(r.Lanes), &runs[i].Lanes); err != nil {
			return nil, fmt.Errorf("%s: the lanes of run %s: %w", operation, r.ID, err)
		}
	}
	return runs, nil
}
