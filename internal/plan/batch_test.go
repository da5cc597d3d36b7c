package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func taskOf(taskType string) plan.Task { return plan.Task{Type: taskType, Queue: "default"} }

func subtask(payload any) holdfast.NewTask {
	return holdfast.NewTask{Type: "map", Queue: "default", MaxAttempts: 3, Payload: json.RawMessage(fmt.Sprint(payload))}
}

// startBatch stores a batch and begins its first stage.
func (w *world) startBatch(b plan.Batch) store.ID {
	w.Helper()
	w.must(b.Validate(holdfast.DefaultMaxPayload))
	p, err := w.CreatePlan(w.Context(), anna, b.Plan("", w.now))
	w.must(err)
	p, err = plan.Begin(w.Context(), w, p)
	w.must(err)
	return p.ID
}

func (w *world) batch(id store.ID) (store.Plan, plan.BatchProgress) {
	w.Helper()
	p, err := plan.PlanByID(w.Context(), w, id)
	w.must(err)
	_, progress, err := plan.ReadBatch(p)
	w.must(err)
	return p, progress
}

// change stores what a person makes of a batch.
func (w *world) changeBatch(id store.ID, change func(plan.Batch, store.Plan, plan.BatchProgress) (store.Plan, error)) error {
	w.Helper()
	p, _ := w.batch(id)
	b, progress, err := plan.ReadBatch(p)
	w.must(err)
	to, err := change(b, p, progress)
	if err != nil {
		return err
	}
	_, err = w.Client.StepPlan(w.Context(), store.PlanStep{From: p}, plan.WithoutItems(func(store.Inserted) store.Plan { return to }))
	return err
}

// worker claims tasks and settles them.
type batchWorker struct {
	*world
	id holdfast.WorkerID
}

func (w *world) batchWorker() *batchWorker {
	w.Helper()
	id, err := w.RegisterWorker(w.Context(), store.WorkerInfo{Name: "w"}, 1000*time.Hour)
	w.must(err)
	return &batchWorker{w, id}
}

// claim claims a ready task, or returns false.
func (w *batchWorker) claim(task holdfast.Task) (holdfast.Task, bool) {
	w.Helper()
	claims, err := w.Claim(w.Context(), w.id, store.AnyOf(task.Type), []ticket{{Task: task.ID, Attempt: task.Attempt}}, store.IntoExecutors)
	w.must(err)
	return *claims[0].Task, claims[0].Verdict == store.Claimed
}

// run runs all ready tasks of a type with a result.
func (w *batchWorker) run(taskType string, result error) (ran int) {
	w.Helper()
	for _, task := range w.tasks() {
		if task.Type != taskType || task.State != holdfast.Ready {
			continue
		}
		if claimed, ok := w.claim(task); ok {
			w.settle(claimed, holdfast.Returned(result))
			ran++
		}
	}
	return ran
}

// settleBatch calls Advance while time passes.
func (w *world) pass(d time.Duration) {
	w.Helper()
	engine := plan.New(w)
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(100 * time.Millisecond) {
		_, _, err := engine.Advance(w.Context())
		w.must(err)
	}
	w.must(engine.Release(w.Context()))
}

// types returns the types of all tasks, in their order.
func (w *world) types() string {
	w.Helper()
	var types []string
	for _, task := range w.tasks() {
		types = append(types, task.Type)
	}
	return strings.Join(types, " ")
}

func (w *world) push(id store.ID, number int, payloads ...any) error {
	w.Helper()
	page := plan.Page{Number: number}
	for _, payload := range payloads {
		page.Tasks = append(page.Tasks, subtask(payload))
	}
	_, err := plan.Push(w.Context(), w, id, page)
	return err
}

