package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/flow"
)

// database is the part that all roles share: the file, sessions, transactions, the clock and errors. Each role embeds
// it.
type database struct {
	path   string      // with symbolic links resolved
	opened os.FileInfo // the identity of the file when it was opened
	writer *writer
	reader *pool
	clock  *clock
	log    logrus.FieldLogger
	guard  *guard
	// precedence lets the owner of the file write before other processes.
	precedence precedence
	lost       atomic.Pointer[error]       // why this store stores nothing more, or nil; see lose
	owned      atomic.Pointer[os.FileInfo] // the identity of the lock file, or nil if this store does not own the file
	ended      flow.Ended
}

// role is a type that embeds the database.
type role interface{ inner() *database }

func (d *database) inner() *database { return d }

func (d *database) now() time.Time { return d.clock.now() }

// busyLimit is how long a call waits for another process to unlock the file.
const busyLimit = 10 * time.Second

// transaction is a session with an open write transaction.
type transaction struct {
	*session
	now int64 // the store's time at the start of the transaction, in microseconds
}

// read calls f with a session that only reads. Each statement of f sees all earlier commits.
func (d *database) read(ctx context.Context, operation string, f func(context.Context, *session) error) error {
	err := d.reader.with(ctx, inTurn, func(c *session) error {
		return d.retryBusy(ctx, func() error { return f(ctx, c) })
	})
	return d.translate(ctx, operation, err)
}

// write runs f in a transaction. It commits the transaction if f returns nil, and rolls it back if f returns an error
// or panics. The context of f does not end, because after an interrupted statement the state of the transaction would
// be unknown.
//
// write checks the files before it changes anything and again after the commit. So a commit that write reports was in
// the files that the next process opens.
func (d *database) write(ctx context.Context, operation string, f func(context.Context, *transaction) error) error {
	return d.writeAt(ctx, operation, inTurn, f)
}

// writeAt is write with a place among the writes of this process.
func (d *database) writeAt(ctx context.Context, operation string, place order, f func(context.Context, *transaction) error) error {
	if lost := d.lost.Load(); lost != nil {
		return d.translate(ctx, operation, *lost)
	}
	err := d.writer.with(ctx, place, func(c *session) error {
		began := time.Now()
		if err := d.lock(ctx, c); err != nil {
			return err
		}
		locked := time.Now()
		err := d.transact(ctx, c, f)
		d.reportLong(operation, locked.Sub(began), time.Since(locked))
		return err
	})
	return d.translate(ctx, operation, err)
}

// longWrite is how long a write may hold the file, or wait for another process, before it is logged. The next writes of
// all processes wait meanwhile, and also the renewal of the lease.
const longWrite = time.Second

// reportLong logs a write that waited long for another process or held the file for long.
func (d *database) reportLong(operation string, waited, held time.Duration) {
	log := d.log.WithFields(logrus.Fields{"operation": operation, "waited": waited, "held": held})
	if held > longWrite {
		log.Warn("a write of this process held the file for more than a second")
	} else if waited > longWrite {
		log.Warn("another process held the file for more than a second")
	}
}

// lock begins a transaction of the session. It lets the owner of the file take precedence.
func (d *database) lock(ctx context.Context, c *session) error {
	inner, owner, began := context.WithoutCancel(ctx), d.owned.Load() != nil, time.Now()
	err := d.retryBusy(ctx, func() error {
		if !owner && d.precedence.taken() {
			return errPrecedence
		}
		_, err := c.exec(inner, begin)
		if owner && busy(err) {
			d.precedence.take()
		}
		return err
	})
	if owner {
		d.precedence.keep(2 * time.Since(began))
	}
	return err
}

// transact runs f in the open transaction of the session, and ends the transaction.
func (d *database) transact(ctx context.Context, c *session, f func(context.Context, *transaction) error) error {
	inner := context.WithoutCancel(ctx)
	stored := false
	defer func() {
		if stored {
			return
		}
		if _, err := c.exec(inner, rollback); err != nil {
			c.broken = true
		}
	}()
	if err := d.checkFile(inner); err != nil {
		return err
	}
	if err := f(inner, &transaction{session: c, now: d.now().UnixMicro()}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := c.exec(inner, commit); err != nil {
		return err
	}
	stored = true
	return d.checkNames(inner)
}

// busyPause is the pause between two tries to get a lock that another process holds.
const busyPause = time.Millisecond

// retryBusy calls f until no other process holds a lock that f needs, or until ctx ends. After the limit of the writer,
// it returns an ErrUnavailable. SQLite could wait too, but it pauses for up to a tenth of a second, and other processes
// would take the lock.
func (d *database) retryBusy(ctx context.Context, f func() error) error {
	began, pause := time.Now(), backoff.New(busyPause, busyPause)
	for {
		err := f()
		if !busy(err) {
			return err
		}
		if waited := time.Since(began); waited > d.writer.limit {
			err = fmt.Errorf("%w: another process has kept %s locked for %s: %w", holdfast.ErrUnavailable, d.path, waited.Round(time.Second), err)
			return holdfast.WithHint(err, holdfast.Advice("look for a long transaction, for example in a sqlite3 shell; fuser and lsof show which processes have the file open"))
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// change runs a statement in a transaction, and returns the number of rows that it changed. If the statement has the
// time as a parameter, it is the last one.
func (d *database) change(ctx context.Context, operation, name string, args ...any) (int, error) {
	n := 0
	err := d.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		var err error
		n, err = tx.exec(ctx, name, arguments(args, tx.now)...)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// micros returns a duration in whole microseconds, for the statements.
func micros(d time.Duration) int64 { return column.Micros(d) }

// timeOf returns the time for a number of microseconds since 1970, and the zero time for 0.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// list runs a statement that only reads, and returns its rows.
func list[Row any](ctx context.Context, r role, operation, name string, args ...any) ([]Row, error) {
	var rows []Row
	err := r.inner().read(ctx, operation, func(ctx context.Context, c *session) error {
		var err error
		rows, err = all[Row](ctx, c, name, args...)
		return err
	})
	return rows, err
}

// application is the application id that the first migration writes into the file: "Hold" in ASCII.
const application = 0x486f6c64

// ownerRow describes the program that owns the file.
type ownerRow struct {
	Application int64
	Migrated    bool
	Table       string // the first table, except the table of migrations; "" if there is no other table
}

// checkOwner returns an ErrInvalid if the file is the database of another program.
func (d *database) checkOwner(ctx context.Context, q querier) error {
	owner, err := one[ownerRow](ctx, q, "schema_owner")
	if err != nil || owner.Application == application || owner.Application == 0 && owner.Table == "" {
		return err
	}
	err = fmt.Errorf("%w: %s is the database of another program (application id %d, with the table %q)",
		holdfast.ErrInvalid, d.path, owner.Application, owner.Table)
	return holdfast.WithHint(err, anotherFile)
}

// versions returns the applied versions, or none if there are no tables. It returns errors of the driver untranslated.
func (d *database) versions(ctx context.Context) ([]schema.Applied, error) {
	var applied []schema.Applied
	err := d.reader.with(ctx, inTurn, func(c *session) error {
		return d.retryBusy(ctx, func() error {
			owner, err := one[ownerRow](ctx, c, "schema_owner")
			if err != nil || !owner.Migrated {
				return err
			}
			rows, err := all[struct {
				Number    int64
				AppliedAt int64 `db:"applied_at"`
			}](ctx, c, "schema_versions")
			for _, row := range rows {
				applied = append(applied, schema.Applied{Number: row.Number, At: time.Unix(row.AppliedAt, 0)})
			}
			return err
		})
	})
	return applied, err
}
