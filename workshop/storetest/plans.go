package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var planTests = []test{
	{"stores plans with all their values", testPlanValues},
	{"a name belongs to one plan of a kind that has not ended", testPlanNames},
	{"lists plans by name", testListPlans},
	{"finds due plans, the earliest first", testDuePlans},
	{"a step stores tasks and the plan in one transaction", testPlanStep},
	{"a step with another version changes nothing", testPlanVersion},
	{"postpones plans whose steps have failed", testFailPlans},
	{"postpones plans that have not changed", testPostponePlans},
	{"keeps a large spec", testLargeSpec},
	{"makes each step once if several processes try", testPlanSteps},
	{"a step stores no task with a unique key that is taken", testPlanDuplicate},
	{"records what a person does with a plan", testPlanAudit},
	{"a failed step changes nothing", testFailedPlanStep},
	{"stores and deletes items with the step", testPlanItems},
	{"an attempt that runs saves items, and changes nothing else", testPlanFence},
	{"lists ended plans, the newest first, and plans by id", testListAllPlans},
	{"a step stores members of the plan", testPlanMembers},
	{"a step stores members of any kind", testPlanMixedMembers},
	{"a step of any version waits for other steps", testPlanStepAccept},
	{"a step of an attempt that has ended changes nothing", testPlanStepFence},
	{"counts the members in ranges of ids", testPlanTally},
	{"counts the members among other tasks", testPlanTallyAmongOthers},
	{"lists and counts the tasks of a batch", testListBatch},
	{"prunes the tasks of a batch after its end", testPruneBatch},
	{"prunes the items of an ended plan in steps", testPruneItems},
}

// planOf returns a running schedule that is due in d. 0 means never.
func (s *suite) planOf(name string, d time.Duration) store.Plan {
	s.Helper()
	p := store.Plan{Kind: store.ScheduleKind, Name: name, State: store.PlanRunning, Spec: json.RawMessage(`{"every":"1m"}`)}
	if d != 0 {
		p.NextAt = s.now().Add(d).Truncate(time.Microsecond)
	}
	return p
}

func (s *suite) createPlan(p store.Plan) store.Plan {
	s.Helper()
	created, err := s.CreatePlan(s.ctx, anna, p)
	s.must(err)
	return created
}

// stepTo makes a step that stores the plan as it is.
func (s *suite) stepTo(from, to store.Plan, tasks ...holdfast.NewTask) (store.Plan, error) {
	return s.StepPlan(s.ctx, store.PlanStep{From: from, Insert: tasks}, func(store.Inserted) (store.Plan, []store.PlanItem) { return to, nil })
}

func (s *suite) planByName(name string) store.Plan {
	s.Helper()
	p, err := s.PlanByName(s.ctx, store.ScheduleKind, name)
	s.must(err)
	return p
}

func namesOf(plans []store.Plan) string {
	var names []string
	for _, p := range plans {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func testPlanValues(s *suite) {
	before := s.now()
	want := s.planOf("nightly", time.Hour)
	created := s.createPlan(want)
	if created.ID == 0 || created.Version == 0 || created.CreatedAt.Before(before) || created.CreatedAt.After(s.now()) || !created.EndedAt.IsZero() || created.Actor != anna {
		s.Errorf("created: %+v", created)
	}
	got := s.planByName("nightly")
	if got.ID != created.ID || got.Kind != want.Kind || got.State != want.State || !got.NextAt.Equal(want.NextAt) || string(got.Spec) != string(want.Spec) ||
		string(got.Progress) != "{}" || got.Version != created.Version || got.Actor != anna || !got.CreatedAt.Equal(created.CreatedAt) {
		s.Errorf("read: %+v, want %+v", got, created)
	}
	if never := s.createPlan(s.planOf("never", 0)); !s.planByName("never").NextAt.IsZero() || !never.NextAt.IsZero() {
		s.Errorf("a plan without a next time: %+v", never)
	}
	if _, err := s.PlanByName(s.ctx, store.ScheduleKind, "other"); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("an unknown plan: %v", err)
	}
	if _, err := s.PlanByName(s.ctx, "other", "nightly"); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("a plan of another kind: %v", err)
	}
}

