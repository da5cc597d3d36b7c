package sqlite_test

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// openRun starts a run that outlives the test.
func openRun(t testing.TB, s *sqlite.Store) holdfast.RunID {
	t.Helper()
	run, err := s.OpenRun(t.Context(), store.RunInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 4}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// tasksOf are n plain tasks of type "t".
func newTasks(n int) []holdfast.NewTask {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Lane: holdfast.DefaultLane, MaxAttempts: 3}
	}
	return tasks
}

// insert stores n tasks and returns the tickets of their first attempts.
func insert(t testing.TB, s *sqlite.Store, n int) []message.Ticket {
	t.Helper()
	inserted, err := s.Insert(t.Context(), newTasks(n), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return inserted.Receipts[0].Tickets
}

// change runs a statement of the test's own.
func change(t testing.TB, s *sqlite.Store, statement string, args ...any) {
	t.Helper()
	if err := s.Change(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// number reads one number with a statement of the test's own.
func number(t testing.TB, s *sqlite.Store, statement string) (n int64) {
	t.Helper()
	n, err := s.Number(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
