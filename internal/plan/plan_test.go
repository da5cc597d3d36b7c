package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/slow"
)

type ticket = message.Ticket

var (
	anna  = store.Actor{Name: "anna", Surface: store.CommandLine}
	begin = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
)

// world is a store in memory with a clock that tests set.
type world struct {
	testing.TB
	*memory.Client
	now time.Time
	mu  sync.Mutex // guards rng and steps
	rng *rand.Rand
	// faults is the probability that a call fails before or after its effect, as if the process had been killed.
	faults float64
	// steps has the time and the schedule of each step that the store has accepted.
	steps []step
}

type step struct {
	at       time.Time
	from, to store.Plan
	twice    bool // the store had the task of a due moment already
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{TB: t, now: begin, rng: rand.New(rand.NewPCG(seed, 1))}
	w.Client = memory.New(func() time.Time { return w.now }).Client(nil)
	return w
}

var errKilled = fmt.Errorf("%w: killed", holdfast.ErrUnavailable)

func (w *world) killed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rng.Float64() < w.faults {
		return errKilled
	}
	return nil
}

// StepPlan may fail before or after it makes the step.
func (w *world) StepPlan(ctx context.Context, s store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	if err := w.killed(); err != nil {
		return store.Plan{}, err
	}
	twice, from := false, s.From
	if accept := s.Accept; accept != nil {
		s.Accept = func(p store.Plan, now time.Time) error {
			from = p
			return accept(p, now)
		}
	}
	p, err := w.Client.StepPlan(ctx, s, func(inserted store.Inserted) (store.Plan, []store.PlanItem) {
		twice = slices.ContainsFunc(inserted.Tasks, func(task store.InsertedTask) bool { return task.Duplicate })
		return finish(inserted)
	})
	if err != nil {
		return p, err
	}
	w.mu.Lock()
	w.steps = append(w.steps, step{w.now, from, p, twice})
	w.mu.Unlock()
	if err := w.killed(); err != nil {
		return store.Plan{}, err
	}
	return p, nil
}

// SaveItems may fail before or after it saves.
func (w *world) SaveItems(ctx context.Context, p store.Plan, by store.Fence, items []store.PlanItem) error {
	if err := w.killed(); err != nil {
		return err
	}
	if err := w.Client.SaveItems(ctx, p, by, items); err != nil {
		return err
	}
	return w.killed()
}

// DuePlans, Now and TasksByID may fail.
func (w *world) DuePlans(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error) {
	if err := w.killed(); err != nil {
		return nil, err
	}
	return w.Client.DuePlans(ctx, kinds, within, limit)
}

func (w *world) Now(ctx context.Context) (time.Time, error) {
	if err := w.killed(); err != nil {
		return time.Time{}, err
	}
	return w.Client.Now(ctx)
}

func (w *world) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if err := w.killed(); err != nil {
		return nil, err
	}
	return w.Client.TasksByID(ctx, ids)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// schedule returns a valid schedule with defaults.
func schedule(change func(*plan.Schedule)) plan.Schedule {
	s := plan.Schedule{
		Every: plan.Duration(time.Minute), Missed: plan.MissedOne, CatchUp: plan.DefaultCatchUp, Overlap: 1,
		Task: plan.Task{Type: "report", Queue: "default"},
	}
	change(&s)
	return s
}

// create stores a schedule with the name s.
func (w *world) create(s plan.Schedule) {
	w.Helper()
	w.must(s.Validate(holdfast.DefaultMaxPayload))
	p, err := s.Plan("s", w.now)
	w.must(err)
	_, err = w.CreatePlan(w.Context(), anna, p)
	w.must(err)
}

// read returns the schedule s.
func (w *world) read() (store.Plan, plan.Schedule, plan.ScheduleProgress) {
	w.Helper()
	p, err := w.PlanByName(w.Context(), store.ScheduleKind, "s")
	w.must(err)
	s, progress, err := plan.ReadSchedule(p)
	w.must(err)
	return p, s, progress
}

