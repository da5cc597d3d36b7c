package queuetest

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/sim/simstore"
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
func (q *Queue) progress(p store.Plan) plan.Progress {
	q.t.Helper()
	_, progress, err := plan.Read(p)
	if err != nil {
		q.t.Fatalf("queuetest: schedule %s: %v", p.Name, err)
	}
	return progress
}

// fireUntil moves the clock to end, and makes the steps of schedules at the times at which they are due. It returns the
// schedules after their last steps.
func (q *Queue) fireUntil(end time.Time) map[store.ID]store.Plan {
	q.t.Helper()
	stepped := make(map[store.ID]store.Plan)
	full := make(map[store.ID]bool) // cannot store a task before the test runs one, so one step at the end is enough
	for p, due := q.nextPlan(end, full); due; p, due = q.nextPlan(end, full) {
		q.moveTo(p.NextAt)
		stepped[p.ID], full[p.ID] = q.step(p)
	}
	q.moveTo(end)
	clear(full)
	for p, due := q.nextPlan(end, full); due; p, due = q.nextPlan(end, full) {
		stepped[p.ID], full[p.ID] = q.step(p)
	}
	return stepped
}

// nextPlan returns the schedule with the earliest step until end. It leaves out those in without.
func (q *Queue) nextPlan(end time.Time, without map[store.ID]bool) (p store.Plan, ok bool) {
	q.t.Helper()
	plans, err := q.store.DuePlans(q.ctx(), []store.PlanKind{store.ScheduleKind}, end.Sub(q.Now()), len(without)+1)
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	for _, p := range plans {
		if !without[p.ID] {
			return p, true
		}
	}
	return store.Plan{}, false
}

// step makes a step of one schedule, and returns the schedule after it. full is set if the step has stored no task, and
// the schedule has as many open tasks as it may have.
func (q *Queue) step(p store.Plan) (after store.Plan, full bool) {
	q.t.Helper()
	only := &onePlan{q.store, p}
	_, stored, err := plan.New(only).Advance(q.ctx())
	if err != nil {
		q.t.Fatalf("queuetest: %v", err)
	}
	s, progress, err := plan.Read(only.plan)
	if err != nil {
		q.t.Fatalf("queuetest: schedule %s: %v", p.Name, err)
	}
	return only.plan, stored == 0 && len(progress.Open) >= max(1, int(s.Overlap))
}

// onePlan is a store with one due plan. So the steps of several plans have a fixed order.
type onePlan struct {
	*simstore.Client
	plan store.Plan
}

// DuePlans implements store.Plans.
func (o *onePlan) DuePlans(context.Context, []store.PlanKind, time.Duration, int) ([]store.Plan, error) {
	return []store.Plan{o.plan}, nil
}

// StepPlan implements store.Plans.
func (o *onePlan) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) store.Plan) (store.Plan, error) {
	after, err := o.Client.StepPlan(ctx, step, finish)
	if err == nil {
		o.plan = after
	}
	return after, err
}
