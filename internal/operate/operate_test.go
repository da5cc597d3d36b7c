package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/slow"
)

type ticket = message.Ticket

var anna = store.Actor{Name: "anna", Surface: store.CommandLine}

// desk is a store with dead tasks and a clock that tests set.
type desk struct {
	testing.TB
	*memory.Client
	base *memory.Store
	now  time.Time
	rng  *rand.Rand
	// faults is the probability that a call fails before or after its effect, as if the process had been killed.
	faults float64
}

func newDesk(t testing.TB, seed uint64) *desk {
	d := &desk{TB: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), rng: rand.New(rand.NewPCG(seed, 1))}
	d.base = memory.New(func() time.Time { return d.now })
	d.Client = d.base.Client(nil)
	return d
}

var errKilled = fmt.Errorf("%w: killed", holdfast.ErrUnavailable)

// StepOperation may fail before or after it makes the step, as if the process had been killed.
func (d *desk) StepOperation(ctx context.Context, step store.OperationStep) (store.Operation, error) {
	if d.rng.Float64() < d.faults {
		return store.Operation{}, errKilled
	}
	o, err := d.Client.StepOperation(ctx, step)
	if err == nil && d.rng.Float64() < d.faults {
		return store.Operation{}, errKilled
	}
	return o, err
}

func (d *desk) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// insert stores n ready tasks.
func (d *desk) insert(n int) []holdfast.TaskID {
	d.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "mail", Queue: holdfast.DefaultQueue, MaxAttempts: 1, Payload: []byte(fmt.Sprintf(`{"n":%d}`, i))}
	}
	inserted, err := d.Insert(d.Context(), tasks, time.Hour)
	d.must(err)
	ids := make([]holdfast.TaskID, n)
	for i := range ids {
		ids[i] = inserted.Tasks[i].ID
	}
	return ids
}

// run claims the task and settles it.
func (d *desk) run(id holdfast.TaskID, result error) {
	d.Helper()
	worker, err := d.RegisterWorker(d.Context(), store.WorkerInfo{Name: "w"}, time.Hour)
	d.must(err)
	task, err := d.Task(d.Context(), id)
	d.must(err)
	claims, err := d.Claim(d.Context(), worker, store.AnyOf("mail"), []ticket{{Task: id, Attempt: task.Attempt}}, store.IntoExecutors)
	d.must(err)
	if claims[0].Verdict != store.Claimed {
		d.Fatalf("task %s: verdict %v", id, claims[0].Verdict)
	}
	move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(result), d.now, holdfast.DefaultPolicy())
	d.must(err)
	_, err = d.Apply(d.Context(), []holdfast.Transition{move})
	d.must(err)
}

// die stores n dead tasks, and moves the clock past their deaths.
func (d *desk) die(n int) []holdfast.TaskID {
	d.Helper()
	ids := d.insert(n)
	for _, id := range ids {
		d.run(id, holdfast.Permanent(errors.New("no order")))
	}
	d.now = d.now.Add(time.Millisecond)
	return ids
}

func (d *desk) start(r operate.Request) store.Operation {
	d.Helper()
	d.must(r.Check())
	counts, err := d.Count(d.Context(), r.Filter)
	d.must(err)
	total := int64(0)
	for _, n := range counts.By {
		total += n
	}
	o := r.Operation(total, false)
	o.State = store.OperationRunning
	o, err = d.CreateOperation(d.Context(), anna, o)
	d.must(err)
	return o
}

func dead() store.Filter { return store.Filter{States: []holdfast.State{holdfast.Dead}} }

// advance makes steps until the operation is in one of the states. It calls meanwhile between two steps.
func (d *desk) advance(id store.ID, meanwhile func(store.Operation), until ...store.OperationState) store.Operation {
	d.Helper()
	engine := operate.New(d, 0)
	for range 100_000 {
		o, err := d.Operation(d.Context(), id)
		d.must(err)
		if slices.Contains(until, o.State) {
			return o
		}
		if meanwhile != nil {
			meanwhile(o)
		}
		wait, _, err := engine.Advance(d.Context())
		if errors.Is(err, holdfast.ErrUnavailable) {
			engine = operate.New(d, 0) // another process
			continue
		}
		d.must(err)
		d.now = d.now.Add(wait + time.Millisecond)
	}
	d.Fatal("the operation does not end")
	return store.Operation{}
}

