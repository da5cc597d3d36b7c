package postgres

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store"
)

// DispatchReceipts implements store.Dispatch. The receipts stay locked while publish runs.
func (s *Store) DispatchReceipts(ctx context.Context, limit int, publish func(context.Context, []store.Receipt) []bool) (int, error) {
	deleted := 0
	err := s.do(ctx, "dispatch receipts", func() error {
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			deleted = 0
			var rows []struct {
				insertedRow
				Late bool // much later than the rows of its tasks say
			}
			if err := s.all(ctx, tx, &rows, "dispatch_receipts", limit); err != nil || len(rows) == 0 {
				return err
			}
			receipts := make([]store.Receipt, len(rows))
			for i, row := range rows {
				receipts[i] = row.receipt()
			}
			outcomes := publish(ctx, receipts)
			if len(outcomes) != len(receipts) {
				return fmt.Errorf("publish answered for %d of %d receipts", len(outcomes), len(receipts))
			}
			var published, late pq.Int64Array
			for i, ok := range outcomes {
				if !ok {
					continue
				}
				published = append(published, rows[i].ID)
				if rows[i].Late {
					late = append(late, rows[i].Tasks...)
				}
			}
			if len(late) > 0 {
				if _, err := s.exec(ctx, tx, "dispatch_receipts_late", late); err != nil {
					return err
				}
			}
			if len(published) == 0 {
				return nil
			}
			var err error
			deleted, err = s.exec(ctx, tx, "dispatch_receipts_delete", published)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