func testPlanNames(s *suite) {
	first := s.createPlan(s.planOf("a", 0))
	if _, err := s.CreatePlan(s.ctx, anna, s.planOf("a", 0)); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("a second plan with the name: %v", err)
	}
	other := s.planOf("a", 0)
	other.Kind = "other"
	s.createPlan(other)
	ended := first
	ended.State = store.PlanDeleted
	ended, err := s.stepTo(first, ended)
	s.must(err)
	if ended.EndedAt.IsZero() {
		s.Errorf("the plan has no time of its end: %+v", ended)
	}
	if _, err := s.PlanByName(s.ctx, store.ScheduleKind, "a"); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the name of an ended plan: %v", err)
	}
	if second := s.createPlan(s.planOf("a", 0)); second.ID <= first.ID {
		s.Errorf("the new plan has the id %s, the old one %s", second.ID, first.ID)
	}
	if entries := s.auditLog(store.AuditFilter{Subject: "schedule a"}); len(entries) != 2 { // the refused plan has none
		s.Errorf("entries: %+v", entries)
	}
}

func testListPlans(s *suite) {
	for _, name := range []string{"b", "a", "c", "B"} {
		s.createPlan(s.planOf(name, 0))
	}
	deleted := s.createPlan(s.planOf("deleted", 0))
	done := deleted
	done.State = store.PlanDone
	_, err := s.stepTo(deleted, done)
	s.must(err)
	other := s.planOf("other", 0)
	other.Kind = "other"
	s.createPlan(other)
	for _, c := range []struct {
		filter store.PlanFilter
		want   string
	}{
		{store.PlanFilter{Kind: store.ScheduleKind}, "B a b c"},
		{store.PlanFilter{Kind: store.ScheduleKind, Limit: 2}, "B a"},
		{store.PlanFilter{Kind: store.ScheduleKind, After: "a"}, "b c"},
		{store.PlanFilter{Kind: "other"}, "other"},
	} {
		found, err := s.ListPlans(s.ctx, c.filter)
		s.must(err)
		if got := namesOf(found); got != c.want {
			s.Errorf("%+v: found %s, want %s", c.filter, got, c.want)
		}
	}
}

func testDuePlans(s *suite) {
	for name, d := range map[string]time.Duration{"late": -time.Hour, "due": -time.Second, "soon": time.Minute, "far": time.Hour, "never": 0} {
		s.createPlan(s.planOf(name, d))
	}
	other := s.planOf("other", -time.Minute)
	other.Kind = "other"
	s.createPlan(other)
	schedules := []store.PlanKind{store.ScheduleKind}
	for _, c := range []struct {
		kinds  []store.PlanKind
		within time.Duration
		limit  int
		want   string
	}{
		{schedules, 0, 10, "late due"},
		{schedules, 0, 1, "late"},
		{schedules, 2 * time.Minute, 10, "late due soon"},
		{schedules, -time.Minute, 10, "late"},
		{[]store.PlanKind{store.ScheduleKind, "other"}, 0, 10, "late other due"},
	} {
		found, err := s.DuePlans(s.ctx, c.kinds, c.within, c.limit)
		s.must(err)
		if got := namesOf(found); got != c.want {
			s.Errorf("%v within %s, at most %d: found %s, want %s", c.kinds, c.within, c.limit, got, c.want)
		}
	}
}

func testPlanStep(s *suite) {
	p := s.createPlan(s.planOf("a", -time.Second))
	tasks := []holdfast.NewTask{
		{Type: "t", Queue: "one", Payload: json.RawMessage(`{"n":1}`), Key: "k", Tags: []string{"red"}},
		{Type: "t", Queue: "two", Delay: time.Hour},
	}
	var inserted store.Inserted
	stepped, err := s.StepPlan(s.ctx, store.PlanStep{From: p, Insert: tasks}, func(got store.Inserted) (store.Plan, []store.PlanItem) {
		inserted = got
		to := p
		to.Spec, to.NextAt = json.RawMessage(`{"every":"2m"}`), p.NextAt.Add(time.Minute)
		to.Progress = json.RawMessage(fmt.Sprintf(`{"task":"%s"}`, got.Tasks[0].ID))
		return to, nil
	})
	s.must(err)
	read := s.planByName("a")
	if stepped.Version <= p.Version || read.Version != stepped.Version || string(read.Spec) != `{"every":"2m"}` || !read.NextAt.Equal(p.NextAt.Add(time.Minute)) ||
		string(read.Progress) != fmt.Sprintf(`{"task":"%s"}`, inserted.Tasks[0].ID) || string(stepped.Progress) != string(read.Progress) || read.Actor != anna {
		s.Errorf("after the step: %+v, returned %+v", read, stepped)
	}
	if task := s.task(inserted.Tasks[0].ID); task.Queue != "one" || string(task.Payload) != `{"n":1}` || task.Key != "k" || !slices.Equal(task.Tags, []string{"red"}) {
		s.Errorf("the first task: %+v", task)
	}
	if task := s.task(inserted.Tasks[1].ID); !task.NextRunAt.After(s.now()) {
		s.Errorf("the second task is due at %s", task.NextRunAt)
	}
	if n := DispatchOutbox(s.T, s); n != 1 {
		s.Errorf("%d tickets are published at once, want that of the due task", n)
	}
	if entries := s.auditLog(store.AuditFilter{Subject: "schedule a"}); len(entries) != 1 {
		s.Errorf("entries: %+v", entries)
	}
}

