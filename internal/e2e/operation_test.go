package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
)

// deadTasks stores n tasks that are dead.
func (w *world) deadTasks(t *testing.T, n int) {
	t.Helper()
	w.runJanitor(t, w.Backend, nil)
	_, stopWorker := w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"mail": consumer.HandlerFunc(func(context.Context, holdfast.Task) error {
		return holdfast.Permanent(errors.New("no order"))
	})})
	w.enqueue(t, n, holdfast.NewTask{Type: "mail"})
	w.awaitCount(t, 5*time.Minute, holdfast.Dead, int64(n))
	stopWorker()
}

// The process that makes the steps of an operation is killed with kill -9 at 20 random points, and another process
// continues. Every task is retried once, and the counts are exact. All the time janitors make steps too.
func TestAKilledOperationRetriesEachTaskOnce(t *testing.T) {
	onBothBackends(t, aKilledOperationRetriesEachTaskOnce)
}

func aKilledOperationRetriesEachTaskOnce(t *testing.T, w *world) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	n, kills := slow.Pick(3000, 15_000), slow.Pick(5, 20)
	w.deadTasks(t, n)
	plan, err := w.PlanOperation(t.Context(), operate.Request{
		Action: store.ActionRetry, Query: "state:dead", Filter: store.Filter{States: []holdfast.State{holdfast.Dead}},
		Ramp: []int{1, 5, 25, 100}, StopAbove: 1, StepTimeout: time.Millisecond, Rate: -1,
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
		poll(t, time.Minute, func() string { return "the operation makes no progress" }, func(ctx context.Context) bool {
			now, err := w.Store.Operation(ctx, o.ID)
			return err == nil && (now.Visited() >= point || now.State != store.OperationRunning)
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed
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
	w.awaitCount(t, time.Minute, holdfast.Ready, int64(n))
}
