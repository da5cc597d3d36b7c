package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var pruneTests = []test{
	{"deletes only what is old and over", testPruneKinds},
	{"keeps to its limit", testPruneLimit},
	{"deletes runs that own nothing", testPruneRuns},
}

// prune calls Prune until it has deleted n rows.
func (s *suite) prune(ages store.PruneAges, n int) {
	s.Helper()
	total := 0
	s.eventually("old enough to be deleted", func() bool {
		deleted, err := s.Prune(s.ctx, ages, 1000)
		s.must(err)
		total += deleted
		return total >= n
	})
	if total != n {
		s.Errorf("%d rows were deleted, want %d", total, n)
	}
}

func testPruneKinds(s *suite) {
	tasks := map[holdfast.State]holdfast.Task{}
	for _, state := range holdfast.States() {
		tasks[state] = s.taskIn(state)
	}
	for name, ages := range map[string]store.PruneAges{
		"all for ever": {}, "all for an hour": {Done: time.Hour, Cancelled: time.Hour, Archived: time.Hour, Runs: time.Hour},
	} {
		if n, err := s.Prune(s.ctx, ages, 1000); n != 0 || err != nil {
			s.Errorf("%s: %d rows deleted, %v", name, n, err)
		}
	}
	gone := map[holdfast.State]bool{}
	for _, step := range []struct {
		state holdfast.State
		ages  store.PruneAges
	}{
		{holdfast.Done, store.PruneAges{Done: time.Microsecond, Archived: time.Hour}},
		{holdfast.Cancelled, store.PruneAges{Cancelled: time.Microsecond}},
		{holdfast.Archived, store.PruneAges{Archived: time.Microsecond, Done: time.Hour}},
	} {
		s.prune(step.ages, 1)
		gone[step.state] = true
		for state, task := range tasks {
			if _, err := s.Task(s.ctx, task.ID); errors.Is(err, holdfast.ErrNotFound) != gone[state] {
				s.Errorf("after %s, a task that is %s: %v", step.state, state, err)
			}
		}
	}
	if _, err := s.Attempts(s.ctx, tasks[holdfast.Archived].ID); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the attempts of a deleted task: %v", err)
	}
}

func testPruneLimit(s *suite) {
	run := s.openRun()
	var moves []holdfast.Transition
	for _, task := range s.claimed(run, s.inserts(1500)...) {
		moves = append(moves, s.settle(task, holdfast.Returned(nil)))
	}
	s.apply(moves...)
	ages := store.PruneAges{Done: time.Microsecond}
	if n, err := s.Prune(s.ctx, ages, 1200); n != 1200 || err != nil {
		s.Errorf("pruned %d, %v", n, err)
	}
	if n, err := s.Prune(s.ctx, ages, 1200); n != 300 || err != nil {
		s.Errorf("then pruned %d, %v", n, err)
	}
}

func testPruneRuns(s *suite) {
	live := s.openRun()
	stopped := s.openRun()
	s.must(s.CloseRun(s.ctx, stopped, false))
	tickets := s.inserts(1)
	dead := s.deadRun(func(run holdfast.RunID) { s.claimed(run, tickets...) })
	list := func() (ids []holdfast.RunID) {
		runs, err := s.Runs(s.ctx, true)
		s.must(err)
		for _, run := range runs {
			ids = append(ids, run.ID)
		}
		return ids
	}
	// A janitor has not yet seen that they own nothing.
	if n, err := s.Prune(s.ctx, store.PruneAges{Runs: time.Microsecond}, 1000); err != nil || !slices.Contains(list(), dead) {
		s.Errorf("pruned %d, among them a run that owns a task, %v", n, err)
	}
	abandoned, err := s.Abandoned(s.ctx, 0, 10)
	s.must(err)
	for _, task := range abandoned {
		s.move(task, holdfast.Crashed(dead))
	}
	_, err = s.Abandoned(s.ctx, 0, 10)
	s.must(err)
	s.eventually("only the live run is left", func() bool {
		_, err := s.Prune(s.ctx, store.PruneAges{Runs: time.Microsecond}, 1000)
		s.must(err)
		return slices.Equal(list(), []holdfast.RunID{live})
	})
}
