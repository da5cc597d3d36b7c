package app_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
)

// What this version cannot read does not hide what it can read, and people can delete it.
func TestUnreadablePlansAreListedAndDeleted(t *testing.T) {
	t.Parallel()
	ctx, anna := t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}
	b := &app.Backend{Store: desk.Without(memory.New(time.Now).Client(nil))}
	create := func(p store.Plan) {
		t.Helper()
		if _, err := b.Store.CreatePlan(ctx, anna, p); err != nil {
			t.Fatal(err)
		}
	}
	const name = "odd"
	for _, kind := range []store.PlanKind{store.ScheduleKind, store.SourceKind, store.ShardKind, store.BatchKind} {
		create(store.Plan{Kind: kind, Name: name, State: store.PlanRunning, Spec: json.RawMessage(`{"newer": 1}`)})
	}
	create(plan.Source{Type: "pull", Every: new(plan.Duration(time.Hour))}.Plan("shop", plan.Source{}, time.Now()))
	want := func(list string, n int, err error, why string) {
		t.Helper()
		if err != nil || n == 0 || !strings.Contains(why, "this version cannot read it; use the version that has stored it, or delete it") {
			t.Errorf("%s: %d, %v, %q", list, n, err, why)
		}
	}
	schedules, err := b.Schedules(ctx, "", 10)
	_, why := schedules[0].Failing()
	want("schedules", len(schedules), err, why)
	jobs, err := b.ShardJobs(ctx, "", 10)
	_, why = jobs[0].Failing()
	want("shard jobs", len(jobs), err, why)
	batches, err := b.Batches(ctx, nil, 0, 10)
	_, why = batches[0].Failing()
	want("batches", len(batches), err, why)
	sources, err := b.Sources(ctx, "", 10)
	_, why = sources[0].Failing()
	want("sources", len(sources)-1, err, why)
	if _, _, err := b.DeleteSchedule(ctx, anna, name); err != nil {
		t.Error(err)
	}
	if _, _, err := b.DeleteSource(ctx, anna, name); err != nil {
		t.Error(err)
	}
	if _, _, err := b.DeleteShardJob(ctx, anna, name); err != nil {
		t.Error(err)
	}
	sources, err = b.Sources(ctx, "", 10)
	if err != nil || len(sources) != 1 || sources[0].Name != "shop" {
		t.Errorf("after the deletion: %+v, %v", sources, err)
	}
}