func TestStagesFollowEachOther(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{
		{Tasks: []plan.Task{taskOf("a")}}, {Tasks: []plan.Task{taskOf("b"), taskOf("c")}}, {Tasks: []plan.Task{taskOf("d")}},
	}})
	worker := w.batchWorker()
	if got := w.types(); got != "a" {
		t.Fatalf("tasks %s", got)
	}
	w.pass(5 * time.Second)
	worker.run("a", nil)
	w.pass(2 * time.Second)
	worker.run("c", nil)
	w.pass(5 * time.Second)
	if got := w.types(); got != "a b c" {
		t.Errorf("tasks while b is open: %s", got)
	}
	worker.run("b", nil)
	w.pass(2 * time.Second)
	if got := w.types(); got != "a b c d" {
		t.Errorf("tasks %s", got)
	}
	if p, progress := w.batch(id); p.State != store.PlanRunning || progress.Subtasks != (plan.Counts{Total: 4, Done: 3}) {
		t.Errorf("state %s, progress %+v", p.State, progress)
	}
	worker.run("d", nil)
	w.pass(2 * time.Second)
	p, progress := w.batch(id)
	if p.State != store.PlanDone || p.EndedAt.IsZero() || progress.Subtasks != (plan.Counts{Total: 4, Done: 4}) {
		t.Errorf("state %s, progress %+v", p.State, progress)
	}
	for i, task := range w.tasks() {
		batch, stage, n, ok := plan.StageOrigin(task.Unique)
		if want := []int{0, 10, 11, 20}[i]; !ok || batch != id || stage*10+n != want || int64(task.Batch) != int64(id) {
			t.Errorf("task %s of batch %d has the key %s", task.Type, task.Batch, task.Unique)
		}
	}
}

func TestAFailureStopsTheBatchUntilItIsRepaired(t *testing.T) {
	for name, c := range map[string]struct {
		allowed string
		dead    int // of ten subtasks
		stops   bool
	}{"none": {"0", 1, true}, "two": {"2", 2, false}, "three of two": {"2", 3, true}, "20 %": {"20%", 2, false}, "three of 20 %": {"20%", 3, true}, "all": {"100%", 10, false}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			allowed, err := plan.ParseAllowed(c.allowed)
			w.must(err)
			stages := []plan.Stage{{}, {Tasks: []plan.Task{taskOf("reduce")}, After: true}}
			for range 10 {
				stages[0].Tasks = append(stages[0].Tasks, taskOf("map"))
			}
			id := w.startBatch(plan.Batch{Stages: stages, Allowed: allowed})
			worker := w.batchWorker()
			for i, task := range w.tasks() {
				claimed, _ := worker.claim(task)
				var result error
				if i < c.dead {
					result = holdfast.Permanent(errors.New("broken"))
				}
				w.settle(claimed, holdfast.Returned(result))
			}
			w.pass(3 * time.Second)
			p, progress := w.batch(id)
			if progress.Subtasks != (plan.Counts{Total: 10, Done: int64(10 - c.dead), Dead: int64(c.dead)}) {
				t.Errorf("progress %+v", progress)
			}
			if reduces := strings.Contains(w.types(), "reduce"); reduces == c.stops || (p.State == store.PlanStopped) != c.stops || (progress.Stopped != "") != c.stops {
				t.Fatalf("state %s (%s), tasks %s", p.State, progress.Stopped, w.types())
			}
			if !c.stops {
				return
			}
			for _, task := range w.tasks() {
				if task.State == holdfast.Dead {
					w.requeue(task)
				}
			}
			w.pass(11 * time.Second)
			if p, progress := w.batch(id); progress.Subtasks.Dead != 0 || progress.Subtasks.Open() != int64(c.dead) || p.State != store.PlanRunning {
				t.Errorf("after the retry: state %s, %+v", p.State, progress)
			}
			worker.run("map", nil)
			w.pass(11 * time.Second)
			worker.run("reduce", nil)
			w.pass(11 * time.Second)
			if p, progress := w.batch(id); p.State != store.PlanDone || progress.Stopped != "" || progress.Subtasks.Done != 10 {
				t.Errorf("at the end: state %s, %+v", p.State, progress)
			}
		})
	}
}