func testPlanVersion(s *suite) {
	p, other := s.createPlan(s.planOf("a", -time.Second)), s.createPlan(s.planOf("b", -time.Second))
	to := p
	to.NextAt = time.Time{}
	_, err := s.stepTo(p, to)
	s.must(err)
	for _, tasks := range [][]holdfast.NewTask{nil, {{Type: "t", Queue: defaultQueue}}} {
		if _, err := s.stepTo(p, p, tasks...); !errors.Is(err, holdfast.ErrConflict) {
			s.Errorf("a late step with %d tasks: %v", len(tasks), err)
		}
	}
	if got := s.planByName("a"); !got.NextAt.IsZero() || got.Version != p.Version+1 {
		s.Errorf("after late steps: %+v", got)
	}
	if got := s.planByName("b"); got.Version != other.Version || !got.NextAt.Equal(other.NextAt) {
		s.Errorf("another plan: %+v", got)
	}
	if page, err := s.List(s.ctx, store.Filter{Limit: 10}); err != nil || len(page.Tasks) != 0 {
		s.Errorf("late steps stored %+v, %v", page.Tasks, err)
	}
}

func testFailPlans(s *suite) {
	due := func(name string) store.Plan { return s.createPlan(s.planOf(name, -time.Second)) }
	first, second, changed, never := due("a"), due("b"), due("c"), s.createPlan(s.planOf("d", 0))
	_, err := s.stepTo(changed, changed)
	s.must(err)
	fail := func(pause time.Duration, plans ...store.Plan) {
		s.Helper()
		failed := make([]store.PlanFailure, len(plans))
		for i, p := range plans {
			failed[i] = store.PlanFailure{Plan: p, Error: "no\x00 zone " + strings.Repeat("é", 2*store.MaxPlanFailure), Pause: pause}
		}
		s.must(s.FailPlans(s.ctx, failed))
	}
	want := func(name string, failures int, after time.Duration) store.Plan {
		s.Helper()
		p := s.planByName(name)
		wait := p.NextAt.Sub(s.now())
		if p.Failures != failures || (failures > 0) != strings.HasPrefix(p.Failure, "no\uFFFD zone é") || wait > after || after > 0 && wait < after-time.Minute {
			s.Errorf("plan %s: %d failures, %.20q, next in %s; want %d failures, and %s", name, p.Failures, p.Failure, wait, failures, after)
		}
		return p
	}
	fail(0)
	fail(time.Hour, second, changed, never, first)
	fail(2*time.Hour, first) // another process has read the plan before it failed
	want("b", 1, time.Hour)
	want("c", 0, 0)
	if p := want("d", 0, 0); !p.NextAt.IsZero() {
		s.Errorf("a plan without a next time: %+v", p)
	}
	again := want("a", 1, time.Hour)
	fail(2*time.Hour, again)
	again = want("a", 2, 2*time.Hour)
	if plans, err := s.DuePlans(s.ctx, []store.PlanKind{store.ScheduleKind}, 0, 10); err != nil || namesOf(plans) != "c" {
		s.Errorf("due: %s, %v; want c", namesOf(plans), err)
	}
	again.NextAt = s.now()
	stepped, err := s.stepTo(again, again)
	s.must(err)
	if stepped.Failures != 0 || stepped.Failure != "" {
		s.Errorf("after a step: %d failures, %q", stepped.Failures, stepped.Failure)
	}
	want("a", 0, 0)
}

