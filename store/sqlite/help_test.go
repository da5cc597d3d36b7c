package sqlite_test

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// registerWorker registers a worker whose lease outlasts the test.
func registerWorker(t testing.TB, s *sqlite.Store) holdfast.WorkerID {
	t.Helper()
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 4}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

// newTasks returns n plain tasks of type "t".
func newTasks(n int) []holdfast.NewTask {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 3}
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
	return inserted.Entries[0].Tickets
}

func change(t testing.TB, s *sqlite.Store, statement string, args ...any) {
	t.Helper()
	if err := s.Exec(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// number returns the number that an SQL statement selects.
func number(t testing.TB, s *sqlite.Store, statement string) (n int64) {
	t.Helper()
	n, err := s.Number(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