// If the task of a failed split is deleted, the reason names the only way out.
func TestABatchWhoseSplitWasDeletedNamesTheWayOut(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Split: new(taskOf("split"))}}})
	w.batchWorker().run("split", holdfast.Permanent(errors.New("broken")))
	w.pass(2 * time.Second)
	if _, progress := w.batch(id); !strings.Contains(progress.Stopped, "retry its task") {
		t.Fatalf("stopped: %q", progress.Stopped)
	}
	_, err := w.Change(t.Context(), anna, []store.Change{{Action: store.ActionPurge, Task: w.tasks()[0]}})
	w.must(err)
	w.pass(11 * time.Second)
	if _, progress := w.batch(id); !strings.Contains(progress.Stopped, "cancel the batch") {
		t.Errorf("stopped: %q", progress.Stopped)
	}
	resume := func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Resumed(p, progress, w.now)
	}
	if err := w.changeBatch(id, resume); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "cancel the batch") {
		t.Errorf("resume: %v", err)
	}
}

func TestARepairedBatchIsCheckedAtOnce(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{taskOf("map")}}}})
	w.batchWorker().run("map", holdfast.Permanent(errors.New("broken")))
	w.pass(2 * time.Second)
	w.requeue(w.tasks()[0])
	p, _ := w.batch(id)
	if p.State != store.PlanStopped {
		t.Fatalf("state %s", p.State)
	}
	p, err := plan.Check(t.Context(), w, p)
	w.must(err)
	if p.State != store.PlanRunning {
		t.Errorf("state %s", p.State)
	}
}

func TestAPersonAcceptsFailures(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{taskOf("map"), taskOf("map")}}, {Tasks: []plan.Task{taskOf("then")}, After: true}}})
	worker := w.batchWorker()
	worker.run("map", holdfast.Permanent(errors.New("broken")))
	w.pass(2 * time.Second)
	resume := func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Resumed(p, progress, w.now)
	}
	w.must(w.changeBatch(id, resume))
	w.pass(11 * time.Second)
	if got := w.types(); got != "map map then" {
		t.Fatalf("tasks %s", got)
	}
	worker.run("then", holdfast.Permanent(errors.New("broken")))
	w.pass(2 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanStopped {
		t.Errorf("after the last stage has failed: state %s, %+v", p.State, progress)
	}
	w.must(w.changeBatch(id, resume))
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanDone || progress.Subtasks != (plan.Counts{Total: 2, Dead: 2}) {
		t.Errorf("state %s, %+v", p.State, progress)
	}
	if err := w.changeBatch(id, resume); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("resume of a batch that has ended: %v", err)
	}
}

func TestProgramsPushPages(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Open: true}, {Tasks: []plan.Task{taskOf("then")}, After: true}}})
	w.must(w.push(id, 0, 1, 2))
	w.must(w.push(id, 0, 1, 2)) // again, because the answer was lost
	w.must(w.push(id, 1, 3))
	if err := w.push(id, 3, 5); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("page 3 before page 2: %v", err)
	}
	worker := w.batchWorker()
	if ran := worker.run("map", nil); ran != 3 {
		t.Errorf("%d subtasks", ran)
	}
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanRunning || progress.Stage != 0 || progress.Subtasks != (plan.Counts{Total: 3, Done: 3}) {
		t.Errorf("before the seal: state %s, %+v", p.State, progress)
	}
	w.pass(time.Minute)
	w.now = w.now.Add(plan.PushLimit)
	w.pass(time.Second)
	if p, progress := w.batch(id); p.State != store.PlanStopped || progress.Stopped == "" {
		t.Errorf("a day later: state %s, %+v", p.State, progress)
	}
	unique := subtask(4)
	unique.Unique = "u"
	page := plan.Page{Number: 2, Tasks: []holdfast.NewTask{unique, unique}}
	_, err := plan.Push(t.Context(), w, id, page)
	w.must(err)
	seal := func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Sealed(p, progress, w.now)
	}
	w.must(w.changeBatch(id, seal))
	w.must(w.changeBatch(id, seal))
	if err := w.push(id, 3, 6); !errors.Is(err, plan.ErrSealed) {
		t.Errorf("a page after the seal: %v", err)
	}
	worker.run("map", nil)
	w.pass(11 * time.Second)
	worker.run("then", nil)
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanDone || progress.Subtasks != (plan.Counts{Total: 4, Done: 4, Duplicate: 1}) {
		t.Errorf("state %s, %+v", p.State, progress)
	}
}

