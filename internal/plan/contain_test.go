package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// stored creates a plan with any spec and progress, as an older or a newer version, or an error in it, may have left it.
func (w *world) stored(kind store.PlanKind, name, spec, progress string) {
	w.Helper()
	p := store.Plan{
		Kind: kind, Name: name, State: store.PlanRunning, NextAt: w.now, Spec: json.RawMessage(spec), Progress: json.RawMessage(progress),
	}
	_, err := w.CreatePlan(w.Context(), anna, p)
	w.must(err)
}

// everySecond stores the schedule s, which runs each second.
func (w *world) everySecond() {
	w.create(schedule(func(s *plan.Schedule) { s.Every, s.Overlap = plan.Duration(time.Second), 1000 }))
}

// seconds lets so many seconds pass. Each engine makes its steps in each of them.
func (w *world) seconds(seconds int, engines ...*plan.Engine) {
	w.Helper()
	for range seconds {
		w.now = w.now.Add(time.Second)
		for _, engine := range engines {
			for range 100 { // a plan can have much to make up
				wait, _, err := engine.Advance(w.Context())
				if w.must(err); wait > 0 {
					break
				}
			}
		}
	}
}

// run lets the time pass in which the engine works as a janitor lets it.
func (w *world) run(engine *plan.Engine, d time.Duration) {
	w.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		wait, _, err := engine.Advance(w.Context())
		w.must(err)
		w.now = w.now.Add(max(wait, 10*time.Millisecond))
	}
}

// lateStore is a store in which something happens after an engine has read the due plans. They have no specs, as if all
// were large.
type lateStore struct {
	*world
	then func()
}

func (s lateStore) DuePlans(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error) {
	due, err := s.world.DuePlans(ctx, kinds, within, limit)
	for i := range due {
		due[i].Spec = nil
	}
	s.then()
	return due, err
}

// A large schedule that is deleted after an engine has found it due stores no more tasks.
func TestALargePlanThatEndsMeanwhileMakesNoStep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.everySecond()
	deleted := false
	engine := plan.New(lateStore{w, func() {
		if !deleted {
			w.change(func(p store.Plan, _ plan.Schedule, _ plan.ScheduleProgress) (store.Plan, error) {
				p.State, p.NextAt, deleted = store.PlanDeleted, time.Time{}, true
				return p, nil
			})
		}
	}})
	w.now = w.now.Add(5 * time.Second)
	w.run(engine, 5*time.Second)
	if n := len(w.tasks()); !deleted || n > 0 {
		t.Errorf("deleted: %t; then %d tasks are stored", deleted, n)
	}
}

// engine returns an engine whose failed steps are counted by plan.
func (w *world) engine(failed map[string]int) *plan.Engine {
	e := plan.New(w)
	e.Failed = func(p store.Plan, _ error, _ time.Duration) { failed[p.Name]++ }
	return e
}

// extremes are values that a person could type, an older version could store, or an error could leave.
var extremes = struct{ times, durations, numbers, documents []string }{
	times: []string{
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1700-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1999-12-31T23:59:59Z",
		"2000-01-01T00:00:00Z", "2030-01-01T00:00:00.000000001Z", "9999-12-31T23:59:59.999999Z",
	},
	durations: []string{
		"0s", "1ns", "1ms", "1s", "1h", "87600h", "2562047h47m16.854775807s", "-1s", "-2562047h47m16.854775807s",
	},
	numbers:   []string{"0", "1", "-1", "1000", "1000000", "2147483648", "9223372036854775807", "-9223372036854775808"},
	documents: []string{"{}", "[]", "null", `"text"`, `{"newer":1}`, `{"every":5}`, `{"stages":null}`, `{"zones":{"":""}}`},
}