// changedBy returns how often the operation changed each task. It counts audit entries.
func (d *desk) changedBy(id store.ID) map[holdfast.TaskID]int {
	d.Helper()
	times := make(map[holdfast.TaskID]int)
	for f := (store.AuditFilter{Operation: id, Limit: 1 << 20}); ; { // a page ends early if its entries are long
		entries, err := d.AuditLog(d.Context(), f)
		d.must(err)
		if len(entries) == 0 {
			return times
		}
		for _, e := range entries {
			f.Before = e.ID
			if e.Task != 0 {
				times[e.Task]++
			}
		}
	}
}

// Even if calls fail, an operation changes each task once, and its counts are exact. In this test, people change some
// of the tasks and other tasks die at the same time.
func TestCountsAreExactWhateverFails(t *testing.T) {
	t.Parallel()
	for seed := range uint64(slow.Pick(50, 300)) {
		d := newDesk(t, seed)
		d.faults = 0.2
		ids := d.die(1 + d.rng.IntN(300))
		request := operate.Request{Action: store.ActionRetry, Query: "state:dead", Filter: dead(), StopAbove: new(1.0), Rate: d.rng.IntN(3)*500 - 1}
		if d.rng.IntN(2) == 0 {
			request.Ramp = []int{}
		}
		o := d.start(request)
		others := make(map[holdfast.TaskID]bool)
		end := d.advance(o.ID, func(now store.Operation) {
			switch d.rng.IntN(6) {
			case 0:
				id := ids[d.rng.IntN(len(ids))]
				task, err := d.Task(t.Context(), id)
				d.must(err)
				if task.State == holdfast.Dead {
					move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventArchive), d.now, holdfast.DefaultPolicy())
					d.must(err)
					_, err = d.Change(t.Context(), anna, []store.Change{{Action: store.ActionArchive, Task: task, Move: &move}})
					d.must(err)
					others[id] = true
				}
			case 1:
				d.die(1) // the operation does not concern it
			case 2:
				for _, id := range ids { // workers run the retried tasks
					if task, _ := d.Task(t.Context(), id); task.State == holdfast.Ready {
						d.run(id, nil)
					}
				}
			case 3:
				step, err := operate.Control(now, store.OperationPaused, anna)
				d.must(err)
				if _, err := d.Client.StepOperation(t.Context(), step); err == nil {
					paused, err := d.Operation(t.Context(), o.ID)
					d.must(err)
					step, err = operate.Control(paused, store.OperationRunning, anna)
					d.must(err)
					_, err = d.Client.StepOperation(t.Context(), step)
					d.must(err)
				}
			}
		}, store.OperationDone)
		times := d.changedBy(o.ID)
		if int64(len(times)) != end.Changed || end.Total != int64(len(ids)) || end.Visited() > end.Total {
			t.Fatalf("seed %d: %d tasks changed by the audit log, operation %+v", seed, len(times), end)
		}
		for _, id := range ids {
			if want := 1; times[id] != want && !(others[id] && times[id] == 0) {
				t.Fatalf("seed %d: task %s was changed %d times", seed, id, times[id])
			}
		}
	}
}

func TestACancelledOperationChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.die(300)
	o := d.start(operate.Request{Action: store.ActionRetry, Filter: dead(), Ramp: []int{}, Rate: 100})
	cancelled := false
	end := d.advance(o.ID, func(now store.Operation) {
		if now.Changed < 100 || cancelled {
			return
		}
		cancelled = true
		step, err := operate.Control(now, store.OperationCancelled, anna)
		d.must(err)
		_, err = d.Client.StepOperation(t.Context(), step)
		d.must(err)
	}, store.OperationCancelled)
	if _, running, err := operate.New(d, 0).Advance(t.Context()); running || err != nil {
		t.Errorf("running: %v, %v", running, err)
	}
	if n := len(d.changedBy(o.ID)); int64(n) != end.Changed || n < 100 || n == 300 {
		t.Errorf("%d tasks changed, operation %+v", n, end)
	}
	if _, err := operate.Control(end, store.OperationRunning, anna); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("resume: %v", err)
	}
}