// change makes a step of a person.
func (w *world) change(compute func(store.Plan, plan.Schedule, plan.ScheduleProgress) (store.Plan, error)) {
	w.Helper()
	p, s, progress := w.read()
	to, err := compute(p, s, progress)
	w.must(err)
	_, err = w.Client.StepPlan(w.Context(), store.PlanStep{From: p, By: &anna, Action: store.ActionEdit}, func(store.Inserted) (store.Plan, []store.PlanItem) { return to, nil })
	w.must(err)
}

// advance calls Advance until nothing is due.
func (w *world) advance() {
	w.Helper()
	engine := plan.New(w)
	for range 1000 {
		wait, _, err := engine.Advance(w.Context())
		w.must(err)
		if wait > 0 {
			w.must(engine.Release(w.Context()))
			return
		}
	}
	w.Fatal("the engine never waits")
}

// moments returns the moments of the stored tasks as offsets from begin, in the order of the tasks.
func (w *world) moments() []string {
	w.Helper()
	var moments []string
	for _, task := range w.tasks() {
		_, at, ok := plan.ScheduleOrigin(task.Unique)
		if !ok {
			w.Fatalf("the task has the unique key %q", task.Unique)
		}
		moments = append(moments, at.Sub(begin).String())
	}
	return moments
}

// tasks returns all tasks, oldest first.
func (w *world) tasks() []holdfast.Task {
	w.Helper()
	var tasks []holdfast.Task
	for before := holdfast.TaskID(0); ; {
		page, err := w.List(w.Context(), store.Filter{Limit: 1000, Before: before})
		w.must(err)
		tasks = append(tasks, page.Tasks...)
		if len(page.Tasks) < 1000 {
			slices.Reverse(tasks)
			return tasks
		}
		before = page.Tasks[len(page.Tasks)-1].ID
	}
}

// end ends the newest n open tasks: they are cancelled, or dead.
func (w *world) end(n int, event holdfast.Event) {
	w.Helper()
	tasks := w.tasks()
	for _, task := range slices.Backward(tasks) {
		if n == 0 {
			return
		}
		if task.State != holdfast.Ready {
			continue
		}
		n--
		w.endTask(task, event)
	}
}

func (w *world) endTask(task holdfast.Task, event holdfast.Event) {
	w.Helper()
	cause := holdfast.Requested(event)
	if event == holdfast.EventGiveUp {
		worker, err := w.RegisterWorker(w.Context(), store.WorkerInfo{Name: "w"}, 100*time.Hour)
		w.must(err)
		claims, err := w.Claim(w.Context(), worker, store.AnyOf("report"), []ticket{{Task: task.ID, Attempt: task.Attempt}}, store.IntoExecutors)
		w.must(err)
		task, cause = *claims[0].Task, holdfast.Returned(holdfast.Permanent(errors.New("no use")))
	}
	move, err := holdfast.Settle(task, cause, w.now, holdfast.DefaultPolicy())
	w.must(err)
	if _, err := w.Apply(w.Context(), []holdfast.Transition{move}); err != nil {
		w.Fatal(err)
	}
}