func TestAnEmptyBatchEnds(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Open: true}, {Tasks: []plan.Task{taskOf("then")}, After: true}}})
	w.must(w.changeBatch(id, func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Sealed(p, progress, w.now)
	}))
	w.pass(time.Second)
	w.batchWorker().run("then", nil)
	w.pass(2 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanDone || progress.Subtasks != (plan.Counts{}) {
		t.Errorf("state %s, %+v", p.State, progress)
	}
}

func TestACancelledBatchEndsWithItsTasks(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{taskOf("map"), taskOf("map")}}, {Tasks: []plan.Task{taskOf("then")}, After: true}}})
	cancel := func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Cancelled(p, progress, w.now)
	}
	w.must(w.changeBatch(id, cancel))
	w.must(w.changeBatch(id, cancel))
	w.pass(2 * time.Second)
	if p, _ := w.batch(id); p.State != store.PlanRunning {
		t.Errorf("with open tasks: state %s", p.State)
	}
	w.end(1, holdfast.EventCancel)
	w.batchWorker().run("map", nil)
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanCancelled || progress.Subtasks != (plan.Counts{Total: 2, Done: 1, Cancelled: 1}) {
		t.Errorf("state %s, %+v", p.State, progress)
	}
	if got := w.types(); got != "map map" {
		t.Errorf("tasks %s", got)
	}
}

// A person cancels the split and a subtask, and retries both of them.
func TestABatchGoesOnAfterARetryOfCancelledTasks(t *testing.T) {
	w := newWorld(t, 1)
	split := taskOf("split")
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{taskOf("map")}, Split: &split}}})
	w.end(2, holdfast.EventCancel)
	w.pass(2 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanStopped || !progress.SplitFailed || progress.Now.Cancelled != 1 {
		t.Errorf("with cancelled tasks: state %s, %+v", p.State, progress)
	}
	for _, task := range w.tasks() {
		w.requeue(task)
	}
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanRunning || progress.SplitFailed || progress.Now.Open() != 1 {
		t.Errorf("after the retry: state %s, %+v", p.State, progress)
	}
	worker := w.batchWorker()
	worker.run("map", nil)
	worker.run("split", nil)
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanDone || progress.Subtasks.Done != 1 {
		t.Errorf("at the end: state %s, %+v", p.State, progress)
	}
}

// busy is a store in which a program pushes a page before each step of an engine.
type busy struct {
	*world
	id    store.ID
	pages int
	after func() // called after a page; may be nil
}

func (b *busy) StepPlan(ctx context.Context, s store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	b.must(b.world.push(b.id, b.pages, b.pages))
	b.pages++
	if b.after != nil {
		b.after()
	}
	return b.world.StepPlan(ctx, s, finish)
}

