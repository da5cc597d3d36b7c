package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

const (
	// explainOneIn is the average number of steps between two explanations.
	explainOneIn = 50
	// exact is the largest error of a predicted time.
	exact = time.Second
)

// explanations checks the predictions of package explain. It explains tasks at random moments, as an operator would,
// and compares the predictions with what happens next.
type explanations struct {
	check  *checker
	rng    *rand.Rand // separate, so that explanations do not change the simulation
	source unpublished
	open   map[holdfast.TaskID]*prediction // the newest prediction of each task
	// backlogs are the predictions with a range for the start of a task that waits in a queue.
	backlogs map[holdfast.TaskID][]*prediction

	kept    int // predicted starts and results that came true
	ranges  int // starts of tasks with a predicted range
	inRange int // the part of ranges that was in the range
	changed int // predictions that another cause replaced
}

// prediction is an explanation of a task, with the conditions at that time.
type prediction struct {
	explain.Explanation
	nextWith map[time.Duration][]string // results by the delay in the store; nil if the plan changes no settings
	attempt  int
	leap     time.Duration // leap of the store's clock at that time
	fellBack int
	made     time.Time
}

// exact returns how late the task may start. After a pause, tasks need some time to start.
func (p *prediction) exact() time.Duration {
	if has(p.Explanation, explain.Paused) {
		return exact + openDelay
	}
	return exact
}

func newExplanations(c *checker) *explanations {
	return &explanations{check: c, rng: rand.New(rand.NewPCG(c.world.plan.Seed, 0x510e527fade682d1)), open: make(map[holdfast.TaskID]*prediction), backlogs: make(map[holdfast.TaskID][]*prediction)}
}

// unpublished hides the settings that workers publish, because the checker tries all settings that the workers may use.
type unpublished struct{ *memory.Client }

// Workers implements explain.Source.
func (u unpublished) Workers(ctx context.Context, all bool) ([]store.Worker, error) {
	workers, err := u.Client.Workers(ctx, all)
	for i := range workers {
		workers[i].Settings = nil
	}
	return workers, err
}

// explain explains a task now. It returns false if the store cannot answer.
func (e *explanations) explain(id holdfast.TaskID) (explain.Explanation, bool) {
	if e.source.Client == nil {
		e.source = unpublished{e.check.world.store.Client(nil)}
	}
	return e.read(id, e.settings())
}

func (e *explanations) read(id holdfast.TaskID, settings holdfast.Settings) (explain.Explanation, bool) {
	found, err := explain.Read(context.Background(), e.source, id, settings, store.PruneAges{})
	if err != nil {
		e.check.fail("task %s cannot be explained: %v", id, err)
	}
	return found, err == nil
}

// afterStep explains a random task, and checks the tasks whose predicted start has passed.
func (e *explanations) afterStep() {
	w := e.check.world
	for id, p := range e.open {
		if !p.NextStart.IsZero() && w.clock.now().After(p.NextStart.Add(p.exact())) {
			e.overdue(id, p)
		}
	}
	if e.rng.IntN(explainOneIn) > 0 {
		return
	}
	tasks := w.store.Tasks()
	if len(tasks) == 0 {
		return
	}
	task := &tasks[e.rng.IntN(len(tasks))]
	if task.State.Final() {
		return
	}
	if found, ok := e.explain(task.ID); ok {
		e.checkCauses(task, found)
		if task.Waits || task.Order == ordered.Doomed {
			return // a prediction says neither when its turn comes nor that it dies without an attempt
		}
		e.check.gates.checkExplained(task, found)
		e.check.breakers.checkExplained(task, found)
		if w.plan.limits(&task.Task) || task.Type == holdfast.TypeHTTP || task.Type == special || task.Topic != "" {
			return // a prediction does not say when it gets a permit, a slot or a worker with its handler
		}
		p := &prediction{found, e.nextWith(task.ID), task.Attempt, w.clock.leap, w.state.fellBack, time.Now()}
		e.open[task.ID] = p
		if p.Backlog != nil && e.steady() && !w.plan.gated() {
			e.backlogs[task.ID] = append(e.backlogs[task.ID], p)
		}
	}
}

// checkCauses checks that an explanation has a cause, and that the times in it are in the future.
func (e *explanations) checkCauses(task *memory.Task, found explain.Explanation) {
	if len(found.Causes) == 0 {
		e.check.fail("task %s is %s, and no cause explains why", task.ID, task.State)
	}
	waits := e.check.world.store.AwaitsSlot(task)
	if waits != has(found, explain.Topic) {
		e.check.fail("task %s of topic %q: that it waits for a slot is %t, and its causes are %+v", task.ID, task.Topic, waits, found.Causes)
	}
	for _, cause := range found.Causes {
		timed := cause.Code == explain.NotDue || cause.Code == explain.Parked
		if timed && !waits && !cause.Until.IsZero() && !cause.Until.Equal(found.NextStart) && !has(found, explain.Paused) && !has(found, explain.Broken) {
			e.check.fail("task %s starts at %s, but its cause %s ends at %s", task.ID, found.NextStart, cause.Code, cause.Until)
		}
	}
}

// stale reports whether a prediction no longer applies: the store's clock has leapt, or the store has lost commits.
func (e *explanations) stale(p *prediction) bool {
	return p.leap != e.check.world.clock.leap || p.fellBack != e.check.world.state.fellBack
}

// has reports whether an explanation names a cause.
func has(found explain.Explanation, code explain.Code) bool {
	return slices.ContainsFunc(found.Causes, func(c explain.Cause) bool { return c.Code == code })
}

