package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Absent implements store.Presence.
func (s *Store) Absent(ctx context.Context) ([]store.Absence, error) {
	var rows []struct {
		ID        holdfast.RunID
		RenewedAt time.Time `db:"renewed_at"`
	}
	err := s.do(ctx, "look for absent runs", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "absent")
	})
	if err != nil {
		return nil, err
	}
	absences := make([]store.Absence, len(rows))
	for i, row := range rows {
		absences[i] = store.Absence{Run: row.ID, RenewedAt: row.RenewedAt.UTC()}
	}
	return absences, nil
}
