package app_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
)

// A person can run a paused schedule any number of times, but at most plan.MaxOverlap of its tasks are open.
func TestRunsOfASchedule(t *testing.T) {
	t.Parallel()
	ctx, anna := t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}
	now := time.Now()
	b := &app.Backend{Store: desk.Without(memory.New(func() time.Time { return now }).Client(nil))}
	spec := plan.Schedule{
		Every: plan.Duration(time.Hour), Missed: plan.MissedOne, CatchUp: plan.DefaultCatchUp, Overlap: 1, Task: plan.Task{Type: "report", Queue: "default"},
	}
	p, err := spec.Plan("nightly", now)
	if err == nil {
		_, err = b.Store.CreatePlan(ctx, anna, plan.PausedSchedule(p))
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func() (holdfast.TaskID, error) {
		now = now.Add(time.Millisecond)
		_, task, err := b.RunSchedule(ctx, anna, "nightly")
		return task, err
	}
	first, err := run()
	for range plan.MaxOverlap - 1 {
		if err == nil {
			_, err = run()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("one run too many: %v", err)
	}
	task, err := b.Store.Task(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventCancel), now, holdfast.DefaultPolicy())
	if err == nil {
		_, err = b.Store.Apply(ctx, []holdfast.Transition{move})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(); err != nil {
		t.Errorf("a run after the end of one: %v", err)
	}
}
