package postgres

import (
	"context"
	"fmt"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store"
)

// DispatchReceipts implements store.Dispatch. The receipts stay locked while publish runs. When none is ripe, as nearly always,
// it takes one question, and no transaction.
func (s *Store) DispatchReceipts(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Receipt) []bool) (int, error) {
	deleted := 0
	err := s.do(ctx, "dispatch receipts", func() error {
		deleted = 0
		look, err := one[struct{ Ripe bool }](ctx, s, s.db, "dispatch_receipts_ripe", lanes.Only, except(lanes))
		if err != nil || !look.Ripe {
			return err
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			if _, err := s.exec(ctx, tx, "dispatch_settings"); err != nil {
				return err
			}
			var rows []ripeRow
			if err := s.all(ctx, tx, &rows, "dispatch_receipts", limit, lanes.Only, except(lanes)); err != nil || len(rows) == 0 {
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
			var err error
			deleted, err = s.settleReceipts(ctx, tx, rows, outcomes)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

type ripeRow struct {
	insertedRow
	Late bool // much later than the rows of its tasks say
}

// settleReceipts deletes the receipts that were published and lets the others wait.
func (s *Store) settleReceipts(ctx context.Context, tx *sqlx.Tx, rows []ripeRow, outcomes []bool) (deleted int, err error) {
	var published, refused, late pq.Int64Array
	for i, row := range rows {
		switch {
		case !outcomes[i]:
			refused = append(refused, row.ID)
			continue
		case row.Late:
			late = append(late, row.Tasks...)
		}
		published = append(published, row.ID)
	}
	if len(late) > 0 {
		if _, err := s.exec(ctx, tx, "dispatch_receipts_late", late); err != nil {
			return 0, err
		}
	}
	if len(refused) > 0 {
		if _, err := s.exec(ctx, tx, "dispatch_receipts_postpone", refused); err != nil {
			return 0, err
		}
	}
	if len(published) == 0 {
		return 0, nil
	}
	return s.exec(ctx, tx, "dispatch_receipts_delete", published)
}