// Pages that are stored all the time keep no engine from counting the subtasks. Each is counted once, even if two engines
// read the same items.
func TestPagesDoNotDelayTheCounts(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Open: true}}})
	w.must(w.push(id, 0, 1, 2, 3))
	worker := w.batchWorker()
	for range 3 {
		worker.run("map", nil)
	}
	w.now = w.now.Add(time.Second)
	b := &busy{world: w, id: id, pages: 1}
	_, _, err := plan.New(b).Advance(t.Context())
	w.must(err)
	if _, progress := w.batch(id); b.pages != 2 || progress.Now.Done != 3 || progress.Now.Total != 4 {
		t.Errorf("after %d pages, the progress is %+v", b.pages, progress)
	}
	worker.run("map", nil)
	w.now = w.now.Add(time.Second)
	b.after = func() { // another engine makes the same step first
		b.after = nil
		_, _, err := plan.New(w).Advance(t.Context())
		w.must(err)
	}
	_, _, err = plan.New(b).Advance(t.Context())
	w.must(err)
	if _, progress := w.batch(id); progress.Now.Done != 4 || progress.Now.Total != int64(2+b.pages) || progress.Subtasks.Done != 4 {
		t.Errorf("after the steps of two engines and %d pages, the progress is %+v", b.pages, progress)
	}
}

// The tasks of a cancelled batch may wait for a far attempt. The batch ends soon after they are cancelled.
func TestACancelledBatchDoesNotWaitForItsChecks(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Open: true}}})
	later := subtask(1)
	later.Delay = time.Hour
	_, err := plan.Push(t.Context(), w, id, plan.Page{Tasks: slices.Repeat([]holdfast.NewTask{later}, 20)})
	w.must(err)
	w.pass(2 * time.Second)
	w.must(w.changeBatch(id, func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Cancelled(p, progress, w.now)
	}))
	w.pass(time.Second)
	w.end(20, holdfast.EventCancel)
	w.pass(time.Second)
	if p, progress := w.batch(id); p.State != store.PlanCancelled || progress.Subtasks.Cancelled != 20 {
		t.Errorf("state %s, %+v", p.State, progress)
	}
}

func TestAPausedBatchBeginsNoStage(t *testing.T) {
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{taskOf("map")}}, {Tasks: []plan.Task{taskOf("then")}, After: true}}})
	pause := func(b plan.Batch, p store.Plan, _ plan.BatchProgress) (store.Plan, error) { return b.Paused(p) }
	w.must(w.changeBatch(id, pause))
	w.must(w.changeBatch(id, pause))
	w.batchWorker().run("map", nil)
	w.pass(11 * time.Second)
	if p, progress := w.batch(id); p.State != store.PlanPaused || progress.Subtasks.Done != 1 || w.types() != "map" {
		t.Errorf("state %s, %+v, tasks %s", p.State, progress, w.types())
	}
	w.must(w.changeBatch(id, func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Resumed(p, progress, w.now)
	}))
	w.pass(2 * time.Second)
	if w.types() != "map then" {
		t.Errorf("after the resume: tasks %s", w.types())
	}
}