// Each row sets the clock to the given offsets from the creation, one after the other, and calls Advance at each. Before
// some offsets the open tasks end.
func TestRunsWhatTheRulesSay(t *testing.T) {
	m := func(n float64) time.Duration { return time.Duration(n * float64(time.Minute)) }
	all := func(s *plan.Schedule) { s.Missed, s.Overlap = plan.MissedAll, 100 }
	for _, c := range []struct {
		name    string
		change  func(*plan.Schedule)
		at      []time.Duration
		end     bool // the tasks end before the next offset
		want    string
		skipped int64
		missed  int64
	}{
		{"nothing before the first moment", func(*plan.Schedule) {}, []time.Duration{0, m(.9)}, true, "", 0, 0},
		{"each moment once", func(*plan.Schedule) {}, []time.Duration{m(1), m(1.2), m(2), m(3)}, true, "1m0s 2m0s 3m0s", 0, 0},
		{"the last of the missed ones", func(*plan.Schedule) {}, []time.Duration{m(1), m(30.5), m(31)}, true, "1m0s 30m0s 31m0s", 0, 28},
		{"all missed ones", all, []time.Duration{m(4.5), m(5)}, false, "1m0s 2m0s 3m0s 4m0s 5m0s", 0, 0},
		{"no missed one", func(s *plan.Schedule) { s.Missed, s.Every = plan.MissedSkip, plan.Duration(10*time.Minute) }, []time.Duration{m(35), m(40.5)}, true, "40m0s", 0, 3},
		{"missed ones within the window", func(s *plan.Schedule) { all(s); s.CatchUp = plan.Duration(2 * time.Minute) }, []time.Duration{m(10.5)}, true, "9m0s 10m0s", 0, 8},
		{"without a window still those of the last minute", func(s *plan.Schedule) { all(s); s.CatchUp = 0 }, []time.Duration{m(10.5)}, true, "10m0s", 0, 9},
		{"skips while a task is open", func(*plan.Schedule) {}, []time.Duration{m(1), m(2), m(3)}, false, "1m0s", 2, 0},
		{"one waits while a task is open", func(s *plan.Schedule) { s.Overlap = plan.OverlapQueue }, []time.Duration{m(1), m(2), m(3), m(3.1)}, false, "1m0s", 1, 0},
		{"two open tasks", func(s *plan.Schedule) { s.Overlap = 2 }, []time.Duration{m(1), m(2), m(3)}, false, "1m0s 2m0s", 1, 0},
		{"from the start on", func(s *plan.Schedule) { s.Start = begin.Add(m(5)) }, []time.Duration{m(4), m(5), m(6)}, true, "5m0s 6m0s", 0, 0},
		{"up to the end", func(s *plan.Schedule) { all(s); s.End = begin.Add(m(2)) }, []time.Duration{m(10)}, true, "1m0s 2m0s", 0, 0},
		{"at the start too", func(s *plan.Schedule) { s.RunAtStart = true }, []time.Duration{0, m(1)}, true, "0s 1m0s", 0, 0},
		{"cron", func(s *plan.Schedule) { s.Every, s.Cron = 0, "*/20 * * * *" }, []time.Duration{m(20), m(39.9), m(40)}, true, "20m0s 40m0s", 0, 0},
		{"cron in a zone", func(s *plan.Schedule) { s.Every, s.Cron, s.Timezone = 0, "0 3 * * *", "Europe/Berlin" }, []time.Duration{m(119), m(120)}, true, "2h0m0s", 0, 0},
		{"nothing twice after the clock was set back", func(*plan.Schedule) {}, []time.Duration{m(60), m(10), m(20), m(60.5), m(61)}, true, "1h0m0s 1h1m0s", 0, 59},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.create(schedule(c.change))
			for _, at := range c.at {
				w.now = begin.Add(at)
				_, err := w.CorrectTimes(w.Context())
				w.must(err)
				w.advance()
				if c.end {
					w.end(-1, holdfast.EventCancel)
				}
			}
			if got := strings.Join(w.moments(), " "); got != c.want {
				t.Errorf("ran %q, want %q", got, c.want)
			}
			if c.want != "" && !strings.Contains(c.name, "up to the end") {
				if _, _, p := w.read(); p.Skipped != c.skipped || p.Missed != c.missed || p.Runs != int64(len(w.moments())) {
					t.Errorf("progress %+v, want %d skipped, %d missed", p, c.skipped, c.missed)
				}
			}
		})
	}
}

func TestAScheduleEnds(t *testing.T) {
	w := newWorld(t, 1)
	w.create(schedule(func(s *plan.Schedule) { s.End = begin.Add(90 * time.Second) }))
	w.now = begin.Add(time.Minute)
	w.advance()
	if _, err := w.PlanByName(t.Context(), store.ScheduleKind, "s"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("after the last moment: %v", err)
	}
	if got := w.moments(); len(got) != 1 {
		t.Errorf("ran %v", got)
	}
}

// With the overlap queue, one moment waits for the end of the open task and then runs.
func TestAMomentWaitsForTheOpenTask(t *testing.T) {
	w := newWorld(t, 1)
	w.create(schedule(func(s *plan.Schedule) { s.Overlap = plan.OverlapQueue }))
	for _, seconds := range []int{60, 120, 180, 200} {
		w.now = begin.Add(time.Duration(seconds) * time.Second)
		w.advance()
	}
	w.end(1, holdfast.EventCancel)
	w.now = begin.Add(201 * time.Second)
	w.advance()
	if got := strings.Join(w.moments(), " "); got != "1m0s 2m0s" {
		t.Errorf("ran %q", got)
	}
	if _, _, p := w.read(); !p.Waiting.IsZero() || p.Skipped != 1 {
		t.Errorf("progress %+v", p)
	}
}

