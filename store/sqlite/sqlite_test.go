package sqlite_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
}

func TestExaminer(t *testing.T) {
	t.Parallel()
	storetest.RunExaminer(t, func(t *testing.T) storetest.Examinable { return open(t) })
}

// open returns an empty, migrated store in a file of its own.
func open(t testing.TB) *sqlite.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "jobs.db"))
}

// openAt opens a store in a file, which is made and migrated if need be. It is closed when the test ends.
func openAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s := connect(t, path)
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// connect is openAt without the tables.
func connect(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	storetest.RunTransfer(t, func(t *testing.T) (here, elsewhere storetest.Transferable) {
		first := open(t)
		second, err := sqlite.Open(t.Context(), sqlite.Options{Path: first.Path()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = second.Close() })
		return first, second
	})
}

// A file whose tasks an earlier release has carried to a server is not served, or they would run twice.
func TestMigrateUpRefusesAMarkedFile(t *testing.T) {
	t.Parallel()
	s := open(t)
	for {
		if m, err := s.MigrateDown(t.Context()); err != nil {
			t.Fatal(err)
		} else if m.Name == "drop_transfers" {
			break
		}
	}
	if err := s.Change(t.Context(), "insert into exports values (1, 't', 'o', 'a server', 'd', 1, 2)"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MigrateUp(t.Context()); err == nil || !strings.Contains(err.Error(), "the tasks of this file are on a server or on their way there") {
		t.Fatalf("marked: %v", err)
	}
	if err := s.Change(t.Context(), "delete from exports"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Errorf("without a mark: %v", err)
	}
}