func TestBatchesAreChecked(t *testing.T) {
	good := plan.Stage{Tasks: []plan.Task{taskOf("a")}}
	large := plan.Stage{Tasks: slices.Repeat([]plan.Task{{Type: "a", Queue: "default", Payload: json.RawMessage(`"` + strings.Repeat("x", 90) + `"`)}}, 1000)}
	for name, b := range map[string]plan.Batch{
		"no stage": {}, "empty stage": {Stages: []plan.Stage{{}}}, "no type": {Stages: []plan.Stage{{Tasks: []plan.Task{{}}}}},
		"late open stage": {Stages: []plan.Stage{good, {Open: true}}}, "negative window": {Stages: []plan.Stage{good}, Window: -1},
		"1,001 tasks": {Stages: []plan.Stage{{Tasks: make([]plan.Task, 1001)}}}, "101 stages": {Stages: slices.Repeat([]plan.Stage{good}, 101)},
		"20,000 tasks":     {Stages: slices.Repeat([]plan.Stage{large}, 20)},
		"split of no type": {Stages: []plan.Stage{{Split: &plan.Task{}}}}, "long note": {Stages: []plan.Stage{good}, Note: strings.Repeat("x", 5000)},
	} {
		if err := b.Validate(100); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"", "-1", "x", "101%", "-1%", "%", "1 %", "NaN%"} {
		if a, err := plan.ParseAllowed(text); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
	for _, text := range []string{"0", "7", "0.5%", "100%"} {
		if a, err := plan.ParseAllowed(text); err != nil || a.String() != text {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
}

// A split stores 40 subtasks in pages, and then the outputs are reduced. Attempts are killed at random points, calls fail
// before and after their effects, engines are started again, subtasks fail, and people retry dead ones. Each subtask is
// stored once, and the reduce is stored once, after all of them have ended.
func TestSplitsAndReducesWithKills(t *testing.T) {
	seeds := 200
	if slow.All() {
		seeds = 10_000
	}
	for seed := range uint64(seeds) {
		if t.Failed() {
			return
		}
		w := newWorld(t, seed)
		runSplit(w, seed)
	}
}

func runSplit(w *world, seed uint64) {
	const items = 40
	split := taskOf("split")
	window := 5 + w.rng.IntN(60)
	id := w.startBatch(plan.Batch{Window: window, Stages: []plan.Stage{{Split: &split}, {Tasks: []plan.Task{taskOf("reduce")}, After: true}}})
	worker := w.batchWorker()
	engines := []*plan.Engine{plan.New(w), plan.New(w), plan.New(w)}
	size := 1 + w.rng.IntN(9)
	var running *holdfast.Task // the attempt of the split
	number, next := 0, 0
	for step := 0; ; step++ {
		if p, _ := w.batch(id); p.State == store.PlanDone {
			break
		}
		if step > 20_000 {
			p, progress := w.batch(id)
			w.Fatalf("seed %d: the batch does not end: %s, %+v", seed, p.State, progress)
		}
		w.now = w.now.Add(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
		w.faults = 0.15
		i := w.rng.IntN(len(engines))
		if w.rng.IntN(20) == 0 {
			engines[i] = plan.New(w) // the process was started again
		}
		if _, _, err := engines[i].Advance(w.Context()); err != nil && !errors.Is(err, errKilled) {
			w.Fatal(err)
		}
		switch {
		case running == nil:
		case w.rng.IntN(15) == 0: // its worker was killed, and a janitor took the task back
			w.settle(*running, holdfast.Crashed(running.Worker))
			if w.rng.IntN(2) == 0 { // the killed attempt still sends a page
				_, err := plan.Push(w.Context(), w, id, plan.Page{Tasks: []holdfast.NewTask{subtask(next)}, Number: number, Cursor: "late", Split: fenceOf(*running)})
				_, progress := w.batch(id)
				if stored := err == nil && number < progress.Pages; !stored && !errors.Is(err, store.ErrFenced) && !errors.Is(err, errKilled) && !errors.Is(err, plan.ErrFull) && !errors.Is(err, plan.ErrPaused) {
					w.Errorf("seed %d: a page of a killed attempt: %v", seed, err)
				}
			}
			running = nil
		case next == items:
			w.settle(*running, holdfast.Returned(nil))
			running = nil
		default:
			var page plan.Page
			for k := next; k < min(items, next+size); k++ {
				page.Tasks = append(page.Tasks, subtask(k))
			}
			page.Number, page.Cursor, page.Split = number, fmt.Sprint(next+len(page.Tasks)), fenceOf(*running)
			switch _, err := plan.Push(w.Context(), w, id, page); {
			case err == nil:
				number, next = number+1, next+len(page.Tasks)
			case !errors.Is(err, errKilled) && !errors.Is(err, plan.ErrFull) && !errors.Is(err, plan.ErrPaused):
				w.Fatalf("seed %d: %v", seed, err)
			}
		}
		w.faults = 0
		for _, task := range w.tasks() {
			if w.rng.IntN(3) > 0 || task.Type == "split" && running != nil {
				continue
			}
			if task.State == holdfast.Dead && w.rng.IntN(10) == 0 {
				w.requeue(task)
			}
			if task.State != holdfast.Ready {
				continue
			}
			claimed, ok := worker.claim(task)
			switch {
			case !ok:
			case task.Type == "split":
				_, progress := w.batch(id)
				running, number, next = &claimed, progress.Pages, 0
				if progress.Cursor != "" {
					_, err := fmt.Sscan(progress.Cursor, &next)
					w.must(err)
				}
			case w.rng.IntN(20) == 0:
				w.settle(claimed, holdfast.Returned(holdfast.Permanent(errors.New("broken"))))
			default:
				w.settle(claimed, holdfast.Returned(nil))
			}
		}
	}
	seen, reduces, ended := make(map[string]int), 0, time.Time{}
	for _, task := range w.tasks() {
		full, err := w.Task(w.Context(), task.ID)
		w.must(err)
		switch task.Type {
		case "map":
			if seen[string(full.Payload)]++; task.State != holdfast.Done || task.FinishedAt.After(ended) {
				ended = task.FinishedAt
			}
		case "reduce":
			reduces++
			if task.CreatedAt.Before(ended) {
				w.Errorf("seed %d: the reduce was stored at %s, and a subtask ended at %s", seed, task.CreatedAt, ended)
			}
		}
	}
	for i := range items {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			w.Errorf("seed %d: subtask %d was stored %d times", seed, i, n)
		}
	}
	if _, progress := w.batch(id); reduces != 1 || progress.Subtasks != (plan.Counts{Total: items, Done: items}) {
		w.Errorf("seed %d: %d reduces, progress %+v", seed, reduces, progress)
	}
}

func fenceOf(task holdfast.Task) *store.Fence {
	return &store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker}
}

// The tasks of another store can have unique keys like those of a batch, because people have imported them. A program can
// also guess a key. Neither makes a stage count as done.
func TestABatchIsNotDoneByTasksOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	chain := plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{plan.TaskOf(subtask(1))}}, {Tasks: []plan.Task{plan.TaskOf(subtask(2))}, After: true}}}
	insert := func(unique string) {
		task := subtask(0)
		task.Unique = unique
		_, err := w.Insert(w.Context(), []holdfast.NewTask{task}, 0)
		w.must(err)
	}
	insert("batch/1/0/0")                                      // of a former version
	insert(fmt.Sprintf("batch/1/0/0/%d", w.now.UnixMicro()-1)) // of another store
	insert(fmt.Sprintf("batch/2/0/0/%d", w.now.UnixMicro()))   // guessed
	imported, guessed := w.startBatch(chain), w.startBatch(chain)
	if _, progress := w.batch(imported); progress.Now.Total != 1 || progress.Taken != 0 {
		t.Errorf("the batch beside imported tasks: %+v", progress)
	}
	w.pass(time.Second)
	p, progress := w.batch(guessed)
	if p.State != store.PlanStopped || progress.Taken != 1 || !strings.Contains(progress.Stopped, "other tasks have the unique keys of 1 tasks of stage 1") {
		t.Fatalf("the batch with a guessed key is %s: %+v", p.State, progress)
	}
	w.must(w.changeBatch(guessed, func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Resumed(p, progress, w.now)
	}))
	w.pass(time.Second)
	if p, progress := w.batch(guessed); p.State != store.PlanRunning || progress.Stage != 1 || progress.Taken != 0 {
		t.Errorf("the resumed batch is %s: %+v", p.State, progress)
	}
}

