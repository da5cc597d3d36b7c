package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// busyLimit is how long a call waits for another process that holds the lock of the file.
const busyLimit = 10 * time.Second

// transaction is a session that alone may write.
type transaction struct {
	*session
	now int64 // the store's clock when the transaction began, in microseconds
}

// read answers a question with one statement or several, each of which sees what was stored before it.
func (s *Store) read(ctx context.Context, operation string, f func(context.Context, *session) error) error {
	err := s.reader.with(ctx, func(c *session) error {
		return s.patiently(ctx, func() error { return f(ctx, c) })
	})
	return s.translate(ctx, operation, err)
}

// write runs f in a transaction that is stored when write returns nil, and undone if f returns an error or
// panics. The context that f gets does not end: an interrupt in the middle of a transaction would leave open
// what became of it.
func (s *Store) write(ctx context.Context, operation string, f func(context.Context, *transaction) error) error {
	err := s.gone()
	if err == nil {
		err = s.writer.with(ctx, func(c *session) error { return s.transact(ctx, c, f) })
	}
	return s.translate(ctx, operation, err)
}

func (s *Store) transact(ctx context.Context, c *session, f func(context.Context, *transaction) error) error {
	inner := context.WithoutCancel(ctx)
	err := s.patiently(ctx, func() error {
		_, err := c.exec(inner, "begin")
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
		if _, err := c.exec(inner, "rollback"); err != nil {
			c.broken = true
		}
	}()
	if err := f(inner, &transaction{session: c, now: s.now().UnixMicro()}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err = c.exec(inner, "commit")
	stored = err == nil
	return err
}

// busyPause is the pause before this process tries again to get a lock that another process holds.
const busyPause = time.Millisecond

// patiently calls f again for as long as another process is in the way. SQLite can wait by itself, but in
// steps of up to a tenth of a second, in which others always come first.
func (s *Store) patiently(ctx context.Context, f func() error) error {
	began, pause := time.Now(), backoff.New(busyPause, busyPause)
	for {
		err := f()
		if !busy(err) {
			return err
		}
		if waited := time.Since(began); waited > s.writer.limit {
			return fmt.Errorf("%w: another process has kept %s locked for %s; look for a long transaction, for example in a sqlite3 shell (fuser or lsof tell who has the file open): %w",
				holdfast.ErrUnavailable, s.path, waited.Round(time.Second), err)
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// micros is how durations are stored: as whole microseconds, rounded up so that a positive one stays so.
func micros(d time.Duration) int64 {
	whole := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		whole++
	}
	return whole
}

// moment reads a time; 0 is one that is missing.
func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