func testPostponePlans(s *suite) {
	due := func(name string) store.Plan { return s.createPlan(s.planOf(name, -time.Second)) }
	first, second, changed, never := due("a"), due("b"), due("c"), s.createPlan(s.planOf("d", 0))
	_, err := s.stepTo(changed, changed)
	s.must(err)
	postponed, err := s.PostponePlans(s.ctx, []store.Plan{changed, second, never, first}, time.Hour)
	slices.Sort(postponed)
	if err != nil || !slices.Equal(postponed, []store.ID{first.ID, second.ID}) {
		s.Errorf("postponed %v, %v; want %v and %v", postponed, err, first.ID, second.ID)
	}
	for _, p := range []store.Plan{first, second} {
		got := s.plan(p.ID)
		if wait := got.NextAt.Sub(s.now()); got.Version != p.Version || wait > time.Hour || wait < time.Hour-time.Minute {
			s.Errorf("plan %s has version %d, next in %s; want version %d, next in an hour", p.Name, got.Version, wait, p.Version)
		}
	}
	if got := s.plan(never.ID); !got.NextAt.IsZero() {
		s.Errorf("a plan without a next time: %+v", got)
	}
	if plans, err := s.DuePlans(s.ctx, []store.PlanKind{store.ScheduleKind}, 0, 10); err != nil || namesOf(plans) != "c" {
		s.Errorf("due: %s, %v; want c", namesOf(plans), err)
	}
	if postponed, err := s.PostponePlans(s.ctx, nil, time.Hour); err != nil || len(postponed) > 0 {
		s.Errorf("no plans: %v, %v", postponed, err)
	}
}

func testLargeSpec(s *suite) {
	random := make([]byte, 100_000) // it cannot be compressed
	for i := range random {
		random[i] = byte('a' + rand.IntN(26))
	}
	p := s.planOf("a", -time.Second)
	p.Spec = json.RawMessage(`{"x": "` + string(random) + `"}`)
	p, spec := s.createPlan(p), string(p.Spec)
	small := s.createPlan(s.planOf("b", -time.Second))
	due, err := s.DuePlans(s.ctx, []store.PlanKind{store.ScheduleKind}, 0, 10)
	s.must(err)
	for _, found := range due {
		if got := string(found.Spec); found.ID == small.ID && got != string(small.Spec) || found.ID == p.ID && got != "" && got != spec {
			s.Errorf("the spec of plan %s has %d bytes", found.Name, len(got))
		}
	}
	stepped, err := s.stepTo(p, p)
	s.must(err)
	if string(stepped.Spec) != spec || string(s.plan(p.ID).Spec) != spec {
		s.Error("a step without another spec has changed it")
	}
	other := stepped
	other.Spec = json.RawMessage(`{"y": 1}`)
	stepped, err = s.stepTo(stepped, other)
	s.must(err)
	if string(stepped.Spec) != string(other.Spec) || string(s.plan(p.ID).Spec) != string(other.Spec) {
		s.Errorf("after a step with another spec: %.50s", s.plan(p.ID).Spec)
	}
}

func testPlanSteps(s *suite) {
	const steps = 20
	s.createPlan(s.planOf("a", -time.Second))
	var conflicts atomic.Int64
	var processes sync.WaitGroup
	for range 4 {
		processes.Go(func() {
			for {
				p, err := s.PlanByName(s.ctx, store.ScheduleKind, "a")
				if err != nil || p.Version > steps {
					if err != nil {
						s.Error(err)
					}
					return
				}
				_, err = s.stepTo(p, p, holdfast.NewTask{Type: "t", Queue: defaultQueue})
				switch {
				case errors.Is(err, holdfast.ErrConflict):
					conflicts.Add(1)
				case err != nil:
					s.Error(err)
					return
				}
			}
		})
	}
	processes.Wait()
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if counts.By[holdfast.Ready] != steps {
		s.Errorf("%d tasks are stored after %d steps; %d late steps", counts.By[holdfast.Ready], steps, conflicts.Load())
	}
}

func testPlanDuplicate(s *suite) {
	task := holdfast.NewTask{Type: "t", Queue: defaultQueue, Unique: "u"}
	first := s.insert(task)[0].Task
	p := s.createPlan(s.planOf("a", -time.Second))
	var inserted store.Inserted
	_, err := s.StepPlan(s.ctx, store.PlanStep{From: p, Insert: []holdfast.NewTask{task}}, func(got store.Inserted) (store.Plan, []store.PlanItem) {
		inserted = got
		return p, nil
	})
	s.must(err)
	if len(inserted.Tasks) != 1 || !inserted.Tasks[0].Duplicate || inserted.Tasks[0].ID != first {
		s.Errorf("the step stored %+v, want the duplicate %s", inserted.Tasks, first)
	}
}

