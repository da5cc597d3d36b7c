package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"time"
)

// Statements returns the statements by name.
func Statements() map[string]string { return statements() }

// These are names for the external tests.
var (
	NetworkKind = networkKind
	DataSource  = dataSource
)

// Exec executes a statement in the session that writes.
func (s *Store) Exec(ctx context.Context, statement string, args ...any) error {
	return s.writer.with(ctx, inTurn, func(c *session) error {
		_, err := c.conn.ExecContext(ctx, statement, args...)
		return err
	})
}

// Number returns the number that a statement selects.
func (s *Store) Number(ctx context.Context, statement string) (n int64, err error) {
	err = s.reader.with(ctx, inTurn, func(c *session) error { return c.conn.QueryRowContext(ctx, statement).Scan(&n) })
	return n, err
}

// Plan returns the steps of the query plan of a statement.
func (s *Store) Plan(ctx context.Context, statement string) (steps []string, err error) {
	err = s.writer.with(ctx, inTurn, func(c *session) error {
		rows, err := c.conn.QueryContext(ctx, "explain query plan "+statement, make([]any, 26)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				return err
			}
			steps = append(steps, detail)
		}
		return rows.Err()
	})
	return steps, err
}

// SetClocks replaces the clocks of the machine.
func (s *Store) SetClocks(read func() (wall time.Time, awake time.Duration)) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.read = func() clockReading {
		wall, awake := read()
		return clockReading{wall, awake}
	}
	s.clock.last = s.clock.read()
	s.clock.since = s.clock.last.awake
}

// SetBusyLimit replaces the maximum wait for other processes.
func (s *Store) SetBusyLimit(limit time.Duration) { s.writer.limit = limit }

// Hold occupies the session that writes until release is called.
func (s *Store) Hold(ctx context.Context) (release func(), err error) {
	c, err := s.writer.get(ctx, inTurn)
	return func() { s.writer.put(c, true) }, err
}

// Parse is ParseURL with the given environment.
func Parse(address, system, home string, variables map[string]string, noHome error) (string, error) {
	return environment{
		variable: func(name string) string { return variables[name] },
		home:     func() (string, error) { return filepath.FromSlash(home), noHome },
		system:   system,
	}.parse(address)
}

// CheckIntegrity returns an error if SQLite finds damage in the file.
func (s *Store) CheckIntegrity(ctx context.Context) error {
	return s.reader.with(ctx, inTurn, func(c *session) error {
		var result string
		if err := c.conn.QueryRowContext(ctx, "pragma quick_check").Scan(&result); err != nil {
			return err
		}
		if result != "ok" {
			return errors.New(result)
		}
		return nil
	})
}

// Write calls f in a transaction.
func (s *Store) Write(ctx context.Context, f func()) error {
	return s.write(ctx, "test", func(context.Context, *transaction) error {
		f()
		return nil
	})
}

// Fail makes the store replace a session that reads and the session that writes, as after an error of the driver.
func (s *Store) Fail(context.Context) error {
	bad := func(c *session) error {
		if _, err := c.statement(context.Background(), "now"); err != nil {
			return err
		}
		_, err := c.conn.ExecContext(context.Background(), "no SQL")
		return err
	}
	return errors.Join(s.reader.with(context.Background(), inTurn, bad), s.writer.with(context.Background(), inTurn, bad))
}

// OpenReaders returns the number of open connections that only read. No call may be in progress.
func (s *Store) OpenReaders() int { return cap(s.reader.unopened) - len(s.reader.unopened) }

// Busy reports whether a call uses the session that writes.
func (s *Store) Busy() bool { return len(s.writer.free)+len(s.writer.unopened) == 0 }

// Early returns the number of calls that write or wait to write and take precedence.
func (s *Store) Early() int { return int(s.writer.early.Load()) }

// Preceded reports whether the owner of the file, if it is another store, takes precedence.
func (s *Store) Preceded() bool { return s.precedence.taken() }