func TestPausesAfterDeaths(t *testing.T) {
	w := newWorld(t, 1)
	w.create(schedule(func(s *plan.Schedule) { s.PauseAfter = 2 }))
	minute := 0
	next := func() {
		minute++
		w.now = begin.Add(time.Duration(minute) * time.Minute)
		w.advance()
	}
	for _, event := range []holdfast.Event{holdfast.EventGiveUp, holdfast.EventComplete, holdfast.EventGiveUp, holdfast.EventCancel, holdfast.EventGiveUp} {
		next()
		if event == holdfast.EventComplete {
			w.complete()
			continue
		}
		w.end(1, event)
	}
	next()
	p, _, progress := w.read()
	if p.State != store.PlanPaused || !p.NextAt.IsZero() || progress.PausedBy == "" || progress.Runs != 5 {
		t.Errorf("the schedule is %s: %+v", p.State, progress)
	}
	entries, err := w.AuditLog(t.Context(), store.AuditFilter{Subject: p.Subject()})
	w.must(err)
	if len(entries) != 2 || entries[0].Action != store.ActionPause || entries[0].Surface != store.Janitor || entries[0].Reason == "" {
		t.Errorf("entries %+v", entries)
	}
	w.change(func(p store.Plan, s plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
		return s.Resumed(p, progress, w.now)
	})
	next()
	if _, _, progress := w.read(); progress.Runs != 6 || progress.PausedBy != "" {
		t.Errorf("after the resume: %+v", progress)
	}
}

// complete runs the open task with success.
func (w *world) complete() {
	w.Helper()
	worker, err := w.RegisterWorker(w.Context(), store.WorkerInfo{Name: "w"}, 100*time.Hour)
	w.must(err)
	for _, task := range w.tasks() {
		if task.State != holdfast.Ready {
			continue
		}
		claims, err := w.Claim(w.Context(), worker, store.AnyOf("report"), []ticket{{Task: task.ID, Attempt: task.Attempt}}, store.IntoExecutors)
		w.must(err)
		move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(nil), w.now, holdfast.DefaultPolicy())
		w.must(err)
		_, err = w.Apply(w.Context(), []holdfast.Transition{move})
		w.must(err)
	}
}

func TestPersonsChangeASchedule(t *testing.T) {
	w := newWorld(t, 1)
	w.create(schedule(func(s *plan.Schedule) { s.Overlap = 100 }))
	at := func(minutes float64) {
		w.now = begin.Add(time.Duration(minutes * float64(time.Minute)))
		w.advance()
	}
	at(1)
	w.change(func(p store.Plan, _ plan.Schedule, _ plan.ScheduleProgress) (store.Plan, error) {
		return plan.PausedSchedule(p), nil
	})
	at(5.5)
	w.change(func(p store.Plan, s plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
		return s.Resumed(p, progress, w.now)
	})
	at(5.6) // the moments of the pause do not run
	at(6)
	w.change(func(p store.Plan, s plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
		was := s
		s.Every = plan.Duration(4 * time.Minute)
		return s.Edited(p, was, progress, w.now)
	})
	at(8)
	p, s, progress := w.read()
	task, finish := s.RunNow(p, progress, w.now.Add(time.Second))
	_, err := w.Client.StepPlan(t.Context(), store.PlanStep{From: p, Insert: []holdfast.NewTask{task}, By: &anna, Action: store.ActionRun}, plan.WithoutItems(finish))
	w.must(err)
	at(12)
	if got := strings.Join(w.moments(), " "); got != "1m0s 6m0s 8m0s 8m1s 12m0s" {
		t.Errorf("ran %q", got)
	}
	w.change(func(p store.Plan, _ plan.Schedule, _ plan.ScheduleProgress) (store.Plan, error) {
		return plan.Deleted(p), nil
	})
	w.create(schedule(func(s *plan.Schedule) { s.Start, s.Overlap = begin.Add(12*time.Minute), 100 }))
	at(13)
	if got := w.moments(); len(got) != 6 || got[5] != "13m0s" {
		t.Errorf("after the schedule was created again: ran %q", got)
	}
}

