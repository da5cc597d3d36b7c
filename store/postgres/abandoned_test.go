package postgres_test

import (
	"testing"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// Abandoned reads all tasks only if an ended worker may own some of them. Otherwise one process reads all tasks every
// few minutes.
func TestAllTasksAreReadOnlyForWorkersThatMayOwnSome(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	found := func() int {
		t.Helper()
		tasks, err := s.Abandoned(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	end := func(clean bool) {
		t.Helper()
		worker := registerWorker(t, s)
		if _, err := s.Claim(t.Context(), worker, store.AnyOf("t"), insert(t, s, 1), store.IntoExecutors); err != nil {
			t.Fatal(err)
		}
		if err := s.DeregisterWorker(t.Context(), worker, clean); err != nil {
			t.Fatal(err)
		}
	}
	if found() != 0 {
		t.Fatal("tasks were found in an empty store")
	}
	end(true) // stored as a clean end, although the worker owns a task that a scan would find
	if n := found(); n != 0 {
		t.Errorf("found %d tasks after a clean end, want 0: all tasks were read", n)
	}
	change(t, s, "update turns set taken_at = now() - interval '11 minutes'")
	if n := found(); n != 1 {
		t.Errorf("found %d tasks after sweepEvery, want 1", n)
	}
	if n := found(); n != 1 {
		t.Errorf("found %d tasks before the task was handed back, want 1", n)
	}
	change(t, s, "update tasks set state = 'done', worker_id = null")
	if n := found(); n != 0 {
		t.Errorf("found %d tasks after the task was handed back, want 0", n)
	}
	end(false)
	if n := found(); n != 1 {
		t.Errorf("found %d tasks of a worker that may own tasks, want 1", n)
	}
}
