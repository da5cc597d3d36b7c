package sqlite_test

import (
	"path/filepath"
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