// A backfill runs all moments of a range in order, with a bound of open tasks, and ends. It leaves out those that have
// run, unless it runs them again.
func TestBackfill(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld(t, 1)
		w.create(schedule(func(s *plan.Schedule) { s.Overlap = 100 }))
		w.now = begin.Add(6*time.Minute + 30*time.Second)
		w.advance() // runs the last missed moment only
		p, s, _ := w.read()
		spec, name, err := s.Backfill(p, begin.Add(2*time.Minute), begin.Add(6*time.Minute), 2, again)
		w.must(err)
		backfill, err := spec.Plan(name, w.now)
		w.must(err)
		_, err = w.CreatePlan(t.Context(), anna, backfill)
		w.must(err)
		most := 0
		for range 20 {
			w.now = w.now.Add(1100 * time.Millisecond)
			w.advance()
			open := 0
			for _, task := range w.tasks() {
				if task.State == holdfast.Ready && task.ID > 1 {
					open++
				}
			}
			most = max(most, open)
			for _, task := range w.tasks() {
				if task.State == holdfast.Ready && task.ID > 1 {
					w.endTask(task, holdfast.EventCancel)
					break
				}
			}
		}
		want := "6m0s 2m0s 3m0s 4m0s 5m0s"
		if again {
			want += " 6m0s"
		}
		if got := strings.Join(w.moments(), " "); got != want {
			t.Errorf("again %t: ran %q, want %q", again, got, want)
		}
		if most != 2 {
			t.Errorf("again %t: %d tasks were open, want 2", again, most)
		}
		if _, err := w.PlanByName(t.Context(), store.ScheduleKind, name); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("again %t: the backfill has not ended: %v", again, err)
		}
		if _, _, err := s.Backfill(p, begin.Add(121*time.Second), begin.Add(179*time.Second), 1, again); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a backfill without moments: %v", err)
		}
	}
}

// A schedule of a newer build is left alone, and other schedules run.
func TestLeavesSchedulesOfNewerBuildsAlone(t *testing.T) {
	w := newWorld(t, 1)
	s := schedule(func(*plan.Schedule) {})
	for i := range 150 {
		p, err := s.Plan(fmt.Sprintf("new-%d", i), w.now)
		w.must(err)
		p.Spec = json.RawMessage(`{"cron":"* * * * *","lunar":true}`)
		_, err = w.CreatePlan(t.Context(), anna, p)
		w.must(err)
	}
	w.create(s)
	w.now = begin.Add(time.Minute)
	engine := plan.New(w)
	for range 3 {
		_, _, err := engine.Advance(t.Context())
		w.must(err)
	}
	if got := w.moments(); len(got) != 1 {
		t.Errorf("ran %q", got)
	}
}

// Many schedules that are due soon keep an engine neither from waiting nor from running those that are due.
func TestWaitsForSchedulesThatAreDueSoon(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 250 {
		s := schedule(func(s *plan.Schedule) { s.Start = begin.Add(time.Minute + 500*time.Millisecond) })
		if i == 249 {
			s.Start = begin.Add(time.Minute)
		}
		p, err := s.Plan(fmt.Sprintf("s%d", i), w.now)
		w.must(err)
		_, err = w.CreatePlan(t.Context(), anna, p)
		w.must(err)
	}
	engine := plan.New(w)
	w.now = begin.Add(time.Minute)
	if wait, stored, err := engine.Advance(t.Context()); err != nil || stored != 1 || wait != 500*time.Millisecond {
		t.Errorf("the engine waits for %s and stores %d tasks, %v; want 500ms and 1", wait, stored, err)
	}
	w.now = w.now.Add(500 * time.Millisecond)
	for i, want := range []struct {
		wait   time.Duration
		stored int
	}{{0, 100}, {0, 100}, {plan.Every, 49}, {plan.Every, 0}} {
		if wait, stored, err := engine.Advance(t.Context()); err != nil || stored != want.stored || wait != want.wait {
			t.Errorf("call %d: the engine waits for %s and stores %d tasks, %v; want %+v", i, wait, stored, err, want)
		}
	}
}