// A ramped retry waits for the first attempts of each step, and stops if too many of them fail.
func TestARampStopsAtItsFirstStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		failing     int // of ten first attempts, how many fail
		want        store.OperationState
		wantChanged int64
	}{
		{"the target is broken", 10, store.OperationStopped, 2},
		{"some fail", 3, store.OperationDone, 200},
		{"all succeed", 0, store.OperationDone, 200},
	} {
		d := newDesk(t, 1)
		d.die(200)
		o := d.start(operate.Request{Action: store.ActionRetry, Filter: dead(), Rate: -1})
		steps, ran := make(map[int]int64), 0
		end := d.advance(o.ID, func(now store.Operation) {
			steps[now.Step] = now.Changed
			page, err := d.List(t.Context(), store.Filter{States: []holdfast.State{holdfast.Ready}, Limit: 1})
			d.must(err)
			for _, task := range page.Tasks {
				var result error
				if ran%10 >= 10-c.failing {
					result = holdfast.Permanent(errors.New("again"))
				}
				d.run(task.ID, result)
				ran++
			}
		}, store.OperationDone, store.OperationStopped)
		if end.State != c.want || end.Changed != c.wantChanged {
			t.Errorf("%s: %+v", c.name, end)
		}
		if end.State == store.OperationDone && (steps[0] != 2 || steps[1] != 10 || steps[2] != 50 || end.Succeeded+end.Failed != 200 || end.Judged != 200) {
			t.Errorf("%s: changed by step %v, %+v", c.name, steps, end)
		}
		if end.State != store.OperationStopped {
			continue
		}
		if end.Note == "" || end.Failed != 2 {
			t.Errorf("%s: %+v", c.name, end)
		}
		step, err := operate.Control(end, store.OperationRunning, anna)
		d.must(err)
		_, err = d.Client.StepOperation(t.Context(), step)
		d.must(err)
		if next := d.advance(o.ID, nil, store.OperationDone, store.OperationStopped); next.Changed != 200 {
			t.Errorf("%s: after the resume %+v", c.name, next)
		}
	}
}

// From two tasks on, the first step of the default ramp is small, and no step is empty.
func TestAnyRetryOfSeveralTasksStopsByItself(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]int{
		1: nil, 2: {1, 100}, 3: {1, 100}, 5: {1, 25, 100}, 20: {1, 25, 100}, 40: {1, 5, 25, 100}, 99: {1, 5, 25, 100}, 100: {1, 5, 25, 100},
	} {
		d := newDesk(t, 1)
		d.die(n)
		o := d.start(operate.Request{Action: store.ActionRetry, Filter: dead(), Rate: -1})
		if !slices.Equal(o.Ramp, want) {
			t.Errorf("%d tasks: ramp %v, want %v", n, o.Ramp, want)
		}
		end := d.advance(o.ID, d.runReady(errors.New("no order")), store.OperationDone, store.OperationStopped)
		switch {
		case n == 1 && (end.State != store.OperationDone || end.Failed != 1 || end.Note != "1 of 1 first attempts failed again"):
			t.Errorf("one task: %+v", end)
		case n > 1 && (end.State != store.OperationStopped || end.Changed != 1 || end.Failed != 1):
			t.Errorf("%d tasks: %+v", n, end)
		}
	}
}

// When a retry is done, its note contains how many tasks failed again.
func TestARetrySaysHowManyTasksFailedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		result error
		note   string
	}{{errors.New("no order"), "20 of 20 first attempts failed again"}, {nil, ""}} {
		d := newDesk(t, 1)
		d.die(20)
		o := d.start(operate.Request{Action: store.ActionRetry, Filter: dead(), Rate: -1, Ramp: []int{100}})
		end := d.advance(o.ID, d.runReady(c.result), store.OperationDone, store.OperationStopped)
		if end.State != store.OperationDone || end.Changed != 20 || end.Note != c.note {
			t.Errorf("%v: %+v", c.result, end)
		}
	}
}

// runReady returns a function for advance that runs each ready task. All attempts end with the same result.
func (d *desk) runReady(result error) func(store.Operation) {
	return func(store.Operation) {
		page, err := d.List(d.Context(), store.Filter{States: []holdfast.State{holdfast.Ready}, Limit: 1000})
		d.must(err)
		for _, task := range page.Tasks {
			if result == nil {
				d.run(task.ID, nil)
			} else {
				d.run(task.ID, holdfast.Permanent(result))
			}
		}
	}
}

