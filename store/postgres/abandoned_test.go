package postgres_test

import (
	"testing"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// All tasks are read only after a run has ended that may own some, and else once in a while by one process of all.
func TestAllTasksAreReadOnlyForRunsThatMayOwnSome(t *testing.T) {
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
		run := openRun(t, s)
		if _, err := s.Claim(t.Context(), run, store.AnyOf("t"), insert(t, s, 1), store.IntoExecutors); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseRun(t.Context(), run, clean); err != nil {
			t.Fatal(err)
		}
	}
	if found() != 0 {
		t.Fatal("there are no tasks")
	}
	end(true) // which is not true, so that a look would show
	if n := found(); n != 0 {
		t.Errorf("all tasks were read for a run that is certain to own none: %d", n)
	}
	change(t, s, "update turns set taken_at = now() - interval '11 minutes'")
	if n := found(); n != 1 {
		t.Errorf("after a while %d were found, want 1", n)
	}
	if n := found(); n != 1 {
		t.Errorf("found once more, since nobody has handed it back: %d, want 1", n)
	}
	change(t, s, "update tasks set state = 'done', run_id = null")
	if n := found(); n != 0 {
		t.Errorf("handed back: %d", n)
	}
	end(false)
	if n := found(); n != 1 {
		t.Errorf("of a run that may own some: %d, want 1", n)
	}
}
