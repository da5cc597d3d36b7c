package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

const (
	longestWait = time.Hour
	// shortWait is for tasks that are due and in somebody's hands: ours, and not published, or
	// another caller's who may still fail.
	shortWait = time.Second
	// publishLimit is longer than publishing may take. A process that is frozen meanwhile lets its rows go after it.
	publishLimit = 11 * time.Second
)

// dispatcher is the role store.Dispatch.
type dispatcher struct{ *database }

// DispatchDue implements store.Dispatch. The rows stay locked while publish runs. When nothing is due, as mostly in an idle
// system, it takes one question, and no transaction.
func (s *dispatcher) DispatchDue(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	var result store.Dispatched
	err := s.do(ctx, "dispatch due tasks", func() error {
		next, due, err := s.nextAfter(ctx, s.db, lanes, ids(nil))
		if err != nil || !due {
			result = store.Dispatched{Next: next}
			return err
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			result = store.Dispatched{}
			if err := s.set(ctx, tx, settings{"idle_in_transaction_session_timeout": milliseconds(publishLimit)}); err != nil {
				return err
			}
			var rows []*scan.Due
			if err := s.all(ctx, tx, &rows, "dispatch_due", limit, lanes.Only, except(lanes)); err != nil {
				return err
			}
			marked, err := s.publishDue(ctx, tx, rows, publish)
			if err != nil {
				return err
			}
			result.Given, result.Marked = len(rows), marked
			result.Next, err = s.nextDue(ctx, tx, lanes, rows, marked, limit)
			return err
		})
	})
	if err != nil {
		return store.Dispatched{}, err
	}
	return result, nil
}

// publishDue publishes the rows, marks those that were, and lets the others wait.
func (s *dispatcher) publishDue(ctx context.Context, tx *sqlx.Tx, rows []*scan.Due, publish func(context.Context, []store.Due) []bool) (marked int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	published, refused, err := scan.Publish(ctx, rows, (*scan.Due).Value, publish)
	if err != nil {
		return 0, err
	}
	if len(refused) > 0 {
		if _, err := s.exec(ctx, tx, "dispatch_due_postpone", ids(refused)); err != nil {
			return 0, err
		}
	}
	if len(published) == 0 {
		return 0, nil
	}
	row, err := one[struct{ N int }](ctx, s, tx, "dispatch_due_mark", ids(published), blockSize)
	return row.N, err
}

// nextDue says when to come again.
func (s *dispatcher) nextDue(ctx context.Context, tx *sqlx.Tx, lanes store.Lanes, given []*scan.Due, marked, limit int) (time.Duration, error) {
	if marked > 0 && len(given) == limit { // those that were refused are out of the way
		return 0, nil
	}
	if marked < len(given) {
		return shortWait, nil
	}
	next, _, err := s.nextAfter(ctx, tx, lanes, ids(given))
	return next, err
}

// ids lists the tasks.
func ids(rows []*scan.Due) pq.Int64Array {
	list := make(pq.Int64Array, len(rows))
	for i, row := range rows {
		list[i] = int64(row.ID)
	}
	return list
}

// except lists the lanes that are not chosen. It is never null.
func except(lanes store.Lanes) pq.StringArray { return append(pq.StringArray{}, lanes.Except...) }

// nextAfter returns how long it is until the first task of the lanes becomes due, and whether one is due already. It
// leaves out the tasks given.
func (s *dispatcher) nextAfter(ctx context.Context, q store.Tx, lanes store.Lanes, given pq.Int64Array) (next time.Duration, due bool, err error) {
	row, err := one[struct {
		Due  bool
		Wait int64
	}](ctx, s, q, "dispatch_due_next", given, lanes.Only, except(lanes))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return longestWait, false, nil
	case err != nil:
		return 0, false, err
	case row.Due:
		return shortWait, true, nil
	}
	wait := min(row.Wait, longestWait.Microseconds())
	return max(0, time.Duration(wait)*time.Microsecond), false, nil
}

// DispatchReceipts implements store.Dispatch. The receipts stay locked while publish runs. When none is ripe, as nearly always,
// it takes one question, and no transaction.
func (s *dispatcher) DispatchReceipts(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Receipt) []bool) (int, error) {
	deleted := 0
	err := s.do(ctx, "dispatch receipts", func() error {
		deleted = 0
		look, err := one[struct{ Ripe bool }](ctx, s, s.db, "dispatch_receipts_ripe", lanes.Only, except(lanes))
		if err != nil || !look.Ripe {
			return err
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			if err := s.set(ctx, tx, settings{"idle_in_transaction_session_timeout": milliseconds(publishLimit)}); err != nil {
				return err
			}
			var rows []ripeRow
			if err := s.all(ctx, tx, &rows, "dispatch_receipts", limit, lanes.Only, except(lanes)); err != nil || len(rows) == 0 {
				return err
			}
			published, refused, err := scan.Publish(ctx, rows, func(r ripeRow) store.Receipt { return scan.Receipt(r.ID, r.Lane, r.Tasks) }, publish)
			if err != nil {
				return err
			}
			deleted, err = s.settleReceipts(ctx, tx, published, refused)
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
func (s *dispatcher) settleReceipts(ctx context.Context, tx *sqlx.Tx, published, refused []ripeRow) (deleted int, err error) {
	gone, later, late := pq.Int64Array{}, pq.Int64Array{}, pq.Int64Array{}
	for _, row := range published {
		gone = append(gone, row.ID)
		if row.Late {
			late = append(late, row.Tasks...)
		}
	}
	for _, row := range refused {
		later = append(later, row.ID)
	}
	return s.exec(ctx, tx, "dispatch_receipts_settle", gone, later, late)
}

// LaneNames implements store.Dispatch.
func (s *dispatcher) LaneNames(ctx context.Context) ([]string, error) {
	var rows []struct{ Name string }
	err := s.do(ctx, "list lanes", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "lane_names")
	})
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Name
	}
	return names, err
}