// sick returns a plan with extreme values.
func sick(r *rand.Rand) (kind store.PlanKind, spec, progress string) {
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	at, d, n := func() string { return pick(extremes.times) }, func() string { return pick(extremes.durations) }, func() string { return pick(extremes.numbers) }
	task := fmt.Sprintf(`{"type":"report","queue":"default","priority":"normal","max_attempts":%s}`, n())
	switch r.IntN(4) {
	case 0:
		kind = store.ScheduleKind
		times := fmt.Sprintf(`"every":%q`, d())
		if r.IntN(3) == 0 {
			times = fmt.Sprintf(`"cron":"* * * * * *","timezone":%q`, []string{"", "Mars/Olympus", "Europe/Berlin"}[r.IntN(3)])
		}
		spec = fmt.Sprintf(`{%s,"start":%q,"end":%q,"missed":%q,"catch_up":%q,"overlap":%q,"jitter":%q,"task":%s}`, times, at(), at(),
			[]string{"one", "all", "skip", "x"}[r.IntN(4)], d(), []string{"skip", "queue", "1000"}[r.IntN(3)], d(), task)
		progress = fmt.Sprintf(`{"next":%q,"waiting":%q,"runs":%s,"open":[{"at":%q,"task":"%s"}]}`, at(), at(), n(), at(), n())
	case 1:
		kind = store.SourceKind
		spec = fmt.Sprintf(`{"type":"report","every":%q,"overlap":%q,"lag":%q,"in_flight":%s,"start":%q,"max_attempts":%s}`, d(), d(), d(), n(), at(), n())
		progress = fmt.Sprintf(`{"next":%q,"done_through":%q,"open":%s,"dead":%s,"done":%s,"rate_at":%q}`, at(), at(), n(), n(), n(), at())
	case 2:
		kind = store.ShardKind
		spec = fmt.Sprintf(`{"type":"report","every":%q,"max_attempts":%s,"zones":{"1":"a"},"map":%s}`, d(), n(), n())
		progress = fmt.Sprintf(`{"passes":{"a":{"task":"%s","open":true,"next":%q}}}`, n(), at())
	default:
		kind = store.BatchKind
		spec = fmt.Sprintf(`{"stages":[{"tasks":[%s]}],"window":%s}`, task, n())
		progress = fmt.Sprintf(`{"stage":%s,"begun":true,"chunks":%s,"pushed_at":%q}`, n(), n(), at())
	}
	switch r.IntN(8) {
	case 0:
		spec = pick(extremes.documents)
	case 1:
		progress = pick(extremes.documents)
	}
	return kind, spec, progress
}

// Whatever is stored, a plan fails alone: a healthy schedule misses no moment, and no process ends.
func TestASickPlanHarmsNoOther(t *testing.T) {
	t.Parallel()
	const seconds = 40
	for seed := range uint64(60) {
		w := newWorld(t, seed)
		w.everySecond()
		for i := range 60 {
			kind, spec, progress := sick(w.rng)
			w.stored(kind, fmt.Sprintf("sick-%d", i), spec, progress)
		}
		failed := make(map[string]int)
		w.seconds(seconds, w.engine(failed), w.engine(failed))
		if _, _, progress := w.read(); progress.Runs != seconds {
			t.Errorf("seed %d: the healthy schedule has run %d times in %d seconds, and has missed %d", seed, progress.Runs, seconds, progress.Missed)
		}
		for name, n := range failed {
			if n > 7 { // pauses of 1, 2, 4, 8, 16 and 32 seconds
				t.Errorf("seed %d: the plan %s has failed %d times in %d seconds", seed, name, n, seconds)
			}
		}
	}
}

// More failing plans than one call of Advance reads do not delay a healthy one, once they have begun to fail.
func TestManyFailingPlansDelayNoOther(t *testing.T) {
	t.Parallel()
	const sick, seconds = 2000, 30
	w := newWorld(t, 1)
	w.everySecond()
	for i := range sick {
		w.stored(store.SourceKind, fmt.Sprintf("sick-%d", i), `{"type":"report"}`, `{"next":"2030-01-01T00:00:00Z","done_through":"2030-01-01T00:00:00Z","open":0,"dead":0,"done":0}`)
	}
	failed := make(map[string]int)
	w.seconds(seconds, w.engine(failed))
	if _, _, progress := w.read(); progress.Runs != seconds {
		t.Errorf("the healthy schedule has run %d times in %d seconds, and has missed %d", progress.Runs, seconds, progress.Missed)
	}
	if len(failed) != sick {
		t.Errorf("%d plans have failed, want %d", len(failed), sick)
	}
}