// A step does not wait forever for attempts that never end.
func TestAStepHasATimeout(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.die(100)
	began := d.now
	o := d.start(operate.Request{Action: store.ActionRetry, Filter: dead(), Rate: -1, StepTimeout: time.Minute})
	end := d.advance(o.ID, nil, store.OperationDone)
	if took := d.now.Sub(began); end.Changed != 100 || end.Judged != 0 || took < 4*time.Minute || took > 5*time.Minute {
		t.Errorf("after %s: %+v", took, end)
	}
}

func TestTheRateIsKept(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{3, 50, 400} {
		d := newDesk(t, 1)
		d.die(1000)
		o := d.start(operate.Request{Action: store.ActionArchive, Filter: dead(), Rate: rate})
		began := d.now
		d.advance(o.ID, nil, store.OperationDone)
		if got := 1000 / d.now.Sub(began).Seconds(); got < 0.9*float64(rate) || got > 1.1*float64(rate)+float64(rate)/10 {
			t.Errorf("rate %d: %.1f tasks per second", rate, got)
		}
	}
}

// After the store's clock was set back by an hour, an operation keeps its rate and its timeouts.
func TestAClockSetBackDelaysNoOperation(t *testing.T) {
	t.Parallel()
	for _, request := range []operate.Request{
		{Action: store.ActionArchive, Filter: dead(), Rate: 100},
		{Action: store.ActionRetry, Filter: dead(), Rate: -1, StepTimeout: time.Minute},
	} {
		d := newDesk(t, 1)
		d.die(300)
		o := d.start(request)
		began, setBack := d.now, false
		end := d.advance(o.ID, func(now store.Operation) {
			if !setBack && now.Changed > 0 {
				setBack, d.now = true, d.now.Add(-time.Hour)
			}
		}, store.OperationDone)
		if took := d.now.Sub(began) + time.Hour; end.Changed != 300 || took > 10*time.Minute {
			t.Errorf("%s: after %s: %+v", request.Action, took, end)
		}
	}
}

// contended is a store in which another process makes the first step.
type contended struct {
	*desk
	conflicts int
}

func (c *contended) StepOperation(ctx context.Context, step store.OperationStep) (store.Operation, error) {
	if c.conflicts++; c.conflicts == 1 {
		return store.Operation{}, holdfast.ErrConflict
	}
	return c.desk.StepOperation(ctx, step)
}

// An engine leaves an operation to another process for two seconds, even if the clock is set back in that time.
func TestAnEngineYieldsForTwoSeconds(t *testing.T) {
	t.Parallel()
	for name, passes := range map[string]time.Duration{"two seconds later": 2 * time.Second, "the clock was set back": -time.Hour, "at once": 0} {
		d := newDesk(t, 1)
		d.die(10)
		o := d.start(operate.Request{Action: store.ActionArchive, Filter: dead()})
		engine := operate.New(&contended{desk: d}, 0)
		for range 2 {
			_, _, err := engine.Advance(t.Context())
			d.must(err)
			d.now = d.now.Add(passes)
		}
		now, err := d.Operation(t.Context(), o.ID)
		d.must(err)
		if yielded := now.Changed == 0; yielded != (passes == 0) {
			t.Errorf("%s: %d tasks changed", name, now.Changed)
		}
	}
}

// newer is a store whose operations have conditions that this build does not know.
type newer struct{ *desk }

func (n newer) ListOperations(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
	found, err := n.desk.ListOperations(ctx, f)
	for i := range found {
		found[i].Foreign = true
	}
	return found, err
}

// An engine makes no step of an operation whose filter it does not understand, because it would change too many tasks.
func TestAnEngineLeavesForeignOperationsAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.die(10)
	o := d.start(operate.Request{Action: store.ActionArchive, Filter: dead()})
	engine := operate.New(newer{d}, 0)
	for range 5 {
		_, _, err := engine.Advance(t.Context())
		d.must(err)
		d.now = d.now.Add(time.Minute)
	}
	now, err := d.Operation(t.Context(), o.ID)
	d.must(err)
	if now.Version != o.Version || len(d.changedBy(o.ID)) > 0 {
		t.Errorf("the operation is %+v", now)
	}
}

