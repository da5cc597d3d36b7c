package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var pruneTests = []test{
	{"deletes only old tasks of the given states", testPruneKinds},
	{"deletes at most limit rows", testPruneLimit},
	{"deletes workers without tasks", testPruneWorkers},
}

// prune calls Prune until it has deleted n rows.
func (s *suite) prune(ages store.PruneAges, n int) {
	s.Helper()
	total := 0
	s.eventually("the rows are old enough and deleted", func() bool {
		deleted, err := s.Prune(s.ctx, ages, 1000)
		s.must(err)
		total += deleted
		return total >= n
	})
	if total != n {
		s.Errorf("Prune deleted %d rows, want %d", total, n)
	}
}

func testPruneKinds(s *suite) {
	tasks := map[holdfast.State]holdfast.Task{}
	for _, state := range holdfast.States() {
		tasks[state] = s.taskIn(state)
	}
	for name, ages := range map[string]store.PruneAges{
		"ages of 0": {}, "ages of an hour": {Done: time.Hour, Cancelled: time.Hour, Archived: time.Hour, Workers: time.Hour},
	} {
		if n, err := s.Prune(s.ctx, ages, 1000); n != 0 || err != nil {
			s.Errorf("%s: Prune returned %d, %v; want 0", name, n, err)
		}
	}
	deleted := map[holdfast.State]bool{}
	for _, step := range []struct {
		state holdfast.State
		ages  store.PruneAges
	}{
		{holdfast.Done, store.PruneAges{Done: time.Microsecond, Archived: time.Hour}},
		{holdfast.Cancelled, store.PruneAges{Cancelled: time.Microsecond}},
		{holdfast.Archived, store.PruneAges{Archived: time.Microsecond, Done: time.Hour}},
	} {
		s.prune(step.ages, 1)
		deleted[step.state] = true
		for state, task := range tasks {
			if _, err := s.Task(s.ctx, task.ID); errors.Is(err, holdfast.ErrNotFound) != deleted[state] {
				s.Errorf("after Prune of %s: Task of a task that is %s returned %v", step.state, state, err)
			}
		}
	}
	if _, err := s.Attempts(s.ctx, tasks[holdfast.Archived].ID); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("Attempts of a deleted task: %v, want ErrNotFound", err)
	}
}

func testPruneLimit(s *suite) {
	worker := s.registerWorker()
	var moves []holdfast.Transition
	for _, task := range s.mustClaim(worker, s.insertN(1500)...) {
		moves = append(moves, s.settle(task, holdfast.Returned(nil)))
	}
	s.apply(moves...)
	ages := store.PruneAges{Done: time.Microsecond}
	if n, err := s.Prune(s.ctx, ages, 1200); n != 1200 || err != nil {
		s.Errorf("Prune returned %d, %v; want 1200", n, err)
	}
	if n, err := s.Prune(s.ctx, ages, 1200); n != 300 || err != nil {
		s.Errorf("the second Prune returned %d, %v; want 300", n, err)
	}
}

func testPruneWorkers(s *suite) {
	live := s.registerWorker()
	stopped := s.registerWorker()
	s.must(s.DeregisterWorker(s.ctx, stopped, false))
	tickets := s.insertN(1)
	dead := s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, tickets...) })
	list := func() (ids []holdfast.WorkerID) {
		workers, err := s.Workers(s.ctx, true)
		s.must(err)
		for _, worker := range workers {
			ids = append(ids, worker.ID)
		}
		return ids
	}
	// Abandoned has not yet found that these workers own no task.
	if n, err := s.Prune(s.ctx, store.PruneAges{Workers: time.Microsecond}, 1000); err != nil || !slices.Contains(list(), dead) {
		s.Errorf("Prune returned %d, %v and deleted a worker that owns a task", n, err)
	}
	abandoned, err := s.Abandoned(s.ctx, 0, 10)
	s.must(err)
	for _, task := range abandoned {
		s.move(task, holdfast.Crashed(dead))
	}
	_, err = s.Abandoned(s.ctx, 0, 10)
	s.must(err)
	s.eventually("only the live worker is left", func() bool {
		_, err := s.Prune(s.ctx, store.PruneAges{Workers: time.Microsecond}, 1000)
		s.must(err)
		return slices.Equal(list(), []holdfast.WorkerID{live})
	})
}