func testPlanAudit(s *suite) {
	p := s.createPlan(s.planOf("a", -time.Second))
	to := p
	to.State = store.PlanPaused
	by := store.Actor{Name: "bert", Surface: store.API, Reason: "holidays"}
	_, err := s.StepPlan(s.ctx, store.PlanStep{From: p, By: &by, Action: store.ActionPause}, func(store.Inserted) (store.Plan, []store.PlanItem) { return to, nil })
	s.must(err)
	entries := s.auditLog(store.AuditFilter{Subject: p.Subject()})
	if len(entries) != 2 || entries[0].Actor != by || entries[0].Action != store.ActionPause || entries[1].Action != store.ActionCreate || entries[1].Actor != anna ||
		!strings.Contains(string(entries[0].Before), "running") || !strings.Contains(string(entries[0].After), "paused") || !strings.Contains(string(entries[1].After), "every") {
		s.Errorf("entries: %+v", entries)
	}
}

func testFailedPlanStep(s *suite) {
	p := s.createPlan(s.planOf("a", -time.Second))
	by := store.Actor{Name: strings.Repeat("x", 300), Surface: store.API} // too long
	if _, err := s.CreatePlan(s.ctx, by, s.planOf("b", 0)); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a plan of an invalid actor: %v", err)
	}
	step := store.PlanStep{From: p, Insert: []holdfast.NewTask{{Type: "t", Queue: defaultQueue}}, By: &by, Action: store.ActionRun}
	if _, err := s.StepPlan(s.ctx, step, func(store.Inserted) (store.Plan, []store.PlanItem) { return p, nil }); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a step of an invalid actor: %v", err)
	}
	if found, err := s.ListPlans(s.ctx, store.PlanFilter{Kind: store.ScheduleKind}); err != nil || namesOf(found) != "a" || found[0].Version != p.Version {
		s.Errorf("after the failed calls: %+v, %v", found, err)
	}
	if page, err := s.List(s.ctx, store.Filter{Limit: 10}); err != nil || len(page.Tasks) != 0 {
		s.Errorf("the failed step stored %+v, %v", page.Tasks, err)
	}
}

// itemsOf returns the names of items of a plan.
func (s *suite) itemsOf(p store.Plan, f store.PlanItemFilter) string {
	s.Helper()
	items, err := s.PlanItems(s.ctx, p.ID, f)
	s.must(err)
	var names []string
	for _, i := range items {
		names = append(names, i.Item)
	}
	return strings.Join(names, " ")
}

