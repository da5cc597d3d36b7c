package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

const (
	longestWait = time.Hour
	// shortWait is the wait if a due task remains: this call could not publish it, or another caller has locked it and
	// may fail.
	shortWait = time.Second
	// publishLimit is longer than publishing may take. After it, the server unlocks the rows of a frozen process.
	publishLimit = 11 * time.Second
)

// dispatcher is the role store.Dispatch.
type dispatcher struct{ *database }

// DispatchDue implements store.Dispatch. The rows stay locked while publish runs. If no task is due, DispatchDue
// executes one query and no transaction.
func (s *dispatcher) DispatchDue(ctx context.Context, queues store.Queues, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	var result store.Dispatched
	err := s.do(ctx, "dispatch due tasks", func() error {
		next, due, err := s.nextAfter(ctx, s.db, queues, ids(nil))
		if err != nil || !due {
			result = store.Dispatched{Next: next}
			return err
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			result = store.Dispatched{}
			if err := pgclient.SetTimeout(ctx, tx, "idle_in_transaction_session_timeout", publishLimit); err != nil {
				return err
			}
			var rows []scan.Due
			if err := s.all(ctx, tx, &rows, "dispatch_due", limit, queues.Only, except(queues)); err != nil {
				return err
			}
			due, waiting := scan.SplitBySlots(rows, func(row *scan.Due) *scan.Due { return row })
			if len(waiting) > 0 {
				if _, err := s.exec(ctx, tx, "topic_queue", ids(waiting)); err != nil {
					return err
				}
			}
			marked, err := s.publishDue(ctx, tx, due, publish)
			if err != nil {
				return err
			}
			result.Given, result.Marked, result.Queued = len(due), marked, len(waiting)
			result.Next, err = s.nextDue(ctx, tx, queues, rows, marked+len(waiting), limit)
			return err
		})
	})
	if err != nil {
		return store.Dispatched{}, err
	}
	return result, nil
}

// publishDue publishes the tasks of the rows. It marks the published tasks as ticketed and postpones the others.
func (s *dispatcher) publishDue(ctx context.Context, tx *sqlx.Tx, rows []scan.Due, publish func(context.Context, []store.Due) []bool) (marked int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	published, refused, err := scan.Publish(ctx, rows, scan.Due.Value, publish)
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

// nextDue returns how long the caller should wait before its next call. settled is the number of given tasks that need
// no other ticket.
func (s *dispatcher) nextDue(ctx context.Context, tx *sqlx.Tx, queues store.Queues, given []scan.Due, settled, limit int) (time.Duration, error) {
	if settled > 0 && len(given) == limit { // refused tasks are postponed, so they do not return at once
		return 0, nil
	}
	if settled < len(given) {
		return shortWait, nil
	}
	next, _, err := s.nextAfter(ctx, tx, queues, ids(given))
	return next, err
}

func ids(rows []scan.Due) pq.Int64Array {
	return numbers(scan.Map(rows, func(row scan.Due) holdfast.TaskID { return row.ID }))
}

// except returns the excluded queues. The result is never nil, because nil would become null.
func except(queues store.Queues) pq.StringArray { return append(pq.StringArray{}, queues.Except...) }

// nextAfter returns how long it is until the first task of the queues becomes due, and whether a task is due already.
// It ignores the given tasks.
func (s *dispatcher) nextAfter(ctx context.Context, q store.Tx, queues store.Queues, given pq.Int64Array) (next time.Duration, due bool, err error) {
	row, err := one[struct {
		Due  bool
		Wait int64
	}](ctx, s, q, "dispatch_due_next", given, queues.Only, except(queues))
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

// DispatchOutbox implements store.Dispatch. The outbox entries stay locked while publish runs. If no entry is due,
// which is the usual case, DispatchOutbox executes one query and no transaction.
func (s *dispatcher) DispatchOutbox(ctx context.Context, queues store.Queues, limit int, publish func(context.Context, []store.OutboxEntry) []bool) (int, error) {
	deleted := 0
	err := s.do(ctx, "dispatch outbox entries", func() error {
		deleted = 0
		found, err := one[struct{ Ripe bool }](ctx, s, s.db, "dispatch_outbox_ripe", queues.Only, except(queues))
		if err != nil || !found.Ripe {
			return err
		}
		return s.tx(ctx, func(tx *sqlx.Tx) error {
			if err := pgclient.SetTimeout(ctx, tx, "idle_in_transaction_session_timeout", publishLimit); err != nil {
				return err
			}
			var rows []dueEntryRow
			if err := s.all(ctx, tx, &rows, "dispatch_outbox", limit, queues.Only, except(queues)); err != nil || len(rows) == 0 {
				return err
			}
			published, refused, err := scan.Publish(ctx, rows, dueEntryRow.entry, publish)
			if err != nil {
				return err
			}
			deleted, err = s.settleEntries(ctx, tx, published, refused)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

type dueEntryRow struct {
	insertedRow
	Late bool // the tickets are published much later than ticketed_at of the tasks
}

// settleEntries deletes the published outbox entries and postpones the others.
func (s *dispatcher) settleEntries(ctx context.Context, tx *sqlx.Tx, published, refused []dueEntryRow) (deleted int, err error) {
	done, later, late := pq.Int64Array{}, pq.Int64Array{}, pq.Int64Array{}
	for _, row := range published {
		done = append(done, row.ID)
		if row.Late {
			late = append(late, row.Tasks...)
		}
	}
	for _, row := range refused {
		later = append(later, row.ID)
	}
	return s.exec(ctx, tx, "dispatch_outbox_settle", done, later, late)
}
