package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) desk.Store { return pgtest.OpenReused(t) })
}

func TestWorkerIDs(t *testing.T) {
	t.Parallel()
	storetest.RunWorkerIDs(t, pgtest.Open(t))
}

func TestOutdatedDeaths(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunOutdatedDeaths(t, s, func(statement string) {
		if _, err := pgtest.Admin(t).Exec("set local search_path = " + s.Schema() + "; " + statement); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTagRows(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunTagRows(t, s, func() (n int) {
		if err := pgtest.Admin(t).QueryRow("select count(*) from " + s.Schema() + ".tags").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	})
}

func TestApplyTx(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	begin := func() *sql.Tx {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	storetest.RunApplyTx(t, s, begin)
}

func TestRecount(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	begin := func() *sql.Tx {
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	storetest.RunRecount(t, s, begin, func(statement string) { change(t, s, statement) })
}

func TestACheckReadsTheBlocksWithOpenTasks(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunVerifyBlocks(t, s, func(statement string) { change(t, s, statement) })
}

func TestCountersOutliveBrokenConnections(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunCountFaults(t, s, func() { terminate(t, s) })
}

func TestACheckFindsLostRecords(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunVerifyRecords(t, s, func(statement string) { change(t, s, statement) })
}

func TestChecker(t *testing.T) {
	t.Parallel()
	storetest.RunChecker(t, func(t *testing.T) storetest.Checkable { return pgtest.Open(t) })
}

func TestPresence(t *testing.T) {
	t.Parallel()
	storetest.WorkerPresence(t, func(s storetest.Present) { terminate(t, s.(*postgres.Store)) }, func(t *testing.T) (here, elsewhere storetest.Present) {
		first := named(t, postgres.Options{})
		return first, pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: first.Schema()})
	})
}

// terminate makes the server end all sessions of a store that named has made.
func terminate(t *testing.T, s *postgres.Store) {
	t.Helper()
	if _, err := pgtest.Admin(t).Exec("select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = $1", s.Schema()); err != nil {
		t.Error(err)
	}
}

func TestShifted(t *testing.T) {
	t.Parallel()
	storetest.RunShifted(t, func(t *testing.T) storetest.Shiftable {
		s := pgtest.Open(t)
		return storetest.Shiftable{Store: s, Shift: func(table, column string, d time.Duration) {
			change(t, s, fmt.Sprintf("update %s set %s = %s + $1 * interval '1 microsecond'", table, column, column), d.Microseconds())
		}}
	})
}

func TestDeathsAtOneTime(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunDeathsAtOneTime(t, s, func(statement string) { change(t, s, statement) })
}

func TestUnknownGroups(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.RunUnknownGroups(t, s, func(statement string) { change(t, s, statement) })
}
