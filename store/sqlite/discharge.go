package sqlite

import "context"

// Discharge implements store.Inserter.
func (s *Store) Discharge(ctx context.Context, receipts []int64) error {
	if len(receipts) == 0 {
		return nil
	}
	return s.write(ctx, "discharge receipts", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "discharge", numbers(receipts))
		return err
	})
}
