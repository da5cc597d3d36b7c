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

	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// contender is a kind of store; open returns an empty one for each walk.
type contender struct {
	name string
	open func(t opener) store.Store
}

// opener is who opens a store: a test or a walk of one.
type opener interface {
	Fatal(args ...any)
	Cleanup(f func())
}

func onServer(t *testing.T) contender {
	address, schema := pgtest.Schema(t)
	admin := pgtest.Admin(t)
	return contender{"PostgreSQL", func(t opener) store.Store {
		if _, err := admin.Exec(strings.ReplaceAll(emptied, "{{schema}}", schema)); err != nil {
			t.Fatal(err)
		}
		server, err := postgres.Open(context.Background(), postgres.Options{URL: address, Schema: schema, MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}}
}

const emptied = `
delete from {{schema}}.attempts; delete from {{schema}}.tasks; delete from {{schema}}.outbox; delete from {{schema}}.runs;
delete from {{schema}}.cancellations; delete from {{schema}}.turns; delete from {{schema}}.lanes;
insert into {{schema}}.lanes (name) values ('default')`

func inFile(t *testing.T) contender {
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
	folder, walks := t.TempDir(), 0
	return contender{"SQLite", func(t opener) store.Store {
		walks++
		path := filepath.Join(folder, fmt.Sprintf("%d.db", walks))
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

func inMemory(clock func() time.Time) contender {
	return contender{"memory", func(opener) store.Store { return simstore.New(clock).Client(nil) }}
}

// ticking returns the time, with a few microseconds between one reading and the next, as between two calls of a
// store that has further to go.
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