// A chain whose task runs for long stores nothing while it waits.
func TestAChainThatWaitsStoresNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{plan.TaskOf(subtask(1))}}, {Tasks: []plan.Task{plan.TaskOf(subtask(2))}, After: true}}})
	worker := w.batchWorker()
	engine := plan.New(w)
	task, ok := worker.claim(w.tasks()[0])
	if !ok {
		t.Fatal("the first task cannot be claimed")
	}
	w.run(engine, time.Second)
	before := len(w.steps)
	for range 600 {
		w.run(engine, 100*time.Millisecond)
		due, err := w.Client.DuePlans(t.Context(), []store.PlanKind{store.BatchKind}, 0, 1)
		w.must(err)
		if len(due) > 0 {
			t.Fatal("the chain is due while it waits")
		}
	}
	if n := len(w.steps) - before; n > 0 {
		t.Errorf("the engine has made %d steps of a chain that waits", n)
	}
	w.settle(task, holdfast.Returned(nil))
	w.run(engine, 1500*time.Millisecond)
	if _, progress := w.batch(id); progress.Stage != 1 {
		t.Errorf("the next stage has not begun: %+v", progress)
	}
}

// If the engine that watches a chain ends, another one notices the end of its task within 15 s.
func TestAnotherEngineFindsAWatchedChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{plan.TaskOf(subtask(1))}}, {Tasks: []plan.Task{plan.TaskOf(subtask(2))}, After: true}}})
	task, ok := w.batchWorker().claim(w.tasks()[0])
	if !ok {
		t.Fatal("the first task cannot be claimed")
	}
	engine := plan.New(w)
	for range 2 * 60 { // then it is postponed
		_, _, err := engine.Advance(t.Context())
		w.must(err)
		w.now = w.now.Add(500 * time.Millisecond)
	}
	w.settle(task, holdfast.Returned(nil))
	w.pass(16 * time.Second)
	if _, progress := w.batch(id); progress.Stage != 1 {
		t.Errorf("the next stage has not begun: %+v", progress)
	}
}

