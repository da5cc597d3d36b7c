package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// In a large store, the running tasks are those that the workers report in renewals, because no index has them.
func TestRunningTasksOfALargeStore(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for range 11 {
		insert(t, s, 1000)
	}
	tickets := insert(t, s, 3)
	worker, gone := register(t, s), register(t, s)
	running := func(when string, want ...holdfast.TaskID) {
		t.Helper()
		page, err := s.List(t.Context(), store.Filter{States: []holdfast.State{holdfast.Running}})
		if err != nil {
			t.Fatal(err)
		}
		var got []holdfast.TaskID
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		if !slices.Equal(got, want) || page.Next != 0 {
			t.Errorf("%s: the running tasks are %v, want %v; next %d", when, got, want, page.Next)
		}
		counts, err := s.Count(t.Context(), store.Filter{})
		if err != nil || counts.By[holdfast.Running] != int64(len(want)) || counts.By[holdfast.Ready] != 11003-int64(len(want)) {
			t.Errorf("%s: %+v, %v", when, counts, err)
		}
		queues, err := s.Queues(t.Context())
		if err != nil || queues[0].Running != int64(len(want)) || queues[0].Ready != 11003-int64(len(want)) {
			t.Errorf("%s: %+v, %v", when, queues, err)
		}
	}
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets[:2], store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed || claims[1].Verdict != store.Claimed {
		t.Fatalf("%+v, %v", claims, err)
	}
	if _, err := s.Claim(t.Context(), gone, store.AnyOf("t"), tickets[2:], store.IntoExecutors); err != nil {
		t.Fatal(err)
	}
	running("before a renewal")
	reportTasks(t, s, worker, tickets[0].Task, tickets[1].Task)
	running("after a renewal", tickets[1].Task, tickets[0].Task)
	reportTasks(t, s, gone, tickets[2].Task)
	if err := s.DeregisterWorker(t.Context(), gone, false); err != nil {
		t.Fatal(err)
	}
	running("a worker has ended", tickets[2].Task, tickets[1].Task, tickets[0].Task)
}

func register(t *testing.T, s *postgres.Store) holdfast.WorkerID {
	t.Helper()
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

func reportTasks(t *testing.T, s *postgres.Store, worker holdfast.WorkerID, tasks ...holdfast.TaskID) {
	t.Helper()
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Tasks: tasks}); err != nil {
		t.Fatal(err)
	}
}

// A page of tasks of several groups, and an insert of tasks in two blocks, are counted by group and block.
func TestCountsAcrossBlocks(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	change(t, s, "select setval('tasks_id_seq', 99990)")
	tickets := insert(t, s, 20)
	worker := register(t, s)
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	var moves []holdfast.Transition
	for _, claim := range claims {
		move, err := holdfast.Settle(*claim.Task, holdfast.Returned(nil), claim.Now, holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, move)
	}
	for _, part := range [][]holdfast.Transition{moves[:5], moves[5:]} { // the second part is in two blocks
		if _, err := s.Apply(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if corrected, err := s.Recount(t.Context()); err != nil || corrected != 0 {
			t.Errorf("%d, %v", corrected, err)
		}
	}
	if counts, err := s.Count(t.Context(), store.Filter{}); err != nil || counts.By[holdfast.Done] != 20 || counts.By[holdfast.Ready] != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
}
