package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Neighbors implements store.Presence.
func (s *Store) Neighbors(ctx context.Context, boot, namespace string) ([]store.Neighbor, error) {
	var rows []struct {
		ID        holdfast.RunID
		RenewedAt time.Time `db:"renewed_at"`
		PID       int
		Started   int64
	}
	err := s.do(ctx, "look for runs of this machine", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "neighbors", boot, namespace)
	})
	if err != nil {
		return nil, err
	}
	neighbors := make([]store.Neighbor, len(rows))
	for i, row := range rows {
		neighbors[i] = store.Neighbor{Run: row.ID, RenewedAt: row.RenewedAt.UTC(), PID: row.PID, Started: row.Started}
	}
	return neighbors, nil
}
