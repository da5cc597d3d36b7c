package postgres

import (
	"context"
	"database/sql"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/roles"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// database is the part that all roles share: connections, statements, retries, errors, and range scans. Each role
// embeds it.
type database struct {
	db *sqlx.DB
	// leases is a separate pool for renewals, fencing and health checks. Busy connections of db must not let a lease
	// expire or make the store seem unreachable.
	leases *sqlx.DB
	// migrations has no time limits.
	migrations *sqlx.DB
	schema     string
	sessions   bool // the store has sessions of its own
	statements map[string]string
	queues     sync.Map                  // the names of queues that this process has stored
	gateState  atomic.Pointer[gateState] // nil: unknown
	ended      roles.Ended
	log        logrus.FieldLogger
}

// role is a type that embeds the database.
type role interface{ inner() *database }

func (d *database) inner() *database { return d }

// text returns the statement of sql/<name>.sql.
func (d *database) text(name string) string { return statement.Text(d.statements, name) }

// all reads every row of a statement into dest, a pointer to a slice of structs. q is a pool or a transaction.
func (d *database) all(ctx context.Context, q store.Tx, dest any, name string, args ...any) error {
	rows, err := q.QueryContext(ctx, d.text(name), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return sqlx.StructScan(rows, dest)
}

// list runs a statement that only reads, and returns its rows.
func list[Row any](ctx context.Context, r role, operation, name string, args ...any) (rows []Row, err error) {
	d := r.inner()
	err = d.do(ctx, operation, func() error {
		rows = nil
		return d.all(ctx, d.db, &rows, name, args...)
	})
	return rows, err
}

// one returns the first row of a statement, or sql.ErrNoRows if there is none.
func one[Row any](ctx context.Context, r role, q store.Tx, name string, args ...any) (Row, error) {
	var rows []Row
	err := r.inner().all(ctx, q, &rows, name, args...)
	if err == nil && len(rows) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		var none Row
		return none, err
	}
	return rows[0], nil
}

// exec runs a statement and returns the number of rows that it changed.
func (d *database) exec(ctx context.Context, q store.Tx, name string, args ...any) (int, error) {
	result, err := q.ExecContext(ctx, d.text(name), args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// tx runs f in a transaction. It rolls the transaction back if f returns an error or panics.
func (d *database) tx(ctx context.Context, f func(*sqlx.Tx) error) error {
	tx, err := d.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// tries is how often do calls an operation that fails with a conflict each time.
const tries = 6

// The first and the longest pause between tries.
const (
	firstPause = 10 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// do calls f and translates its error. If f fails with a deadlock or a serialization failure, do calls it again. f must
// reset the variables that it writes, because an earlier call may have failed halfway.
func (d *database) do(ctx context.Context, operation string, f func() error) error {
	pause := backoff.New(firstPause, longPause)
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || attempt == tries || !passing(err) || pause.Wait(ctx) != nil {
			return translate(ctx, operation, err)
		}
		d.log.WithError(err).WithField("operation", operation).Debug("conflict with another transaction, trying again")
	}
}

// set sets settings of a transaction.
func (d *database) set(ctx context.Context, tx store.Tx, s settings) error {
	names, values := s.columns()
	_, err := d.exec(ctx, tx, "set", names, values, true)
	return err
}

// micros returns a duration in whole microseconds, as the statements take it.
func micros(d time.Duration) int64 { return column.Micros(d) }

// rangeSize is how many ids one statement of a range scan reads. The limit counts the rows that are read, not those
// that match: among tens of millions of tasks none may match, and the statement would exceed its time limit.
const rangeSize = 50_000

// rangeScan is a scan of all tasks in the order of their ids, in steps. Each step is a short transaction.
type rangeScan struct {
	through int64 // the last id to read; 0 means the largest id when the scan begins
	size    int   // the maximum number of rows that a step changes; it keeps locks short
	limit   int   // the scan ends when it has changed this many rows; 0 means no limit
}

// idRange is the input of one step: the ids above after, up to through.
type idRange struct {
	after, through int64
	size           int // the maximum number of matching rows
	changed        int // the number of rows that earlier steps have changed
}

// step is the result of one step.
type step struct {
	Changed int
	Last    int64 // the largest id that the step changed
}

// inSteps calls f for each range of ids in turn, and returns the number of changed rows. If a step fails, it is rolled
// back, and the steps before it remain committed.
func (d *database) inSteps(ctx context.Context, operation string, scan rangeScan, f func(store.Tx, idRange) (step, error)) (int, error) {
	if scan.limit == 0 {
		scan.limit = math.MaxInt
	}
	total, after := 0, int64(0)
	for total < scan.limit {
		var result step
		var scanned idRange
		err := d.do(ctx, operation, func() error {
			return d.tx(ctx, func(tx *sqlx.Tx) error {
				var err error
				scanned, err = d.nextRange(ctx, tx, &scan, after)
				if err != nil || scanned.through == 0 {
					return err
				}
				scanned.size, scanned.changed = min(scan.size, scan.limit-total), total
				result, err = f(tx, scanned)
				return err
			})
		})
		if err != nil || scanned.through == 0 {
			return total, err
		}
		total += result.Changed
		after = scanned.through
		if result.Changed == scanned.size { // there may be more in this range
			after = result.Last
		}
	}
	return total, nil
}

// nextRange returns the next ids to read, or the zero value at the end of the scan. It skips a gap of any width at no
// cost.
func (d *database) nextRange(ctx context.Context, tx *sqlx.Tx, scan *rangeScan, after int64) (idRange, error) {
	if _, err := d.exec(ctx, tx, "steps_settings"); err != nil {
		return idRange{}, err
	}
	ids, err := one[struct{ First, Last int64 }](ctx, d, tx, "steps", after)
	if err != nil {
		return idRange{}, err
	}
	if scan.through == 0 {
		scan.through = ids.Last
	}
	if ids.First == 0 || ids.First > scan.through {
		return idRange{}, nil
	}
	return idRange{after: ids.First - 1, through: min(ids.First-1+rangeSize, scan.through)}, nil
}