func testPlanItems(s *suite) {
	p, other := s.createPlan(s.planOf("a", 0)), s.createPlan(s.planOf("b", 0))
	now := s.now().Truncate(time.Microsecond)
	put := func(drop []string, items ...store.PlanItem) {
		s.Helper()
		var err error
		p, err = s.StepPlan(s.ctx, store.PlanStep{From: p, Drop: drop}, func(store.Inserted) (store.Plan, []store.PlanItem) { return p, items })
		s.must(err)
	}
	_, err := s.StepPlan(s.ctx, store.PlanStep{From: other}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		return other, []store.PlanItem{{Item: "1", State: store.ItemOpen, NextAt: now}, {Item: "2", State: store.ItemOpen, NextAt: now}}
	})
	s.must(err)
	put(nil,
		store.PlanItem{Item: "3", State: store.ItemOpen, NextAt: now.Add(-time.Minute), Data: json.RawMessage(`{"task":"7"}`)},
		store.PlanItem{Item: "1", State: store.ItemOpen, NextAt: now.Add(-time.Second)},
		store.PlanItem{Item: "B", State: store.ItemOpen, NextAt: now.Add(time.Hour)},
		store.PlanItem{Item: "a", State: store.ItemOpen},
		store.PlanItem{Item: "2", State: store.ItemDead, NextAt: now.Add(-time.Second)})
	for _, c := range []struct {
		filter store.PlanItemFilter
		want   string
	}{
		{store.PlanItemFilter{State: store.ItemOpen}, "1 3 B a"},
		{store.PlanItemFilter{State: store.ItemOpen, Limit: 2}, "1 3"},
		{store.PlanItemFilter{State: store.ItemOpen, After: "3"}, "B a"},
		{store.PlanItemFilter{}, "1 2 3 B a"},
		{store.PlanItemFilter{After: "1", Limit: 2}, "2 3"},
		{store.PlanItemFilter{State: store.ItemOpen, Due: true}, "3 1"},
		{store.PlanItemFilter{State: store.ItemOpen, Due: true, Limit: 1}, "3"},
		{store.PlanItemFilter{State: store.ItemOpen, Due: true, Within: 2 * time.Hour}, "3 1 B"},
		{store.PlanItemFilter{State: store.ItemDead}, "2"},
		{store.PlanItemFilter{State: store.ItemDead, Due: true}, "2"},
	} {
		if got := s.itemsOf(p, c.filter); got != c.want {
			s.Errorf("%+v: items %s, want %s", c.filter, got, c.want)
		}
	}
	items, err := s.PlanItems(s.ctx, p.ID, store.PlanItemFilter{State: store.ItemOpen})
	s.must(err)
	if i := items[1]; string(i.Data) != `{"task":"7"}` || !i.NextAt.Equal(now.Add(-time.Minute)) || string(items[0].Data) != "{}" || !items[3].NextAt.IsZero() {
		s.Errorf("items: %+v", items)
	}
	put([]string{"1", "none"}, store.PlanItem{Item: "3", State: store.ItemDead})
	if open, dead := s.itemsOf(p, store.PlanItemFilter{State: store.ItemOpen}), s.itemsOf(p, store.PlanItemFilter{State: store.ItemDead}); open != "B a" || dead != "2 3" {
		s.Errorf("after a change: open %s, dead %s", open, dead)
	}
	late := p
	late.Version--
	if _, err := s.StepPlan(s.ctx, store.PlanStep{From: late, Drop: []string{"2"}}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		return p, []store.PlanItem{{Item: "9", State: store.ItemOpen}}
	}); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("a late step: %v", err)
	}
	if open, dead := s.itemsOf(p, store.PlanItemFilter{State: store.ItemOpen}), s.itemsOf(p, store.PlanItemFilter{State: store.ItemDead}); open != "B a" || dead != "2 3" {
		s.Errorf("after a late step: open %s, dead %s", open, dead)
	}
	if got := s.itemsOf(other, store.PlanItemFilter{State: store.ItemOpen}); got != "1 2" {
		s.Errorf("another plan has %s", got)
	}
}

func testPlanFence(s *suite) {
	other := s.createPlan(s.planOf("b", 0)) // has the version that the first plan has lost
	p := s.createPlan(s.planOf("a", 0))
	task := s.runningTask()
	fence := store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker}
	save := func(p store.Plan, f store.Fence, item string) error {
		return s.SaveItems(s.ctx, p, f, []store.PlanItem{{Item: item, State: store.ItemOpen, Data: json.RawMessage(`{"offset":7}`)}})
	}
	s.must(save(p, fence, "1"))
	s.must(save(p, fence, "2"))
	items, err := s.PlanItems(s.ctx, p.ID, store.PlanItemFilter{State: store.ItemOpen})
	s.must(err)
	if len(items) != 2 || string(items[0].Data) != `{"offset":7}` {
		s.Errorf("items: %+v", items)
	}
	if got := s.planByName("a"); got.Version != p.Version {
		s.Errorf("an attempt that saves has changed the plan: %+v", got)
	}
	for _, other := range []store.Fence{
		{Task: task.ID + 1, Attempt: task.Attempt, Worker: task.Worker}, {Task: task.ID, Attempt: task.Attempt + 1, Worker: task.Worker},
		{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker + 1},
	} {
		if err := save(p, other, "3"); !errors.Is(err, store.ErrFenced) {
			s.Errorf("a save of %+v, the task is %+v: %v", other, task, err)
		}
	}
	stepped, err := s.stepTo(p, p)
	s.must(err)
	if err := save(p, fence, "4"); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("a save after a step, beside another plan with the version %d: %v", other.Version, err)
	}
	s.must(save(stepped, fence, "5"))
	s.move(task, holdfast.Returned(nil))
	if err := save(stepped, fence, "6"); !errors.Is(err, store.ErrFenced) {
		s.Errorf("a save of a finished attempt: %v", err)
	}
	if got := s.itemsOf(p, store.PlanItemFilter{State: store.ItemOpen}); got != "1 2 5" {
		s.Errorf("the items are %s", got)
	}
	if got := s.itemsOf(other, store.PlanItemFilter{State: store.ItemOpen}); got != "" {
		s.Errorf("the other plan has the items %s", got)
	}
}