// A plan that fails pauses for longer and longer, in all processes. A change by a person ends the pause.
func TestAFailingPlanPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.create(schedule(func(s *plan.Schedule) { s.Every = plan.Duration(time.Second) }))
	good, bad := w.spec(), strings.Replace(w.spec(), `"start":"2030-`, `"start":"1700-`, 1)
	w.setSpec(bad)
	var pauses []time.Duration
	for range 12 {
		p, _, _ := w.read()
		w.now = later(w.now, p.NextAt)
		engine := plan.New(w) // another process
		engine.Failed = func(p store.Plan, err error, pause time.Duration) {
			if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "the start 1700-01-01T00:00:00Z must be in the years from 1970 to 9999") {
				t.Errorf("failure %d: %v", p.Failures, err)
			}
			pauses = append(pauses, pause)
		}
		for range 2 { // the second call has nothing to do
			if _, _, err := engine.Advance(w.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := fmt.Sprint(pauses), "[1s 2s 4s 8s 16s 32s 1m4s 2m8s 4m16s 8m32s 10m0s 10m0s]"; got != want {
		t.Errorf("pauses %s, want %s", got, want)
	}
	w.setSpec(good)
	if p, _, _ := w.read(); p.Failures != 0 || p.Failure != "" {
		t.Errorf("after a change: %d failures, %q", p.Failures, p.Failure)
	}
	w.advance()
	if _, _, progress := w.read(); progress.Runs == 0 {
		t.Errorf("the repaired schedule has not run: %+v", progress)
	}
}

func (w *world) spec() string {
	p, _, _ := w.read()
	return string(p.Spec)
}

// setSpec stores another spec, as a person does.
func (w *world) setSpec(spec string) {
	w.Helper()
	p, _, _ := w.read()
	w.change(func(store.Plan, plan.Schedule, plan.ScheduleProgress) (store.Plan, error) {
		p.Spec, p.NextAt = json.RawMessage(spec), w.now
		return p, nil
	})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// panicking is a store that panics in the steps of some plans.
type panicking struct{ *world }

func (s panicking) PlanItems(context.Context, store.ID, store.PlanItemFilter) ([]store.PlanItem, error) {
	panic("no such page")
}

// A panic is a failure of the plan, and has its stack.
func TestAPanicIsAFailureOfItsPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.everySecond()
	w.stored(store.SourceKind, "x", `{"type":"report","every":"1h"}`, `{"next":"2029-01-01T00:00:00Z","done_through":"2029-01-01T00:00:00Z","open":0,"dead":0,"done":0}`)
	engine := plan.New(panicking{w})
	var failure error
	engine.Failed = func(_ store.Plan, err error, _ time.Duration) { failure = err }
	w.seconds(1, engine)
	p, panicked := errors.AsType[*holdfast.PanicError](failure)
	if !panicked || !strings.Contains(p.Error(), "no such page") || !strings.Contains(p.Stack, "PlanItems") {
		t.Errorf("the failure is %v", failure)
	}
	if _, _, progress := w.read(); progress.Runs != 1 {
		t.Errorf("the other schedule: %+v", progress)
	}
}

// metered is a store that counts the calls of an engine. DuePlans returns no spec, as if all were large.
type metered struct {
	*world
	calls *atomic.Int64 // an engine makes some steps at the same time
}

func (m metered) DuePlans(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error) {
	m.calls.Add(1)
	due, err := m.world.DuePlans(ctx, kinds, within, limit)
	for i := range due {
		due[i].Spec = nil
	}
	return due, err
}

func (m metered) Now(ctx context.Context) (time.Time, error) {
	m.calls.Add(1)
	return m.world.Now(ctx)
}

func (m metered) PlanItems(ctx context.Context, id store.ID, f store.PlanItemFilter) ([]store.PlanItem, error) {
	m.calls.Add(1)
	return m.world.PlanItems(ctx, id, f)
}

func (m metered) ListPlans(ctx context.Context, f store.PlanFilter) ([]store.Plan, error) {
	m.calls.Add(1)
	return m.world.ListPlans(ctx, f)
}

func (m metered) PlanTally(ctx context.Context, chunks []store.PlanChunk) ([]store.Tally, error) {
	m.calls.Add(1)
	return m.world.PlanTally(ctx, chunks)
}

func (m metered) PostponePlans(ctx context.Context, plans []store.Plan, pause time.Duration) ([]store.ID, error) {
	m.calls.Add(1)
	return m.world.PostponePlans(ctx, plans, pause)
}

// 500 chains whose tasks wait cost a few statements a second.
func TestManyWaitingChainsCostFewStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	for range 500 {
		w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{plan.TaskOf(subtask(1))}}, {Tasks: []plan.Task{taskOf("then")}, After: true}}})
		w.now = w.now.Add(7 * time.Millisecond)
	}
	var calls atomic.Int64
	engine := plan.New(metered{w, &calls})
	w.run(engine, 10*time.Second)
	calls.Store(0)
	w.run(engine, 100*time.Second)
	if n := calls.Load(); n > 500 {
		t.Errorf("%d calls in 100 s", n)
	}
}
