package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// FenceAbsent implements store.Presence.
func (s *Store) FenceAbsent(ctx context.Context, a store.Absence, asked time.Time, settle time.Duration) (bool, error) {
	var rows []idRow
	err := s.do(ctx, "fence an absent run", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "fence_absent", int64(a.Run), a.RenewedAt, micros(settle), asked)
	})
	return len(rows) > 0, err
}