// overdue checks a task that has not started within a second after the predicted time. Another cause must explain that.
// If nothing is wrong and the workers are idle, no cause can.
func (e *explanations) overdue(id holdfast.TaskID, p *prediction) {
	delete(e.open, id)
	task := e.check.world.store.Task(id)
	if task == nil || task.State != holdfast.Ready || task.Attempt != p.attempt || e.stale(p) {
		return
	}
	now, ok := e.explain(id)
	switch {
	case !ok:
	// After a setback of the clock, a task that loses its ticket is not due until a janitor corrects its times.
	case has(now, explain.NotDue) && (has(p.Explanation, explain.NotDue) || e.check.world.state.leapt.IsZero()):
		e.check.fail("task %s was to start at %s, and still is not due: %+v", id, p.NextStart, now.Causes)
	case (has(p.Explanation, explain.NotDue) || has(p.Explanation, explain.Paused)) && e.idle() && !has(now, explain.Parked) &&
		!has(now, explain.Paused) && e.check.gates.settled():
		e.check.fail("task %s was to start at %s, has not started a second later, and nothing is wrong: %+v", id, p.NextStart, now.Causes)
	default:
		e.changed++
	}
}

// idle reports whether every due task must start. This is so if no fault, slow message or crash has disturbed a process,
// and if one worker can run all due and running tasks.
func (e *explanations) idle() bool {
	w := e.check.world
	if !e.steady() {
		return false
	}
	busy := 0
	for _, task := range w.store.Tasks() {
		if task.State == holdfast.Running || task.State == holdfast.Ready && !task.NextRunAt.After(w.clock.now()) {
			busy++
		}
	}
	return busy+e.check.effects.lingering() <= concurrency
}

// steady reports whether nothing but other tasks can delay a task. Messages of a newer version delay no task.
func (e *explanations) steady() bool {
	plan := &e.check.world.plan
	net := plan.Net
	if net.PerMilleSlow > 0 || net.PerMilleMishap > 0 || net.Breaks > 0 || slices.ContainsFunc(plan.Faults, func(f Fault) bool { return f.Kind != Newer }) {
		return false
	}
	return !slices.ContainsFunc(plan.Tasks, func(t TaskPlan) bool { return t.Poison || t.Hangs > 0 })
}

// observe compares a change of a task with the prediction.
func (e *explanations) observe(change memory.Change) {
	before, after := change.Before, change.After
	if before == nil || after == nil {
		return
	}
	p := e.open[before.ID]
	if p == nil || p.attempt != before.Attempt || e.stale(p) {
		return
	}
	switch {
	case !after.NextRunAt.Equal(before.NextRunAt) && change.Move == nil: // the task was parked, or its time was corrected
		delete(e.open, before.ID)
		e.changed++
	case change.Op == "Claim":
		delete(e.open, before.ID)
		switch early := p.NextStart.Sub(after.StartedAt); {
		case early <= exact:
			e.kept++
		case e.check.world.state.leapt.IsZero() && !e.pauseMoved(p):
			e.check.fail("task %s started %s before the predicted time", before.ID, early)
		default: // the ticket may be published early, and then the task may start
			e.changed++
		}
	case change.Move != nil && before.State == holdfast.Running && p.State == holdfast.Running:
		delete(e.open, before.ID)
		e.checkResult(before, p, change.Move)
	}
}

// pauseMoved reports whether the task may start before the predicted end of a pause. A person may have resumed early,
// or the claim may have been in progress when the pause was stored.
func (e *explanations) pauseMoved(p *prediction) bool {
	return has(p.Explanation, explain.Paused) && e.check.gates.changed.After(p.made.Add(-e.check.world.plan.lockWait()))
}

// started counts the predicted ranges for the start of a task, and those that contain the start. Ranges are estimates,
// so a single one may be wrong. A claim into the buffer of a worker is no start.
func (e *explanations) started(id holdfast.TaskID) {
	now := e.check.world.clock.now()
	for _, p := range e.backlogs[id] {
		e.ranges++
		if !now.Before(p.Backlog.Earliest) && !now.After(p.Backlog.Latest) {
			e.inRange++
		}
	}
	delete(e.backlogs, id)
}

// checkResult compares the end of an attempt with its prediction.
func (e *explanations) checkResult(task *memory.Task, p *prediction, move *holdfast.Transition) {
	var when string
	class := move.Report.Class
	switch {
	case move.Event == holdfast.EventComplete:
		when = "succeeds, "
	case task.Type == "once" && move.Event == holdfast.EventCrash:
		return // only the explanation knows that the type runs at most once
	case class == "once" && move.Crashes == task.Crashes:
		return // an interruption
	case class == "crash", class == "once":
		when = "crashes, "
	case move.Event == holdfast.EventRetry, move.Event == holdfast.EventGiveUp:
		when = "fails, "
	default:
		return // a deferral or an interruption
	}
	if task.Type == "brief" && move.Event != holdfast.EventComplete {
		return // the deadline may have passed since the prediction
	}
	want := when + explain.Result(*move)
	said := func(text string) bool { return strings.HasSuffix(text, want) }
	switch possible := e.possible(p); {
	case !slices.ContainsFunc(possible, said):
		e.check.fail("the result %s of attempt %d of task %s means %q; predicted was %q", move.Event, move.Attempt, task.ID, want, possible)
	case !slices.ContainsFunc(p.Next, said): // the settings have changed since
		e.changed++
		return
	}
	if i := slices.IndexFunc(p.Causes, func(c explain.Cause) bool { return c.Code == explain.Stuck }); i >= 0 && class == "timeout" && e.check.world.state.leapt.IsZero() {
		if early := p.Causes[i].Until.Sub(e.check.world.clock.now()); early > exact {
			e.check.fail("the stuck attempt %d of task %s was given up %s before the predicted time", move.Attempt, task.ID, early)
		}
	}
	e.kept++
}
