package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfastq/holdfast/store"
)

// DispatchReceipts implements store.Dispatch. As in DispatchDue, the receipts are reserved in memory while
// publish runs.
func (s *Store) DispatchReceipts(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Receipt) []bool) (int, error) {
	const operation = "dispatch receipts"
	if limit <= 0 {
		return 0, nil
	}
	now := s.now()
	rows, err := reserve(&s.receipts, limit, func(taken int) ([]ripeRow, error) {
		return list[ripeRow](ctx, s, operation, "dispatch_receipts", now.UnixMicro(), limit+taken, lanes.Only, words(lanes.Except))
	}, ripeRow.key)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	defer release(&s.receipts, rows, ripeRow.key)
	tasks, receipts := make([][]int64, len(rows)), make([]store.Receipt, len(rows))
	for i, row := range rows {
		if err := json.Unmarshal([]byte(row.Tasks), &tasks[i]); err != nil {
			return 0, fmt.Errorf("%s: the tasks of receipt %d: %w", operation, row.ID, err)
		}
		receipts[i] = receiptOf(row.ID, row.Lane, tasks[i])
	}
	outcomes := publish(ctx, receipts)
	if len(outcomes) != len(receipts) {
		return 0, fmt.Errorf("%s: publish answered for %d of %d receipts", operation, len(outcomes), len(receipts))
	}
	return s.settleReceipts(ctx, operation, rows, tasks, outcomes)
}

type ripeRow struct {
	ID    int64
	Lane  string
	Tasks string
	Late  bool // much later than the rows of its tasks say
}

func (r ripeRow) key() int64 { return r.ID }

// settleReceipts deletes the receipts that were published and lets the others wait.
func (s *Store) settleReceipts(ctx context.Context, operation string, rows []ripeRow, tasks [][]int64, outcomes []bool) (deleted int, err error) {
	var published, refused, late []int64
	for i, row := range rows {
		if !outcomes[i] {
			refused = append(refused, row.ID)
			continue
		}
		published = append(published, row.ID)
		if row.Late {
			late = append(late, tasks[i]...)
		}
	}
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		for name, ids := range map[string][]int64{"dispatch_receipts_late": late, "dispatch_receipts_postpone": refused} {
			if len(ids) == 0 {
				continue
			}
			if _, err := tx.exec(ctx, name, numbers(ids), tx.now); err != nil {
				return err
			}
		}
		if len(published) == 0 {
			return nil
		}
		_, err := tx.exec(ctx, "dispatch_receipts_delete", numbers(published))
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(published), nil
}
