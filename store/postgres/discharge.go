package postgres

import (
	"context"
)

// Discharge implements store.Inserter.
func (s *Store) Discharge(ctx context.Context, receipts []int64) error {
	if len(receipts) == 0 {
		return nil
	}
	return s.do(ctx, "discharge receipts", func() error {
		_, err := s.exec(ctx, s.db, "discharge", numbers(receipts))
		return err
	})
}
