// Package pgtest provides tests with schemas on the PostgreSQL server of DATABASE_URL. Only tests may use it.
package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// URL returns DATABASE_URL. If the variable is not set, URL skips the test. Unless the URL has a connect_timeout, URL
// sets it to 30 s, because the default of 5 s can be too short on a busy machine. The first call measures the server.
func URL(t testing.TB) string {
	t.Helper()
	address := os.Getenv("DATABASE_URL")
	if address == "" {
		t.Skip("DATABASE_URL is not set; run: make test")
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	if query.Get("connect_timeout") == "" {
		query.Set("connect_timeout", "30")
		u.RawQuery = query.Encode()
	}
	address = u.String()
	measured.Do(func() { measure(admin(t, address)) })
	return address
}

// measured guards measure.
var measured sync.Once

// measure measures how long the server takes for commits, for slow.Measured. It ignores errors, which the tests report
// better.
func measure(db *sql.DB) {
	const commits, usual = 20, 5 * time.Millisecond
	if db.Ping() != nil {
		return
	}
	began := time.Now()
	for range commits {
		// A commit is flushed to disk only if its transaction has written something, here an empty message.
		if _, err := db.Exec("select pg_logical_emit_message(true, 'holdfast', '')"); err != nil {
			return
		}
	}
	slow.Measured(time.Since(began), commits*usual)
}

func unusedName() string { return "test_" + strings.ToLower(rand.Text()[:16]) }

// Name returns the name of a schema that does not exist. The schema is dropped when the test ends.
func Name(t testing.TB) string {
	t.Helper()
	address := URL(t)
	name := unusedName()
	t.Cleanup(func() {
		if _, err := admin(t, address).Exec("drop schema if exists " + pq.QuoteIdentifier(name) + " cascade"); err != nil {
			t.Errorf("drop schema %s: %v", name, err)
		}
	})
	return name
}

// Database returns the URL of a new, empty database. It is dropped when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	address, name := URL(t), unusedName()
	db := admin(t, address)
	if _, err := db.Exec("create database " + pq.QuoteIdentifier(name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("drop database " + pq.QuoteIdentifier(name) + " with (force)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// Schema returns the server's URL and the name of a new, migrated schema.
func Schema(t testing.TB) (address, name string) {
	t.Helper()
	address, name = URL(t), Name(t)
	store := Connect(t, postgres.Options{URL: address, Schema: name})
	if _, err := store.MigrateUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	return address, name
}

// Open returns a store on a new, migrated schema.
func Open(t testing.TB) *postgres.Store {
	t.Helper()
	store := Connect(t, postgres.Options{URL: URL(t), Schema: Name(t)})
	if _, err := store.MigrateUp(context.Background()); err != nil {
		t.Fatal(err)
	}
	return store
}

// Connect opens a store, and closes it when the test ends.
func Connect(t testing.TB, o postgres.Options) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

var (
	adminOnce sync.Once
	adminDB   *sql.DB
)

// admin returns the connection pool of the test binary.
func admin(t testing.TB, address string) *sql.DB {
	t.Helper()
	adminOnce.Do(func() {
		db, err := sql.Open("postgres", address)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(10) // more than the number of transactions that parallel tests open
		adminDB = db
	})
	return adminDB
}

// Admin returns a connection pool without time limits and without a search_path, to inspect and change what a store has
// written.
func Admin(t testing.TB) *sql.DB {
	t.Helper()
	return admin(t, URL(t))
}
