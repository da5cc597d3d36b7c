package pgtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// OpenReused is like Open, but the schema may be one that an earlier test of the process has used. It is empty again,
// with ids from 1 and a new incarnation. Creating a schema and dropping it takes half a second of processor time. A
// package that calls OpenReused calls Main in its TestMain.
//
// Use it only for tests of the contract of the store, because statements may keep their plans for larger tables.
func OpenReused(t testing.TB) *postgres.Store {
	t.Helper()
	address, name, ok := reserve(t)
	store := Connect(t, postgres.Options{URL: address, Schema: name})
	if !ok {
		prepare(t, store)
	}
	return store
}

// SchemaReused is like Schema, but reuses schemas as OpenReused does. The test must use the returned URL for all its
// sessions, because the schema is given to another test only after these sessions have ended.
func SchemaReused(t testing.TB) (address, name string) {
	t.Helper()
	address, name, ok := reserve(t)
	if !ok {
		store, err := postgres.Open(context.Background(), postgres.Options{URL: address, Schema: name})
		if err != nil {
			t.Fatal(err)
		}
		prepare(t, store)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return address, name
}

// reserve returns a schema for one test, and a URL with the name of the schema as the application name. If ok is false,
// the test must create the schema.
func reserve(t testing.TB) (address, name string, ok bool) {
	t.Helper()
	plain := URL(t)
	name, ok = used.take()
	if !ok {
		name = unusedName()
	}
	t.Cleanup(func() { used.giveBack(t, plain, name) })
	return withName(t, plain, name), name, ok
}

// prepare creates the schema of a store.
func prepare(t testing.TB, store *postgres.Store) {
	t.Helper()
	if _, err := store.MigrateUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := used.learn(admin(t, URL(t)), store.Schema()); err != nil {
		t.Fatal(err)
	}
}

// Main runs the tests of a package and then drops the schemas that OpenReused has kept. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	for name, ok := used.take(); ok; name, ok = used.take() {
		_, _ = adminDB.Exec("drop schema if exists " + pq.QuoteIdentifier(name) + " cascade") // the server may be gone
	}
	return code
}

// used has the schemas that tests of this process have given back.
var used schemas

type schemas struct {
	mu   sync.Mutex
	free []string
	// The next fields describe a new schema.
	shape     string                     // see shapeText
	rows      map[string]json.RawMessage // by table
	sequences map[string]int64           // the last values of the sequences that have one
}

func (s *schemas) take() (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return "", false
	}
	name, s.free = s.free[0], s.free[1:]
	return name, true
}

// learn records the shape and the rows of a new schema.
func (s *schemas) learn(db *sql.DB, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shape != "" {
		return nil
	}
	shape, err := shapeOf(db, name)
	if err != nil {
		return err
	}
	tables, err := tablesOf(db, name)
	if err != nil {
		return err
	}
	rows := make(map[string]json.RawMessage)
	for _, table := range tables {
		var list []byte
		query := fmt.Sprintf("select json_agg(t) from %s.%s t", pq.QuoteIdentifier(name), pq.QuoteIdentifier(table))
		if err := db.QueryRow(query).Scan(&list); err != nil {
			return err
		}
		if list != nil {
			rows[table] = list
		}
	}
	s.sequences = make(map[string]int64)
	values, err := db.Query("select sequencename, last_value from pg_sequences where schemaname = $1 and last_value is not null", name)
	if err != nil {
		return err
	}
	defer values.Close()
	for values.Next() {
		var sequence string
		var last int64
		if err := values.Scan(&sequence, &last); err != nil {
			return err
		}
		s.sequences[sequence] = last
	}
	s.shape, s.rows = shape, rows
	return values.Err()
}

// giveBack keeps a schema for another test. If a test has changed more than rows, or the schema cannot be emptied soon,
// it is dropped.
func (s *schemas) giveBack(t testing.TB, address, name string) {
	db := admin(t, address)
	if s.reset(db, name) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, name)
		return
	}
	if _, err := db.Exec("drop schema if exists " + pq.QuoteIdentifier(name) + " cascade"); err != nil {
		t.Errorf("drop schema %s: %v", name, err)
	}
}

// reset restores a schema to its state when it was new.
func (s *schemas) reset(db *sql.DB, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), slow.Times(5*time.Second))
	defer cancel()
	if err := awaitNoSession(ctx, db, name); err != nil { // a statement of a canceled call may still write
		return err
	}
	if shape, err := shapeOf(db, name); err != nil || shape != s.shape {
		return fmt.Errorf("the schema has another shape: %w", err)
	}
	tables, err := tablesOf(db, name)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	exec := func(query string, args ...any) {
		if err == nil {
			_, err = tx.ExecContext(ctx, query, args...)
		}
	}
	exec("set local lock_timeout = '1s'")
	exec("set local session_replication_role = replica") // no triggers, no foreign keys
	exec("set local search_path = " + pq.QuoteIdentifier(name))
	for _, table := range tables {
		exec("delete from " + pq.QuoteIdentifier(table))
	}
	for table, rows := range s.rows {
		exec(fmt.Sprintf("insert into %[1]s overriding system value select * from json_populate_recordset(null::%[1]s, $1)", pq.QuoteIdentifier(table)), []byte(rows))
	}
	exec("update meta set value = gen_random_uuid() where key = 'incarnation'")
	exec("select setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) from pg_sequences where schemaname = $1", name)
	for sequence, last := range s.sequences {
		exec("select setval($1::regclass, $2)", pq.QuoteIdentifier(sequence), last)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

// awaitNoSession waits until the server has ended all sessions of the stores of a schema.
func awaitNoSession(ctx context.Context, db *sql.DB, name string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var sessions int
		if err := db.QueryRowContext(ctx, "select count(*) from pg_stat_activity where application_name = $1", name).Scan(&sessions); err != nil || sessions == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// shapeOf returns a text that changes with everything in a schema, except rows and sequences.
func shapeOf(db *sql.DB, name string) (shape string, err error) {
	err = db.QueryRow(shapeText, name).Scan(&shape)
	return shape, err
}

const shapeText = `
select md5(string_agg(line, e'\n' order by line)) from (
  select format('%s %s %s %s', relname, relkind, reloptions, relacl) from pg_class where relnamespace = $1::regnamespace
  union all
  select format('%s %s %s %s %s %s', relname, attname, attnum, atttypid, attnotnull, atthasdef)
  from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace = $1::regnamespace and attnum > 0
  union all
  select format('%s %s %s', relname, tgname, tgenabled)
  from pg_trigger join pg_class on pg_class.oid = tgrelid where relnamespace = $1::regnamespace
  union all
  select format('%s %s', proname, md5(prosrc)) from pg_proc where pronamespace = $1::regnamespace
  union all
  select format('%s %s', conname, contype) from pg_constraint where connamespace = $1::regnamespace
  union all
  select nspacl::text from pg_namespace where oid = $1::regnamespace
) lines (line)`

func tablesOf(db *sql.DB, name string) (tables []string, err error) {
	rows, err := db.Query("select tablename from pg_tables where schemaname = $1", name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	return tables, rows.Err()
}

// withName returns the address with an application name.
func withName(t testing.TB, address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	return u.String()
}