// An operation changes no task that its filter leaves out, whatever fails.
func TestAnOperationLeavesItsExceptionsAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.faults = 0.2
	ids := d.die(1200)
	f := dead()
	f.NotIDs = []holdfast.TaskID{ids[0], ids[600], ids[1199]}
	o := d.start(operate.Request{Action: store.ActionArchive, Filter: f})
	end := d.advance(o.ID, nil, store.OperationDone)
	changed := d.changedBy(o.ID)
	if o.Total != 1197 || end.Changed != 1197 || end.Skipped != 0 || len(changed) != 1197 {
		t.Errorf("%d tasks changed: %+v", len(changed), end)
	}
	for _, id := range f.NotIDs {
		if task, err := d.Task(t.Context(), id); err != nil || task.State != holdfast.Dead || changed[id] > 0 {
			t.Errorf("task %s is %s, %v", id, task.State, err)
		}
	}
}

func TestEditsRefuseWhatThePatchDoesNotFit(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.die(120)
	o := d.start(operate.Request{Action: store.ActionEdit, Filter: dead(), Patch: []byte(`[{"op":"test","path":"/payload/n","value":7},{"op":"replace","path":"/payload/n","value":8}]`)})
	end := d.advance(o.ID, nil, store.OperationDone)
	if end.Changed != 1 || end.Refused != 119 || end.Note == "" {
		t.Errorf("%+v", end)
	}
}

// Tasks whose new payload does not fit the schema of their type remain unchanged, and are counted.
func TestEditsRefusePayloadsThatDoNotFitTheirType(t *testing.T) {
	t.Parallel()
	for _, skip := range []bool{false, true} {
		d := newDesk(t, 1)
		ids := d.die(60)
		schema := json.RawMessage(`{"type":["object"],"properties":{"n":{"type":["integer"],"maximum":9}}}`)
		_, err := d.RegisterWorker(t.Context(), store.WorkerInfo{Types: []string{"mail"}, Schemas: map[string]json.RawMessage{"mail": schema}}, time.Hour)
		d.must(err)
		o := d.start(operate.Request{
			Action: store.ActionEdit, Filter: dead(), SkipValidation: skip,
			Patch: []byte(`[{"op":"copy","from":"/payload/n","path":"/payload/n2"}]`),
		})
		want := int64(60)
		if !skip {
			want = 10 // the payloads with n up to 9
		}
		end := d.advance(o.ID, nil, store.OperationDone)
		if end.Changed != want || end.Refused != 60-want || (end.Note == "") != skip || !skip && !strings.Contains(end.Note, "/n: 59 is more than 9") {
			t.Errorf("skip %v: %+v", skip, end)
		}
		entry, err := d.AuditLog(t.Context(), store.AuditFilter{Task: ids[0]})
		d.must(err)
		if skipped := strings.Contains(string(entry[0].After), "skipped_validation"); skipped != skip {
			t.Errorf("skip %v: the audit entry has %s", skip, entry[0].After)
		}
	}
}

// An edit calls the check function of the type, as producers do. Try calls it before the edit.
func TestEditsRefusePayloadsThatTheCheckRefuses(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	ids := d.die(60)
	engine := operate.New(d, 0)
	engine.Check = map[string]func([]byte) error{"mail": func(payload []byte) error {
		var p struct{ N, N2 int }
		if err := json.Unmarshal(payload, &p); err != nil || p.N2 > 9 {
			return fmt.Errorf("%w: n2 is %d", holdfast.ErrInvalid, p.N2)
		}
		return nil
	}}
	o := d.start(operate.Request{Action: store.ActionEdit, Filter: dead(), Patch: []byte(`[{"op":"copy","from":"/payload/n","path":"/payload/n2"}]`)})
	samples := make([]holdfast.Task, 20) // the payload of sample i is {"n": i}
	for i := range samples {
		samples[i].ID = ids[i]
	}
	if refused, note, err := engine.Try(t.Context(), o, samples); refused != 10 || note != "invalid: n2 is 10" || err != nil {
		t.Errorf("%d of %d samples are refused: %s, %v", refused, len(samples), note, err)
	}
	for o.State == store.OperationRunning {
		_, err := engine.Step(t.Context(), o)
		d.must(err)
		o, err = d.Operation(t.Context(), o.ID)
		d.must(err)
	}
	if o.State != store.OperationDone || o.Changed != 10 || o.Refused != 50 || o.Note != "invalid: n2 is 59" {
		t.Errorf("%+v", o)
	}
}

