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
)

// database is what all roles share: the file, sessions, transactions, the clock and errors. Each role is a type of its
// own around it.
type database struct {
	path   string      // of the file itself, whatever symbolic link led to it
	opened os.FileInfo // the file that was there when it was opened
	writer *writer
	reader *pool
	clock  *clock
	log    logrus.FieldLogger
	owned  atomic.Pointer[os.FileInfo] // the lock file, if this store has it because of Own
}

// role is a type around the database.
type role interface{ inner() *database }

func (d *database) inner() *database { return d }

// now is the store's clock.
func (d *database) now() time.Time { return d.clock.now() }

// gone reports, as an error, that the file is not the one that was opened. What is written to a file that was
// deleted is lost when it is closed.
func (d *database) gone() error {
	info, err := os.Stat(d.path)
	if err != nil || !os.SameFile(info, d.opened) {
		return holdfast.WithHint(fmt.Errorf("%w: %s was deleted, moved or replaced while it was in use", holdfast.ErrUnavailable, d.path),
			holdfast.Hint{Kind: holdfast.HintReturnDatabase})
	}
	return d.disowned()
}

// busyLimit is how long a call waits for another process that holds the lock of the file.
const busyLimit = 10 * time.Second

// transaction is a session that alone may write.
type transaction struct {
	*session
	now int64 // the store's clock when the transaction began, in microseconds
}

// read answers a question with one statement or several, each of which sees what was stored before it.
func (d *database) read(ctx context.Context, operation string, f func(context.Context, *session) error) error {
	err := d.reader.with(ctx, func(c *session) error {
		return d.patiently(ctx, func() error { return f(ctx, c) })
	})
	return d.translate(ctx, operation, err)
}

// write runs f in a transaction that is stored when write returns nil, and undone if f returns an error or
// panics. The context that f gets does not end: an interrupt in the middle of a transaction would leave open
// what became of it.
func (d *database) write(ctx context.Context, operation string, f func(context.Context, *transaction) error) error {
	err := d.gone()
	if err == nil {
		err = d.writer.with(ctx, func(c *session) error { return d.transact(ctx, c, f) })
	}
	return d.translate(ctx, operation, err)
}

func (d *database) transact(ctx context.Context, c *session, f func(context.Context, *transaction) error) error {
	inner := context.WithoutCancel(ctx)
	err := d.patiently(ctx, func() error {
		_, err := c.exec(inner, begin)
		return err
	})
	if err != nil {
		return err
	}
	stored := false
	defer func() {
		if stored {
			return
		}
		if _, err := c.exec(inner, rollback); err != nil {
			c.broken = true
		}
	}()
	if err := f(inner, &transaction{session: c, now: d.now().UnixMicro()}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err = c.exec(inner, commit)
	stored = err == nil
	return err
}

// busyPause is the pause before this process tries again to get a lock that another process holds.
const busyPause = time.Millisecond

// patiently calls f again for as long as another process is in the way. SQLite can wait by itself, but in
// steps of up to a tenth of a second, in which others always come first.
func (d *database) patiently(ctx context.Context, f func() error) error {
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

// micros is how durations are stored: as whole microseconds.
func micros(d time.Duration) int64 { return column.Micros(d) }

// moment reads a time; 0 is one that is missing.
func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// list answers a question that is one statement.
func list[Row any](ctx context.Context, r role, operation, name string, args ...any) ([]Row, error) {
	var rows []Row
	err := r.inner().read(ctx, operation, func(ctx context.Context, c *session) error {
		var err error
		rows, err = all[Row](ctx, c, name, args...)
		return err
	})
	return rows, err
}

// application is the id that the first migration gives the file: "Hold" in ASCII.
const application = 0x486f6c64

type ownerRow struct {
	Application int64
	Migrated    bool
	Table       string // one that no migration has made yet
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

// versions returns the versions that are applied, none if there are no tables. Its errors are the driver's.
func (d *database) versions(ctx context.Context) ([]schema.Applied, error) {
	var applied []schema.Applied
	err := d.reader.with(ctx, func(c *session) error {
		return d.patiently(ctx, func() error {
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
