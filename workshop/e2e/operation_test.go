package e2e

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// deadTasks stores n tasks that are dead. It makes the calls of a worker, because a worker with the race detector would
// take minutes.
func (w *world) deadTasks(t *testing.T, n int) {
	t.Helper()
	worker, err := w.Store.RegisterWorker(t.Context(), store.WorkerInfo{Name: "no process"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for tasks := range slices.Chunk(slices.Repeat([]holdfast.NewTask{{Type: "mail", Queue: holdfast.DefaultQueue, MaxAttempts: 1}}, n), message.MaxTickets) {
		inserted, err := w.Store.Insert(t.Context(), tasks, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Store.DeleteOutbox(t.Context(), []int64{inserted.Entries[0].ID}); err != nil {
			t.Fatal(err)
		}
		claims, err := w.Store.Claim(t.Context(), worker, store.AnyOf("mail"), inserted.Entries[0].Tickets, store.IntoExecutors)
		if err != nil {
			t.Fatal(err)
		}
		moves := make([]holdfast.Transition, len(claims))
		for i, claim := range claims {
			if moves[i], err = holdfast.Settle(*claim.Task, holdfast.Returned(holdfast.Permanent(errors.New("no order"))), claim.Now, holdfast.DefaultPolicy()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Store.Apply(t.Context(), moves); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Store.DeregisterWorker(t.Context(), worker, true); err != nil {
		t.Fatal(err)
	}
	w.runJanitor(t, w.Backend, nil)
	w.awaitCount(t, holdfast.Dead, int64(n))
}

var dead = flag.Int("dead", 0, "number of dead tasks for TestAKilledOperationRetriesEachTaskOnce")

// The process that makes the steps of an operation is killed with kill -9 at 20 random points, and another process
// continues. Every task is retried once, and the counts are exact. Janitors make steps at the same time.
func TestAKilledOperationRetriesEachTaskOnce(t *testing.T) {
	onAFileFirst(t, aKilledOperationRetriesEachTaskOnce)
}

func aKilledOperationRetriesEachTaskOnce(t *testing.T, w *world) {
	path, err := fastBinary()
	if err != nil {
		t.Fatal(err)
	}
	n, kills := slow.Pick(1500, 100_000), slow.Pick(3, 20)
	if w.embedded && len(raceFlags) > 0 { // the detector makes the file ten times as slow
		n = min(n, 15_000)
	}
	if *dead > 0 {
		n = *dead
	}
	w.deadTasks(t, n)
	plan, err := w.PlanOperation(t.Context(), operate.Request{
		Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
		Ramp: []int{1, 5, 25, 100}, StopAbove: new(1.0), StepTimeout: time.Millisecond, Rate: -1,
	})
	if err != nil || plan.Operation.Total != int64(n) || len(plan.Samples) == 0 {
		t.Fatalf("plan %+v: %v", plan, err)
	}
	o, err := w.StartOperation(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, plan.Operation, false)
	if err != nil {
		t.Fatal(err)
	}
	points := make([]int64, kills)
	for i := range points {
		points[i] = rand.Int64N(int64(n))
	}
	slices.Sort(points)
	for _, point := range points {
		cmd := exec.CommandContext(t.Context(), path, "operation", "watch", o.ID.String())
		cmd.Env = w.environment()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		poll(t, func() string { return "the operation makes no progress" }, func(ctx context.Context) bool {
			now, err := w.Store.Operation(ctx, o.ID)
			return err == nil && (now.Visited() >= point || now.State != store.OperationRunning)
		})

		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the error says that the process was killed
	}
	end, err := w.AwaitOperation(t.Context(), o.ID, func(store.Operation) {})
	if err != nil || end.State != store.OperationDone || end.Changed != int64(n) || end.Skipped != 0 || end.Total != int64(n) {
		t.Errorf("the operation is %+v: %v", end, err)
	}
	times := make(map[holdfast.TaskID]int)
	for before := store.ID(0); ; {
		entries, err := w.Store.AuditLog(t.Context(), store.AuditFilter{Operation: o.ID, Before: before, Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			break
		}
		for _, e := range entries {
			if before = e.ID; e.Task != 0 {
				times[e.Task]++
			}
		}
	}
	if len(times) != n {
		t.Errorf("the audit log has %d tasks, want %d", len(times), n)
	}
	for id, k := range times {
		if k != 1 {
			t.Errorf("task %s was retried %d times", id, k)
		}
	}
	w.awaitCount(t, holdfast.Ready, int64(n))
}