// A stopped batch, a full source and a schedule whose moment waits do not make steps until a task changes.
func TestPlansThatOnlyWaitMakeNoSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.createSource("shop", source(func(s *plan.Source) { s.InFlight, s.Start = new(1), &plan.Start{Ago: time.Hour} }))
	w.create(schedule(func(s *plan.Schedule) {
		s.Every, s.Overlap, s.End = plan.Duration(time.Minute), plan.OverlapQueue, begin.Add(3*time.Minute)
	}))
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{plan.TaskOf(subtask(1))}}}})
	engine := plan.New(w)
	w.run(engine, time.Second)
	var first holdfast.Task
	for _, task := range w.tasks() {
		if task.Type == subtask(1).Type {
			first = task
		}
	}
	claimed, ok := w.batchWorker().claim(first)
	if !ok {
		t.Fatal("the task of the batch cannot be claimed")
	}
	w.settle(claimed, holdfast.Returned(holdfast.Permanent(errors.New("no"))))
	w.run(engine, 5*time.Minute)
	before := len(w.steps)
	w.run(engine, 5*time.Minute)
	if n := len(w.steps) - before; n > 0 {
		t.Errorf("the engine has made %d steps: %+v", n, w.steps[before])
	}
	if p, _ := w.batch(id); p.State != store.PlanStopped {
		t.Errorf("the batch is %s, want stopped", p.State)
	}
	for _, task := range w.tasks() {
		if task.State == holdfast.Ready {
			w.endTask(task, holdfast.EventCancel)
		}
	}
	w.run(engine, 2*time.Second)
	if n := len(w.steps) - before; n < 2 {
		t.Errorf("the engine has made %d steps after the tasks have ended, want those of the source and the schedule", n)
	}
}

// A batch whose subtasks were added one by one ends soon after its last task.
func TestABatchOfManySmallPagesEndsSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	id := w.startBatch(plan.Batch{Stages: []plan.Stage{{Open: true}}})
	const pages = 5000
	for n := range pages {
		w.must(w.push(id, n, n))
	}
	w.must(w.changeBatch(id, func(b plan.Batch, p store.Plan, progress plan.BatchProgress) (store.Plan, error) {
		return b.Sealed(p, progress, w.now)
	}))
	for _, task := range w.tasks() {
		w.endTask(task, holdfast.EventCancel)
	}
	w.pass(2 * time.Second)
	if p, progress := w.batch(id); progress.Subtasks.Open() != 0 {
		t.Errorf("after 2 s, the batch is %s: %+v", p.State, progress.Subtasks)
	}
}
