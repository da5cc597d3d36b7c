package storetest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// backend is a kind of store. open returns an empty store for each sequence of calls.
type backend struct {
	name string
	open func(t testOrCheck) desk.Store
}

// testOrCheck is a test or one sequence of calls of a test.
type testOrCheck interface {
	Fatal(args ...any)
	Cleanup(f func())
}

func postgresBackend(t *testing.T) backend {
	address, schema := pgtest.Schema(t)
	admin := pgtest.Admin(t)
	return backend{"PostgreSQL", func(t testOrCheck) desk.Store {
		if _, err := admin.Exec(strings.ReplaceAll(deleteAll, "{{schema}}", schema)); err != nil {
			t.Fatal(err)
		}
		server, err := postgres.Open(context.Background(), postgres.Options{URL: address, Schema: schema, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}}
}

const deleteAll = `
delete from {{schema}}.attempts; delete from {{schema}}.tasks; delete from {{schema}}.outbox; delete from {{schema}}.workers;
delete from {{schema}}.cancellations; delete from {{schema}}.turns; delete from {{schema}}.queues;
delete from {{schema}}.blocked; delete from {{schema}}.gates; delete from {{schema}}.permits; delete from {{schema}}.buckets; delete from {{schema}}.deaths; delete from {{schema}}.counts; delete from {{schema}}.count_deltas;
insert into {{schema}}.queues (name) values ('default')`

func sqliteBackend(t *testing.T) backend {
	template := filepath.Join(t.TempDir(), "template.db")
	empty, err := sqlite.Open(t.Context(), sqlite.Options{Path: template, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := empty.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := empty.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(template)
	if err != nil {
		t.Fatal(err)
	}
	folder, opened := t.TempDir(), 0
	return backend{"SQLite", func(t testOrCheck) desk.Store {
		opened++
		path := filepath.Join(folder, fmt.Sprintf("%d.db", opened))
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		embedded, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(path) })
		return embedded
	}}
}

func memoryBackend(clock func() time.Time) backend {
	return backend{"memory", func(testOrCheck) desk.Store { return desk.Without(memory.New(clock).Client(nil)) }}
}

// ticking returns a clock that advances by a few microseconds with each reading, like a database between two calls.
func ticking() func() time.Time {
	var mu sync.Mutex
	var last time.Time
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now().Round(0)
		if soonest := last.Add(5 * time.Microsecond); now.Before(soonest) {
			now = soonest
		}
		last = now
		return now
	}
}
