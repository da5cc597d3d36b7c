package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

//go:embed sql/*.sql
var files embed.FS

// The names of files that are parts of others. {{columns}} stands for a task's columns, {{claimable}} for the rule for
// the tasks that a claim takes, {{claimed}} for the columns that it returns, {{history}} for the name of the store's
// history, {{signs_held}} for the signs of presence that are held.
const (
	columns   = "columns"
	claimable = "claimable"
	claimed   = "claimed"
	history   = "history"
	signsHeld = "signs_held"
)

// statements reads the embedded files for one schema. A file that cannot be used
// is a mistake of the build.
func statements(schema string) map[string]string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err)
	}
	texts := make(map[string]string, len(entries))
	for _, entry := range entries {
		text, err := files.ReadFile(path.Join("sql", entry.Name()))
		if err != nil {
			panic(err)
		}
		texts[strings.TrimSuffix(entry.Name(), ".sql")] = compact(string(text))
	}
	texts[plainRenew] = strings.ReplaceAll(texts[renew], "{{"+history+"}}", "''")
	var parts []string
	for _, name := range []string{columns, claimable, claimed, history, signsHeld} {
		parts = append(parts, "{{"+name+"}}", texts[name])
	}
	whole, names := strings.NewReplacer(parts...), strings.NewReplacer("holdfast.", pq.QuoteIdentifier(schema)+".")
	for name, text := range texts {
		texts[name] = names.Replace(whole.Replace(text))
	}
	return texts
}

// frequent are the texts of the statements that every task goes through, or that an idle janitor asks all the time. Connections
// prepare them, and the server soon plans them once for all: they look up rows by id or an index of few rows, and the settings of
// the connection leave it no worse way, whatever the statistics say.
func frequent(texts map[string]string) map[string]bool {
	list := make(map[string]bool)
	for _, name := range []string{"insert", "insert_alike", "claim_near", "complete_near", "discharge", "dispatch_due_next"} {
		list[texts[name]] = true
	}
	return list
}

// compact drops comments and indentation: the text travels with every call.
func compact(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// text returns the statement of sql/<name>.sql.
func (s *Store) text(name string) string {
	text, ok := s.statements[name]
	if !ok {
		panic(fmt.Sprintf("postgres: there is no sql/%s.sql", name))
	}
	return text
}

// all reads every row of a statement into dest, a pointer to a slice of structs. q is a pool or
// a transaction.
func (s *Store) all(ctx context.Context, q store.Tx, dest any, name string, args ...any) error {
	rows, err := q.QueryContext(ctx, s.text(name), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	return sqlx.StructScan(rows, dest)
}

// list runs a statement that only reads, and returns its rows.
func list[Row any](ctx context.Context, s *Store, operation, name string, args ...any) (rows []Row, err error) {
	err = s.do(ctx, operation, func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, name, args...)
	})
	return rows, err
}

// one reads the first row of a statement; sql.ErrNoRows if there is none.
func one[Row any](ctx context.Context, s *Store, q store.Tx, name string, args ...any) (Row, error) {
	var rows []Row
	err := s.all(ctx, q, &rows, name, args...)
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
func (s *Store) exec(ctx context.Context, q store.Tx, name string, args ...any) (int, error) {
	result, err := q.ExecContext(ctx, s.text(name), args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// tx runs f in a transaction, which is rolled back if f returns an error or panics.
func (s *Store) tx(ctx context.Context, f func(*sqlx.Tx) error) error {
	tx, err := s.db.BeginTxx(ctx, nil)
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
func (s *Store) do(ctx context.Context, operation string, f func() error) error {
	pause := backoff.New(firstPause, longPause)
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil || attempt == tries || !passing(err) || pause.Wait(ctx) != nil {
			return translate(ctx, operation, err)
		}
		s.log.WithError(err).WithField("operation", operation).Debug("lost against another transaction, trying again")
	}
}

// micros is how durations travel: as whole microseconds, rounded up so that a positive one stays so.
func micros(d time.Duration) int64 {
	whole := int64(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		whole++
	}
	return whole
}
