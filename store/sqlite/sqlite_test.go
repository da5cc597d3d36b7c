package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) desk.Store { return open(t) })
}

func TestWorkerIDs(t *testing.T) {
	t.Parallel()
	storetest.RunWorkerIDs(t, open(t))
}

func TestOutdatedDeaths(t *testing.T) {
	t.Parallel()
	s := open(t)
	storetest.RunOutdatedDeaths(t, s, func(statement string) {
		if err := s.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTagRows(t *testing.T) {
	t.Parallel()
	s := open(t)
	storetest.RunTagRows(t, s, func() int { return int(number(t, s, "select count(*) from tags")) })
}

func TestApplyTx(t *testing.T) {
	t.Parallel()
	s := open(t)
	db := callersDB(t, s, "&_txlock=immediate")
	begin := func() *sql.Tx {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	storetest.RunApplyTx(t, s, begin)
}

func TestRecount(t *testing.T) {
	t.Parallel()
	s := open(t)
	db := callersDB(t, s, "&_txlock=immediate")
	begin := func() *sql.Tx {
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	storetest.RunRecount(t, s, begin, func(statement string) { change(t, s, statement) })
}

func TestACheckReadsTheBlocksWithOpenTasks(t *testing.T) {
	t.Parallel()
	s := open(t)
	storetest.RunVerifyBlocks(t, s, func(statement string) { change(t, s, statement) })
	change(t, s, "update tasks set state = 'running', worker_id = 7, ticketed_at = null") // there is no such worker
	if suspicious, err := s.Suspicious(t.Context(), store.VerifyLimits{Orphan: time.Hour}); !suspicious || err != nil {
		t.Errorf("Suspicious returned %t, %v", suspicious, err)
	}
}

func TestACheckFindsLostRecords(t *testing.T) {
	t.Parallel()
	s := open(t)
	storetest.RunVerifyRecords(t, s, func(statement string) { change(t, s, statement) })
}

func TestChecker(t *testing.T) {
	t.Parallel()
	storetest.RunChecker(t, func(t *testing.T) storetest.Checkable { return open(t) })
}

// open returns an empty, migrated store in a new file.
func open(t testing.TB) *sqlite.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "jobs.db"))
}

// openAt returns a store in a file. It creates and migrates the file if necessary. When the test ends, it closes the
// store.
func openAt(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s := connect(t, path)
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// connect is openAt without the migration.
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

func TestShifted(t *testing.T) {
	t.Parallel()
	storetest.RunShifted(t, func(t *testing.T) storetest.Shiftable {
		s := open(t)
		return storetest.Shiftable{Store: s, Shift: func(table, column string, d time.Duration) {
			change(t, s, fmt.Sprintf("update %s set %s = %s + ?1", table, column, column), d.Microseconds())
		}}
	})
}

func TestDeathsAtOneTime(t *testing.T) {
	t.Parallel()
	s := open(t)
	storetest.RunDeathsAtOneTime(t, s, func(statement string) { change(t, s, statement) })
}

func TestUnknownGroups(t *testing.T) {
	t.Parallel()
	s := open(t)
	storetest.RunUnknownGroups(t, s, func(statement string) { change(t, s, statement) })
}
