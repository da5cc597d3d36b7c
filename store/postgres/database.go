package postgres

import (
	"context"
	"database/sql"
	"math"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// database is what all roles share: connections, statements, repetition, errors, and steps over all tasks. Each role is
// a type of its own around it.
type database struct {
	db *sqlx.DB
	// leases is a pool of its own: a lease must not run out, nor the store seem out of reach, because
	// the other connections are all busy.
	leases *sqlx.DB
	// migrations has no time limits.
	migrations *sqlx.DB
	schema     string
	sessions   bool // the store has sessions of its own
	statements map[string]string
	lanes      sync.Map // names of lanes that are stored for certain
	log        logrus.FieldLogger
}

// role is a type around the database.
type role interface{ inner() *database }

func (d *database) inner() *database { return d }

// text returns the statement of sql/<name>.sql.
func (d *database) text(name string) string { return statement.Text(d.statements, name) }

// all reads every row of a statement into dest, a pointer to a slice of structs. q is a pool or
// a transaction.
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

// one reads the first row of a statement; sql.ErrNoRows if there is none.
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

// exec runs a statement and returns how many rows it changed.
func (d *database) exec(ctx context.Context, q store.Tx, name string, args ...any) (int, error) {
	result, err := q.ExecContext(ctx, d.text(name), args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// tx runs f in a transaction, which is rolled back if f returns an error or panics.
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

// tries is how often an operation runs that loses to another one each time.
const tries = 6

// The first and the longest pause between these tries.
const (
	firstPause = 10 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// do runs an operation, again if it lost a deadlock or a serialization conflict, and
// translates its error. f must be complete: nothing of a failed run may remain in what
// it writes to.
func (d *database) do(ctx context.Context, operation string, f func() error) error {
	pause := backoff.New(firstPause, longPause)
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || attempt == tries || !passing(err) || pause.Wait(ctx) != nil {
			return translate(ctx, operation, err)
		}
		d.log.WithError(err).WithField("operation", operation).Debug("lost against another transaction, trying again")
	}
}

// set sets settings of a transaction.
func (d *database) set(ctx context.Context, tx store.Tx, s settings) error {
	names, values := s.columns()
	_, err := d.exec(ctx, tx, "set", names, values, true)
	return err
}

// micros is how durations travel: as whole microseconds.
func micros(d time.Duration) int64 { return column.Micros(d) }

// rangeSize is how many ids one statement of a walk looks at. What bounds it must be the rows it reads
// and not those it finds: among tens of millions of tasks it may find none, and would never end in time.
const rangeSize = 50_000

// walk is a look at all tasks, in the order of their ids and in steps that are each a short transaction.
type walk struct {
	through int64 // last id to look at; 0 means the largest there is when the walk begins
	size    int   // a step changes at most so many rows, so that it locks them for a short time
	limit   int   // the walk ends when it has changed so many; 0 means no limit
}

// idRange is what one step looks at: the ids above after, up to through, and of the rows that
// match no more than size.
type idRange struct {
	after, through int64
	size           int
	changed        int // by the steps before
}

// step is what one step has done.
type step struct {
	Changed int
	Last    int64 // largest id it changed
}

// inSteps calls f for one range of ids after the other and returns how many rows were changed. A step
// that fails is undone; those before it stand.
func (d *database) inSteps(ctx context.Context, operation string, w walk, f func(store.Tx, idRange) (step, error)) (int, error) {
	if w.limit == 0 {
		w.limit = math.MaxInt
	}
	total, after := 0, int64(0)
	for total < w.limit {
		var did step
		var looked idRange
		err := d.do(ctx, operation, func() error {
			return d.tx(ctx, func(tx *sqlx.Tx) error {
				var err error
				looked, err = d.nextRange(ctx, tx, &w, after)
				if err != nil || looked.through == 0 {
					return err
				}
				looked.size, looked.changed = min(w.size, w.limit-total), total
				did, err = f(tx, looked)
				return err
			})
		})
		if err != nil || looked.through == 0 {
			return total, err
		}
		total += did.Changed
		after = looked.through
		if did.Changed == looked.size { // there may be more in this range
			after = did.Last
		}
	}
	return total, nil
}

// nextRange returns the next ids to look at, none at the end of the walk. A gap costs nothing, however wide.
func (d *database) nextRange(ctx context.Context, tx *sqlx.Tx, w *walk, after int64) (idRange, error) {
	if _, err := d.exec(ctx, tx, "steps_settings"); err != nil {
		return idRange{}, err
	}
	ids, err := one[struct{ First, Last int64 }](ctx, d, tx, "steps", after)
	if err != nil {
		return idRange{}, err
	}
	if w.through == 0 {
		w.through = ids.Last
	}
	if ids.First == 0 || ids.First > w.through {
		return idRange{}, nil
	}
	return idRange{after: ids.First - 1, through: min(ids.First-1+rangeSize, w.through)}, nil
}