func TestJitterDelaysTasks(t *testing.T) {
	w := newWorld(t, 1)
	w.create(schedule(func(s *plan.Schedule) { s.Jitter, s.Overlap = plan.Duration(time.Minute), 100 }))
	var delays []time.Duration
	for range 600 {
		w.now = w.now.Add(time.Second)
		before := len(w.tasks())
		w.advance()
		for _, task := range w.tasks()[before:] {
			_, at, _ := plan.ScheduleOrigin(task.Unique)
			delays = append(delays, w.now.Sub(at))
		}
	}
	slices.Sort(delays)
	if len(delays) < 9 || delays[0] < 0 || delays[len(delays)-1] > time.Minute+time.Second || delays[len(delays)-1]-delays[0] < 10*time.Second {
		t.Errorf("the delays are %v, want 9 or 10 between 0 and a minute", delays)
	}
}

// Five processes make the steps, calls fail before and after their effects, and the clock leaps by hours in both
// directions. Each moment runs as the rules say by the times of the steps, and none runs twice.
func TestStepsWithFaultsAndLeaps(t *testing.T) {
	seeds := 300
	if slow.All() {
		seeds = 10_000
	}
	for seed := range uint64(seeds) {
		if t.Failed() {
			return
		}
		w := newWorld(t, seed)
		s := schedule(func(s *plan.Schedule) {
			s.Every = plan.Duration(time.Duration(4+w.rng.IntN(40)) * time.Minute) // fewer moments than MaxOverlap
			s.Missed = []plan.MissedRuns{plan.MissedSkip, plan.MissedOne, plan.MissedAll}[w.rng.IntN(3)]
			s.CatchUp = plan.Duration(time.Duration(w.rng.IntN(5)) * time.Hour)
			s.Overlap = plan.MaxOverlap
		})
		w.create(s)
		var engines []*plan.Engine
		for range 5 {
			engines = append(engines, plan.New(w))
		}
		w.faults = 0.2
		for range 200 {
			switch w.rng.IntN(20) {
			case 0:
				w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(12*time.Hour))) - 6*time.Hour)
			case 1:
				w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(2 * time.Hour))))
			default:
				w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))
			}
			if w.now.Before(begin) {
				w.now = begin
			}
			if _, err := w.CorrectTimes(t.Context()); err != nil {
				t.Fatal(err)
			}
			i := w.rng.IntN(len(engines))
			if w.rng.IntN(10) == 0 {
				engines[i] = plan.New(w) // the process was started again
			}
			if _, _, err := engines[i].Advance(t.Context()); err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
		}
		w.check(seed, s)
	}
}

// check compares the stored tasks with the moments that the rules select, given the times of the steps.
func (w *world) check(seed uint64, s plan.Schedule) {
	w.Helper()
	w.faults = 0
	var want []string
	used := begin // all moments up to this one have been used
	for _, step := range w.steps {
		if step.twice {
			w.Errorf("seed %d: the step at %s ran a due moment that had run", seed, step.at.Sub(begin))
		}
		var due []time.Time
		all := s.Missed == plan.MissedAll // then a step stores at most 100 tasks
		for at := used.Add(time.Duration(s.Every)); !at.After(step.at) && !(all && len(due) == 100); at = at.Add(time.Duration(s.Every)) {
			used = at
			if step.at.Sub(at) <= max(time.Minute, time.Duration(s.CatchUp)) {
				due = append(due, at)
			}
		}
		switch {
		case len(due) == 0:
			continue
		case s.Missed == plan.MissedOne, s.Missed == plan.MissedSkip && step.at.Sub(due[len(due)-1]) <= time.Minute:
			due = due[len(due)-1:]
		case s.Missed == plan.MissedSkip:
			due = nil
		}
		for _, at := range due {
			want = append(want, at.Sub(begin).String())
		}
	}
	if got := w.moments(); !slices.Equal(got, want) {
		first := 0
		for first < min(len(got), len(want)) && got[first] == want[first] {
			first++
		}
		w.Errorf("seed %d, %s, every %s, within %s: run %d of %d is %v, want %v of %d", seed, s.Missed, time.Duration(s.Every), time.Duration(s.CatchUp),
			first, len(got), got[first:min(first+3, len(got))], want[first:min(first+3, len(want))], len(want))
	}
}
