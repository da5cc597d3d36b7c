package explain_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// source is a store with a task that is done, perhaps with a schedule and an entry of the audit log about it.
type source struct {
	explain.Source
	unique  string
	payload json.RawMessage
	plan    *store.Plan
	last    *store.AuditEntry
}

func (s *source) Task(_ context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	return holdfast.Task{ID: id, Type: "mail", State: holdfast.Done, Attempt: 1, Unique: s.unique, Payload: s.payload}, nil
}
func (s *source) Attempts(context.Context, holdfast.TaskID) ([]holdfast.Attempt, error) {
	return nil, nil
}
func (s *source) Positions(context.Context, []message.Ticket) ([]store.Position, error) {
	return make([]store.Position, 1), nil
}
func (s *source) Workers(context.Context, bool) ([]store.Worker, error)             { return nil, nil }
func (s *source) Now(context.Context) (time.Time, error)                            { return now, nil }
func (s *source) ListPlans(context.Context, store.PlanFilter) ([]store.Plan, error) { return nil, nil }

func (s *source) PlanByName(_ context.Context, kind store.PlanKind, name string) (store.Plan, error) {
	if s.plan == nil || kind != s.plan.Kind || name != s.plan.Name {
		return store.Plan{}, fmt.Errorf("%w: no plan", holdfast.ErrNotFound)
	}
	return *s.plan, nil
}
func (s *source) AuditLog(_ context.Context, f store.AuditFilter) ([]store.AuditEntry, error) {
	if s.last == nil || f.Subject != s.last.Subject {
		return nil, nil
	}
	return []store.AuditEntry{*s.last}, nil
}

// An explanation names the schedule that has made a task, and claims nothing about a key that only looks like one.
func TestScheduleOfATask(t *testing.T) {
	t.Parallel()
	spec := plan.Schedule{Every: plan.Duration(time.Hour), Missed: plan.MissedOne, Overlap: 1, Task: plan.Task{Type: "mail"}}
	nightly, err := spec.Plan("nightly", now.Add(-20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*store.Plan, *plan.ScheduleProgress)) *store.Plan {
		p := nightly
		_, progress, err := plan.ReadSchedule(p)
		if err != nil {
			t.Fatal(err)
		}
		change(&p, &progress)
		if p.Progress, err = json.Marshal(progress); err != nil {
			t.Fatal(err)
		}
		return &p
	}
	entry := func(action store.Action) *store.AuditEntry {
		return &store.AuditEntry{At: now.Add(-2 * time.Hour), Actor: store.Actor{Name: "anna"}, Action: action, Subject: "schedule nightly"}
	}
	const key, made = "schedule/nightly/2030-01-30T02:30:00Z", "made by the schedule nightly for 2030-01-30T02:30:00Z"
	for name, c := range map[string]struct {
		source  source
		want    string // "" if the explanation has no schedule
		state   store.PlanState
		nextRun bool
	}{
		"no key":        {source{}, "", "", false},
		"another key":   {source{unique: "order-7", plan: &nightly}, "", "", false},
		"a similar key": {source{unique: "schedule/nightly/soon", plan: &nightly}, "", "", false},
		"running":       {source{unique: key, plan: &nightly}, made + "; the schedule stores its next task in 40m0s", store.PlanRunning, true},
		"late":          {source{unique: key, plan: with(func(p *store.Plan, _ *plan.ScheduleProgress) { p.NextAt = now.Add(-time.Hour) })}, made + "; the schedule stores its next task in 0s", store.PlanRunning, true},
		"it waits for its open task": {source{unique: key, plan: with(func(_ *store.Plan, progress *plan.ScheduleProgress) { progress.Waiting = now })},
			made + "; the schedule stores its next task when its open task has ended", store.PlanRunning, false},
		"paused": {source{unique: key, plan: with(func(p *store.Plan, _ *plan.ScheduleProgress) { *p = plan.PausedSchedule(*p) })},
			made + "; the schedule is paused", store.PlanPaused, false},
		"it has paused itself": {source{unique: key, plan: with(func(p *store.Plan, progress *plan.ScheduleProgress) {
			*p, progress.PausedBy = plan.PausedSchedule(*p), "the last 3 tasks are dead"
		})}, made + "; the schedule has paused itself, because the last 3 tasks are dead", store.PlanPaused, false},
		"a newer version": {source{unique: key, plan: with(func(p *store.Plan, _ *plan.ScheduleProgress) { p.Spec = []byte(`{"weekday": 1}`) })},
			made + "; the schedule is running, and a newer version has stored it", store.PlanRunning, false},
		"a backfill that runs again": {source{unique: key + "/2030-01-31T08:00:00Z", plan: &nightly},
			"made by a backfill of the schedule nightly for 2030-01-30T02:30:00Z; the schedule stores its next task in 40m0s", store.PlanRunning, true},
		"deleted":     {source{unique: key, last: entry(store.ActionDelete)}, made + "; anna deleted the schedule 2h0m0s ago", store.PlanDeleted, false},
		"ended":       {source{unique: key, last: entry(store.ActionCreate)}, made + "; the schedule has ended", store.PlanDone, false},
		"no schedule": {source{unique: key}, "its unique key names the schedule nightly, which does not exist, or does not exist any more", "", false},
	} {
		e, err := explain.Read(t.Context(), &c.source, 7, holdfast.Settings{}, store.PruneAges{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Schedule == nil {
			e.Schedule = &explain.Origin{}
		}
		if s := e.Schedule; s.Text != c.want || s.State != c.state || !s.NextRun.IsZero() != c.nextRun || c.want != "" && s.Name != "nightly" {
			t.Errorf("%s: %+v, want %q, %q, %t", name, s, c.want, c.state, c.nextRun)
		}
	}
}
