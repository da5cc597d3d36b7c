package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	longestWait = time.Hour
	// shortWait is for tasks that are due and in somebody's hands: ours, and not published, or
	// another caller's who may still fail.
	shortWait = time.Second
)

// dispatcher is the role store.Dispatch.
type dispatcher struct{ *database }

// DispatchDue implements store.Dispatch. The rows stay locked while publish runs. When nothing is due, as mostly in an idle
// system, it takes one question, and no transaction.
func (s *dispatcher) DispatchDue(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	var result store.Dispatched
	err := s.do(ctx, "dispatch due tasks", func() error {
		next, due, err := s.nextAfter(ctx, s.db, lanes, nil)
		if err != nil || !due {
			result = store.Dispatched{Next: next}
			return err
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			result = store.Dispatched{}
			if _, err := s.exec(ctx, tx, "dispatch_settings"); err != nil {
				return err
			}
			var rows []dueRow
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

type dueRow struct {
	ID      holdfast.TaskID
	Attempt int
	Lane    string
	Again   bool
	Late    int64
}

// publishDue publishes the rows, marks those that were, and lets the others wait.
func (s *dispatcher) publishDue(ctx context.Context, tx *sqlx.Tx, rows []dueRow, publish func(context.Context, []store.Due) []bool) (marked int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	due := make([]store.Due, len(rows))
	for i, row := range rows {
		due[i] = store.Due{Ticket: message.Ticket{Task: row.ID, Attempt: row.Attempt}, Lane: row.Lane, Again: row.Again, Late: time.Duration(row.Late) * time.Microsecond}
	}
	outcomes := publish(ctx, due)
	if len(outcomes) != len(due) {
		return 0, fmt.Errorf("publish answered for %d of %d tasks", len(outcomes), len(due))
	}
	published, refused := make([]holdfast.TaskID, 0, len(rows)), []holdfast.TaskID(nil)
	for i, ok := range outcomes {
		if ok {
			published = append(published, rows[i].ID)
		} else {
			refused = append(refused, rows[i].ID)
		}
	}
	if len(refused) > 0 {
		if _, err := s.exec(ctx, tx, "dispatch_due_postpone", numbers(refused)); err != nil {
			return 0, err
		}
	}
	if len(published) == 0 {
		return 0, nil
	}
	row, err := one[struct{ N int }](ctx, s, tx, "dispatch_due_mark", numbers(published), blockSize)
	return row.N, err
}

// nextDue says when to come again.
func (s *dispatcher) nextDue(ctx context.Context, tx *sqlx.Tx, lanes store.Lanes, given []dueRow, marked, limit int) (time.Duration, error) {
	if marked > 0 && len(given) == limit { // those that were refused are out of the way
		return 0, nil
	}
	if marked < len(given) {
		return shortWait, nil
	}
	ids := make([]holdfast.TaskID, len(given))
	for i, row := range given {
		ids[i] = row.ID
	}
	next, _, err := s.nextAfter(ctx, tx, lanes, ids)
	return next, err
}

// except lists the lanes that are not chosen. It is never null.
func except(lanes store.Lanes) pq.StringArray { return append(pq.StringArray{}, lanes.Except...) }

// nextAfter returns how long it is until the first task of the lanes becomes due, and whether one is due already. It
// leaves out the tasks given.
func (s *dispatcher) nextAfter(ctx context.Context, q store.Tx, lanes store.Lanes, given []holdfast.TaskID) (next time.Duration, due bool, err error) {
	row, err := one[struct {
		Due  bool
		Wait int64
	}](ctx, s, q, "dispatch_due_next", numbers(given), lanes.Only, except(lanes))
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
func (s *dispatcher) settleReceipts(ctx context.Context, tx *sqlx.Tx, rows []ripeRow, outcomes []bool) (deleted int, err error) {
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