// testPlansLater is a test of RunShifted: plans after the clock was set back, and ended plans that are old.
func testPlansLater(s *suite, shift func(table, column string, d time.Duration)) {
	soon, never := s.createPlan(s.planOf("soon", time.Minute)), s.createPlan(s.planOf("never", 0))
	never, err := s.StepPlan(s.ctx, store.PlanStep{From: never}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		return never, []store.PlanItem{{Item: "soon", State: store.ItemOpen, NextAt: soon.NextAt}, {Item: "never", State: store.ItemOpen}}
	})
	s.must(err)
	_, err = s.CorrectTimes(s.ctx) // stores the time
	s.must(err)
	shift("plans", "next_at", time.Hour)
	shift("plan_items", "next_at", time.Hour)
	shift("turns", "taken_at", time.Hour)
	_, err = s.CorrectTimes(s.ctx)
	s.must(err)
	if got := s.planByName("soon"); got.NextAt.After(s.now()) || got.Version != soon.Version {
		s.Errorf("after the clock was set back, the plan is %+v", got)
	}
	if got := s.planByName("never"); !got.NextAt.IsZero() {
		s.Errorf("after the clock was set back, the plan without a next time is %+v", got)
	}
	if got := s.itemsOf(never, store.PlanItemFilter{State: store.ItemOpen, Due: true}); got != "soon" {
		s.Errorf("after the clock was set back, the due items are %s", got)
	}
	for _, p := range []store.Plan{never, s.planByName("soon")} {
		to := p
		to.State, to.NextAt = store.PlanDone, time.Time{}
		_, err = s.stepTo(p, to)
		s.must(err)
		shift("plans", "ended_at", -time.Hour)
	}
	running := s.createPlan(s.planOf("running", 0))
	shift("plans", "created_at", -4*time.Hour)
	ages := store.PruneAges{Done: 90 * time.Minute}
	for _, want := range []int{3, 0} { // "never" ended two hours ago, and had two items; "soon" ended an hour ago
		if n, err := s.Prune(s.ctx, ages, 10); err != nil || n != want {
			s.Errorf("pruned %d rows, %v; want %d", n, err, want)
		}
	}
	if n, err := s.Prune(s.ctx, store.PruneAges{}, 10); err != nil || n != 0 {
		s.Errorf("pruned %d rows without an age, %v", n, err)
	}
	if got := s.itemsOf(never, store.PlanItemFilter{State: store.ItemOpen}); got != "" {
		s.Errorf("a deleted plan has the items %s", got)
	}
	if got := s.planByName("running"); got.ID != running.ID {
		s.Errorf("the running plan is %+v", got)
	}
}

func testPruneItems(s *suite) {
	open, ended := s.createPlan(s.planOf("open", 0)), s.createPlan(s.planOf("ended", 0))
	items := func(n int) (items []store.PlanItem) {
		for i := range n {
			items = append(items, store.PlanItem{Item: fmt.Sprintf("%03d", i), State: store.ItemOpen})
		}
		return items
	}
	_, err := s.StepPlan(s.ctx, store.PlanStep{From: open}, func(store.Inserted) (store.Plan, []store.PlanItem) { return open, items(3) })
	s.must(err)
	gone, err := s.StepPlan(s.ctx, store.PlanStep{From: ended}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		to := ended
		to.State = store.PlanDeleted
		return to, items(25)
	})
	s.must(err)
	s.eventually("the plan is old enough", func() bool { return s.now().After(gone.EndedAt.Add(time.Millisecond)) })
	for _, want := range []int{10, 10, 6, 0} { // the last item, and then the plan
		if n, err := s.Prune(s.ctx, store.PruneAges{Done: time.Microsecond}, 10); n != want || err != nil {
			s.Errorf("Prune deleted %d rows, %v; want %d", n, err, want)
		}
	}
	left, err := s.PlanItems(s.ctx, open.ID, store.PlanItemFilter{Limit: 10})
	s.must(err)
	plans, err := s.ListPlans(s.ctx, store.PlanFilter{Kind: store.ScheduleKind, Ended: true, Limit: 10})
	s.must(err)
	if len(left) != 3 || namesOf(plans) != "open" {
		s.Errorf("%d items of the open plan, and the plans %s are left", len(left), namesOf(plans))
	}
}