func TestALimitEndsAnOperation(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	ids := d.die(50)
	o := d.start(operate.Request{Action: store.ActionPurge, Filter: dead(), Limit: 20})
	end := d.advance(o.ID, nil, store.OperationDone)
	if end.Changed != 20 || end.Total != 20 {
		t.Errorf("%+v", end)
	}
	if _, err := d.Task(t.Context(), ids[29]); err != nil {
		t.Errorf("an older task: %v", err)
	}
	if _, err := d.Task(t.Context(), ids[30]); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("a newer task: %v", err)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	for _, r := range []operate.Request{
		{Action: "explode", Filter: dead()},
		{Action: store.ActionUndo, Filter: dead()},
		{Action: store.ActionRetry},
		{Action: store.ActionRetry, Filter: store.Filter{States: []holdfast.State{holdfast.Ready}}},
		{Action: store.ActionEdit, Filter: dead()},
		{Action: store.ActionEdit, Filter: dead(), Patch: []byte(`{}`)},
		{Action: store.ActionRetry, Filter: dead(), Patch: []byte(`[]`)},
		{Action: store.ActionRetry, Filter: dead(), SkipValidation: true},
		{Action: store.ActionRetry, Filter: dead(), Limit: -1},
		{Action: store.ActionRetry, Filter: dead(), StopAbove: new(1.5)},
		{Action: store.ActionPurge, Filter: dead(), StopAbove: new(0.0)},
		{Action: store.ActionPurge, Filter: dead(), Ramp: []int{100}},
		{Action: store.ActionPurge, Filter: dead(), StepTimeout: time.Minute},
		{Action: store.ActionRetry, Filter: dead(), Ramp: []int{5, 1, 100}},
		{Action: store.ActionRetry, Filter: dead(), Ramp: []int{5}},
		{Action: store.ActionRetry, Filter: dead(), StepTimeout: -1},
	} {
		if err := r.Check(); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestAResumedRetryForgetsTheFailuresBefore resumes an operation that stopped while some retried tasks had not run.
// These tasks fail before the operation resumes.
func TestAResumedRetryForgetsTheFailuresBefore(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	ids := d.die(400)
	o := d.start(operate.Request{Action: store.ActionRetry, Query: "state:dead", Filter: dead(), Rate: -1, Ramp: []int{25, 100}})
	fail := func(n int) {
		for _, id := range ids {
			if task, err := d.Task(t.Context(), id); err == nil && task.State == holdfast.Ready && n > 0 {
				d.run(id, holdfast.Permanent(errors.New("no order")))
				n--
			}
		}
	}
	o = d.advance(o.ID, func(o store.Operation) {
		if o.Changed == 100 && o.Judged == 0 {
			fail(30)
		}
	}, store.OperationStopped)
	if o.Changed != 100 || o.Judged != 30 {
		t.Fatalf("stopped after %d tasks and %d first attempts", o.Changed, o.Judged)
	}
	fail(70)
	resumed, err := operate.Control(o, store.OperationRunning, anna)
	d.must(err)
	_, err = d.StepOperation(t.Context(), resumed)
	d.must(err)
	o = d.advance(o.ID, func(store.Operation) {
		for _, id := range ids {
			if task, err := d.Task(t.Context(), id); err == nil && task.State == holdfast.Ready {
				d.run(id, nil)
			}
		}
	}, store.OperationDone, store.OperationStopped)
	if o.State != store.OperationDone || o.Changed != 400 || o.Failed != 100 || o.Succeeded != 300 {
		t.Errorf("the operation is %s with %d changed, %d failed and %d succeeded: %s", o.State, o.Changed, o.Failed, o.Succeeded, o.Note)
	}
}

// broken is a desk on which each step of one operation fails.
type broken struct {
	*desk
	id store.ID
}

func (b broken) StepOperation(ctx context.Context, step store.OperationStep) (store.Operation, error) {
	if step.From.ID == b.id {
		return store.Operation{}, errors.New("disk full")
	}
	return b.desk.StepOperation(ctx, step)
}

func TestAFailedOperationDelaysNoOther(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.die(10)
	first := d.start(operate.Request{Action: store.ActionArchive, Filter: dead()})
	second := d.start(operate.Request{Action: store.ActionArchive, Filter: dead()})
	_, running, err := operate.New(broken{d, first.ID}, 0).Advance(t.Context())
	if !running || err == nil || !strings.Contains(err.Error(), "operation "+first.ID.String()+": disk full") {
		t.Errorf("Advance returned %t, %v", running, err)
	}
	o, err := d.Operation(t.Context(), second.ID)
	d.must(err)
	if o.Changed != 10 {
		t.Errorf("the other operation has changed %d tasks", o.Changed)
	}
}

// TestAStepOfAnEditIsBounded edits tasks with long payloads. The payloads of a step exceed a megabyte by at most one
// task.
func TestAStepOfAnEditIsBounded(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	long := json.RawMessage(`{"text":"` + strings.Repeat("x", 300<<10) + `"}`)
	for _, id := range d.die(12) {
		task, err := d.Task(t.Context(), id)
		d.must(err)
		_, err = d.Change(t.Context(), anna, []store.Change{{Action: store.ActionEdit, Task: task, Edit: &store.Edit{Payload: long}}})
		d.must(err)
	}
	o := d.start(operate.Request{Action: store.ActionEdit, Filter: dead(), Patch: []byte(`[{"op":"add","path":"/payload/n","value":1}]`)})
	before := int64(0)
	o = d.advance(o.ID, func(o store.Operation) {
		if o.Changed-before > 4 {
			t.Errorf("a step has changed %d tasks", o.Changed-before)
		}
		before = o.Changed
	}, store.OperationDone)
	if times := d.changedBy(o.ID); o.Changed != 12 || len(times) != 12 {
		t.Errorf("%d tasks are changed, %d different ones", o.Changed, len(times))
	}
}

// TestAStepOfAnEditWithASlowPatchIsBounded edits tasks with an expensive patch. A step patches few of them, so that
// other operations proceed. Tasks to which the patch does not apply count, too.
func TestAStepOfAnEditWithASlowPatchIsBounded(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"edited": `{"op":"add","path":"/payload/n","value":1}`, "refused": `{"op":"remove","path":"/payload/no"}`} {
		d := newDesk(t, 1)
		long := json.RawMessage(`{"text":"` + strings.Repeat("x", 20<<10) + `"}`)
		for _, id := range d.die(20) {
			task, err := d.Task(t.Context(), id)
			d.must(err)
			_, err = d.Change(t.Context(), anna, []store.Change{{Action: store.ActionEdit, Task: task, Edit: &store.Edit{Payload: long}}})
			d.must(err)
		}
		patch := "[" + strings.Repeat(`{"op":"add","path":"/payload/n","value":1},`, 600) + last + "]"
		o := d.start(operate.Request{Action: store.ActionEdit, Filter: dead(), Patch: []byte(patch)})
		before := int64(0)
		o = d.advance(o.ID, func(o store.Operation) {
			if o.Visited()-before > 2 {
				t.Errorf("%s: a step has patched %d tasks", name, o.Visited()-before)
			}
			before = o.Visited()
		}, store.OperationDone)
		if o.Visited() != 20 {
			t.Errorf("%s: %d tasks are visited", name, o.Visited())
		}
	}
}

// TestAnEngineMakesStepsOfSomeActions checks that Advance skips other actions. So janitors can run slow edits apart
// from other operations.
func TestAnEngineMakesStepsOfSomeActions(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 1)
	d.die(3)
	edit := d.start(operate.Request{Action: store.ActionEdit, Filter: dead(), Patch: []byte(`[{"op":"replace","path":"/queue","value":"other"}]`)})
	archive := d.start(operate.Request{Action: store.ActionArchive, Filter: dead()})
	engine := operate.New(d, 0)
	_, running, err := engine.Advance(t.Context(), store.ActionArchive, store.ActionRetry)
	d.must(err)
	first, err := d.Operation(t.Context(), edit.ID)
	d.must(err)
	second, err := d.Operation(t.Context(), archive.ID)
	d.must(err)
	if !running || first.Visited() != 0 || second.Visited() != 3 {
		t.Errorf("running %t, the edit has visited %d tasks, the archive %d", running, first.Visited(), second.Visited())
	}
	if _, running, err := engine.Advance(t.Context(), store.ActionPurge); running || err != nil {
		t.Errorf("no operation has the action: running %t, %v", running, err)
	}
}
