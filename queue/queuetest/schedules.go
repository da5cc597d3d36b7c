package queuetest

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// FireSchedule moves the clock to the time at which a schedule stores its next task, and returns that task, which is
// ready. Other schedules store the tasks of the moments that the clock passes, too. FireSchedule fails the test if there
// is no schedule with the name, if it is paused, or if it stores no task because earlier ones are open.
func (q *Queue) FireSchedule(name string) holdfast.Task {
	q.t.Helper()
	p, err := q.store.PlanByName(q.ctx(), store.ScheduleKind, name)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	if p.NextAt.IsZero() {
		q.t.Fatalf("queuetest: schedule %s is %s", name, p.State)
	}
	before := q.progress(p)
	after := q.progress(q.fireUntil(p.NextAt)[p.ID])
	if after.Runs == before.Runs {
		q.t.Fatalf("queuetest: schedule %s stored no task at %s; open tasks: %d", name, q.Now().Format(time.RFC3339), len(after.Open))
	}
	task, err := q.store.Task(q.ctx(), after.Recent[0].Task)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	return task
}

// progress returns how far a schedule is.
func (q *Queue) progress(p store.Plan) plan.ScheduleProgress {
	q.t.Helper()
	_, progress, err := plan.ReadSchedule(p)
	if err != nil {
		q.t.Fatalf("queuetest: schedule %s: %v", p.Name, err)
	}
	return progress
}

// never is a time that no clock reaches.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// fireUntil moves the clock to end, and makes the steps of schedules and sources at the times at which they are due. It
// returns these after their last steps.
func (q *Queue) fireUntil(end time.Time) map[store.ID]store.Plan {
	q.t.Helper()
	stepped := make(map[store.ID]store.Plan)
	idle := make(map[store.ID]time.Time) // until when a plan stores no task, unless the test runs one
	for p, at := q.nextPlan(end, idle); !at.After(end); p, at = q.nextPlan(end, idle) {
		q.moveTo(at)
		stepped[p.ID], idle[p.ID] = q.step(p)
	}
	q.moveTo(end)
	clear(idle)
	for p, at := q.nextPlan(end, idle); !at.After(end); p, at = q.nextPlan(end, idle) {
		stepped[p.ID], idle[p.ID] = q.step(p)
	}
	return stepped
}

// maxPlans is the maximum number of schedules and sources that fireUntil considers.
const maxPlans = 10_000

// nextPlan returns the schedule or source with the earliest step until end, and the time of the step. Without a step
// that time is after end. No plan makes a step before its time in idle.
func (q *Queue) nextPlan(end time.Time, idle map[store.ID]time.Time) (next store.Plan, at time.Time) {
	q.t.Helper()
	plans, err := q.store.DuePlans(q.ctx(), []store.PlanKind{store.ScheduleKind, store.SourceKind}, end.Sub(q.Now()), maxPlans)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	at = never
	for _, p := range plans {
		due := p.NextAt
		if until := idle[p.ID]; until.After(due) {
			due = until
		}
		if due.Before(at) {
			next, at = p, due
		}
	}
	return next, at
}

// step makes a step of one schedule or source, and returns it after the step. It stores no task until the time idle,
// unless the test runs one.
func (q *Queue) step(p store.Plan) (after store.Plan, idle time.Time) {
	q.t.Helper()
	only := &onePlan{q.store, p}
	_, stored, err := plan.New(only).Advance(q.ctx())
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	if p.Kind == store.SourceKind {
		return only.plan, q.nextSlice(p.Name)
	}
	s, progress, err := plan.ReadSchedule(only.plan)
	if err != nil {
		q.t.Fatalf("queuetest: schedule %s: %v", p.Name, err)
	}
	if stored == 0 && len(progress.Open) >= max(1, int(s.Overlap)) {
		idle = never
	}
	return only.plan, idle
}

// onePlan is a store with one due plan. So the steps of several plans have a fixed order.
type onePlan struct {
	*memory.Client
	plan store.Plan
}

// DuePlans implements store.Plans.
func (o *onePlan) DuePlans(context.Context, []store.PlanKind, time.Duration, int) ([]store.Plan, error) {
	return []store.Plan{o.plan}, nil
}

// PostponePlans implements store.Plans. It postpones nothing, because no engine watches the plan afterwards.
func (o *onePlan) PostponePlans(context.Context, []store.Plan, time.Duration) ([]store.ID, error) {
	return nil, nil
}

// StepPlan implements store.Plans.
func (o *onePlan) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	after, err := o.Client.StepPlan(ctx, step, finish)
	if err == nil {
		o.plan = after
	}
	return after, err
}
