package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// reader begins a transaction that has read every table of the schema, as pg_dump does. end ends the transaction.
func reader(t *testing.T, schema string) (end func()) {
	t.Helper()
	tx, err := pgtest.Admin(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	var tables []string
	rows, err := tx.Query("select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_tables where schemaname = $1", schema)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("lock table " + strings.Join(tables, ", ") + " in access share mode"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// startRenewals renews the lease of a worker without a pause, with the statement of an older build. done returns the
// number of answered renewals. stop ends the renewals and returns the duration of the longest one.
func startRenewals(t *testing.T, db *sql.DB, schema string, worker holdfast.WorkerID) (done func() int64, stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var answered atomic.Int64
	var longest time.Duration
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			_, err := db.Exec("update "+schema+".workers set renewed_at = now(), lease_until = now() + interval '5 seconds' where id = $1 and state = 'live'", worker)
			if err != nil {
				t.Errorf("renew: %v", err)
				return
			}
			longest = max(longest, time.Since(began))
			answered.Add(1)
		}
	})
	return answered.Load, sync.OnceValue(func() time.Duration {
		cancel()
		group.Wait()
		return longest
	})
}

// A migration needs exclusive locks on tables that a transaction, such as a backup, is reading. The migration neither
// blocks renewals nor fails. It is applied when the reader has ended.
func TestMigrationsLetRenewalsPass(t *testing.T) {
	t.Parallel()
	log, hook := logtest.NewNullLogger()
	s := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: pgtest.Name(t), Log: log})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := reader(t, s.Schema())
	answered, longest := startRenewals(t, pgtest.Admin(t), s.Schema(), registerWorker(t, s))
	t.Cleanup(func() { longest() })
	done := make(chan error, 1)
	go func() { _, err := s.MigrateDown(t.Context()); done <- err }()
	eventually(t, "the migration logs what blocks it", func() error { return logged(hook, "holds a lock") })
	before := answered()
	eventually(t, "renewals are answered during the transaction of the reader", func() error {
		if n := answered() - before; n < 20 {
			return fmt.Errorf("%d renewals were answered", n)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Errorf("returned before the reader had ended: %v", err)
	case <-time.After(time.Second): // the migration has made several tries
	}
	// The migration waits for a lock for at most lockTimeout. On a busy machine a renewal takes longer.
	if took := longest(); took > slow.Times(10*time.Second) {
		t.Errorf("a renewal took %s", took)
	} else {
		t.Logf("the longest renewal took %s", took)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// logged returns an error until a log message contains text.
func logged(hook *logtest.Hook, text string) error {
	if slices.ContainsFunc(hook.AllEntries(), func(e *logrus.Entry) bool { return strings.Contains(e.Message, text) }) {
		return nil
	}
	return errors.New("not yet")
}

// No migration may block workers for long: none rewrites a table, or creates an index on a large table under a lock
// that blocks writes.
func TestMigrationsRewriteNoTable(t *testing.T) {
	t.Parallel()
	later := schema.Postgres.Versions()[1:]
	if len(later) == 0 {
		t.Skip("there is no migration of tables in use yet")
	}
	s := pgtest.Open(t)
	for range later {
		if _, err := s.MigrateDown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := fileNodes(t, s.Schema())
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := fileNodes(t, s.Schema())
	if len(before) < 8 {
		t.Fatalf("found only the tables %v, want at least 8", before)
	}
	for table, node := range before {
		if after[table] != node {
			t.Errorf("a migration rewrites the table %s", table)
		}
	}
	indexes := regexp.MustCompile(`(?i)create (unique )?index \S+ on (tasks|attempts|outbox)\b`)
	for _, version := range later {
		text, err := fs.ReadFile(schema.Postgres.FS(), fmt.Sprintf("%05d_%s.sql", version.Number, version.Name))
		if err != nil {
			t.Fatal(err)
		}
		for _, made := range indexes.FindAllString(string(text), -1) {
			t.Errorf("version %d blocks writes while it runs: %s", version.Number, made)
		}
	}
}

// fileNodes returns the file number of each table.
func fileNodes(t *testing.T, schema string) map[string]int64 {
	t.Helper()
	rows, err := pgtest.Admin(t).Query("select relname, relfilenode from pg_class where relnamespace = $1::regnamespace and relkind = 'r'", schema)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	nodes := map[string]int64{}
	for rows.Next() {
		var name string
		var node int64
		if err := rows.Scan(&name, &node); err != nil {
			t.Fatal(err)
		}
		nodes[name] = node
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return nodes
}
