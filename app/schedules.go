package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Schedule is a stored schedule.
type Schedule struct {
	Name     string
	State    store.PlanState
	Spec     plan.Schedule
	Progress plan.Progress
	plan     store.Plan
}

// Version returns the version of the schedule. Each change and each run increases it.
func (s *Schedule) Version() int64 { return s.plan.Version }

// Creator returns who created the schedule, and when.
func (s *Schedule) Creator() (by store.Actor, at time.Time) { return s.plan.Actor, s.plan.CreatedAt }

// Failing returns how many steps of the schedule have failed in a row, and why the last one did.
func (s *Schedule) Failing() (steps int, why string) { return s.plan.Failures, s.plan.Failure }

// DueAt returns when the schedule stores its next task, with its jitter, or the zero time if no time is known.
func (s *Schedule) DueAt() time.Time { return s.plan.NextAt }

// Moments returns the first n moments after a time, in the zone of the schedule.
func (s *Schedule) Moments(after time.Time, n int) ([]time.Time, error) {
	return s.Spec.Moments(after, n)
}

func scheduleOf(p store.Plan) (s Schedule, err error) {
	s = Schedule{Name: p.Name, State: p.State, plan: p}
	if s.Spec, s.Progress, err = plan.Read(p); err != nil {
		return s, fmt.Errorf("%s: %w: %w", p.Subject(), errUnread, err)
	}
	return s, nil
}

// NewSchedule checks a schedule, and returns it with the defaults of its type as CreateSchedule would store it.
func (b *Backend) NewSchedule(ctx context.Context, name string, spec plan.Schedule) (Schedule, error) {
	if err := plan.CheckName(name); err != nil {
		return Schedule{}, err
	}
	spec, err := b.completeSchedule(spec)
	if err != nil {
		return Schedule{}, err
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return Schedule{}, err
	}
	p, err := spec.Plan(name, now)
	if err != nil {
		return Schedule{}, err
	}
	return scheduleOf(p)
}

// completeSchedule validates a schedule and its task as a producer would, and sets the queue of the type.
func (b *Backend) completeSchedule(spec plan.Schedule) (plan.Schedule, error) {
	if err := spec.Validate(b.Config.Producer.MaxPayload); err != nil {
		return spec, err
	}
	task := spec.Task.New()
	if err := b.CheckTask(task); err != nil {
		return spec, err
	}
	if spec.Task.Queue == "" {
		spec.Task.Queue = b.Settings().For(task.Type).Queue
	}
	return spec, nil
}

// CreateSchedule stores a schedule. It returns an ErrConflict if there is a schedule with the name.
func (b *Backend) CreateSchedule(ctx context.Context, by store.Actor, name string, spec plan.Schedule) (Schedule, error) {
	s, err := b.NewSchedule(ctx, name, spec)
	if err != nil {
		return Schedule{}, err
	}
	p, err := b.Store.CreatePlan(ctx, by, s.plan)
	if err != nil {
		return Schedule{}, err
	}
	return scheduleOf(p)
}

// Schedule returns the schedule or the backfill with a name. It returns an ErrNotFound if there is none.
func (b *Backend) Schedule(ctx context.Context, name string) (Schedule, error) {
	p, err := b.Store.PlanByName(ctx, store.ScheduleKind, name)
	if err != nil {
		return Schedule{}, err
	}
	return scheduleOf(p)
}

// Schedules returns at most limit schedules and backfills with names greater than after, in the order of their names.
func (b *Backend) Schedules(ctx context.Context, after string, limit int) ([]Schedule, error) {
	plans, err := b.Store.ListPlans(ctx, store.PlanFilter{Kind: store.ScheduleKind, After: after, Limit: limit})
	if err != nil {
		return nil, err
	}
	schedules := make([]Schedule, len(plans))
	for i, p := range plans {
		s, err := scheduleOf(p)
		s.plan = listed(p, err)
		schedules[i] = s
	}
	return schedules, nil
}

// stepSchedule reads a schedule, checks it, and makes the step that compute returns. If the schedule has changed
// meanwhile, it begins again. Without a step it returns the schedule.
func (b *Backend) stepSchedule(
	ctx context.Context, by store.Actor, name string, action store.Action, checks []func(Schedule) error,
	compute func(s Schedule, now time.Time) (tasks []holdfast.NewTask, finish func(store.Inserted) store.Plan, err error),
) (Schedule, error) {
	for range tries {
		s, err := b.Schedule(ctx, name)
		if err != nil && !deletable(s.plan, action) {
			return Schedule{}, err
		}
		for _, check := range checks {
			if err := check(s); err != nil {
				return s, err
			}
		}
		now, err := b.Store.Now(ctx)
		if err != nil {
			return s, err
		}
		tasks, finish, err := compute(s, now)
		if err != nil || finish == nil {
			return s, err
		}
		p, err := b.Store.StepPlan(ctx, store.PlanStep{From: s.plan, Insert: tasks, By: &by, Action: action}, plan.WithoutItems(finish))
		switch {
		case err == nil && action == store.ActionDelete:
			s, _ := scheduleOf(p)
			return s, nil
		case err == nil:
			return scheduleOf(p)
		case !errors.Is(err, holdfast.ErrConflict):
			return s, err
		}
	}
	return Schedule{}, fmt.Errorf("%w: schedule %s changes all the time; try again", holdfast.ErrConflict, name)
}

// to returns the function that ends a step with the plan.
func to(p store.Plan) func(store.Inserted) store.Plan {
	return func(store.Inserted) store.Plan { return p }
}

// EditSchedule changes a schedule. If the edit changes its times, moments before the edit do not run any more. Checks may
// refuse the change. A backfill cannot be edited.
func (b *Backend) EditSchedule(ctx context.Context, by store.Actor, name string, edit func(*plan.Schedule) error, checks ...func(Schedule) error) (Schedule, error) {
	return b.stepSchedule(ctx, by, name, store.ActionEdit, checks, func(s Schedule, now time.Time) ([]holdfast.NewTask, func(store.Inserted) store.Plan, error) {
		p, err := b.editedSchedule(s, edit, now)
		return nil, to(p), err
	})
}

// PlanScheduleEdit returns a schedule as EditSchedule would store it, and changes nothing.
func (b *Backend) PlanScheduleEdit(ctx context.Context, name string, edit func(*plan.Schedule) error, checks ...func(Schedule) error) (Schedule, error) {
	var p store.Plan
	_, err := b.stepSchedule(ctx, store.Actor{}, name, store.ActionEdit, checks, func(s Schedule, now time.Time) (_ []holdfast.NewTask, _ func(store.Inserted) store.Plan, err error) {
		p, err = b.editedSchedule(s, edit, now)
		return nil, nil, err
	})
	if err != nil {
		return Schedule{}, err
	}
	return scheduleOf(p)
}

// editedSchedule returns the plan of a schedule after an edit.
func (b *Backend) editedSchedule(s Schedule, edit func(*plan.Schedule) error, now time.Time) (store.Plan, error) {
	if s.Spec.BackfillOf != "" {
		return s.plan, fmt.Errorf("%w: %s is a backfill, which cannot be edited; delete it and start another one", holdfast.ErrInvalid, s.Name)
	}
	spec := s.Spec
	if err := edit(&spec); err != nil {
		return s.plan, err
	}
	spec, err := b.completeSchedule(spec)
	if err != nil {
		return s.plan, err
	}
	return spec.Edited(s.plan, s.Spec, s.Progress, now)
}

// PauseSchedule pauses a schedule until ResumeSchedule. Tasks that are stored already stay. It returns a paused schedule
// as it is.
func (b *Backend) PauseSchedule(ctx context.Context, by store.Actor, name string, checks ...func(Schedule) error) (Schedule, error) {
	return b.stepSchedule(ctx, by, name, store.ActionPause, checks, func(s Schedule, _ time.Time) ([]holdfast.NewTask, func(store.Inserted) store.Plan, error) {
		if s.State == store.PlanPaused {
			return nil, nil, nil
		}
		return nil, to(plan.Paused(s.plan)), nil
	})
}

// ResumeSchedule ends the pause of a schedule. Its moments during the pause do not run, except those of a backfill. It
// returns a running schedule as it is.
func (b *Backend) ResumeSchedule(ctx context.Context, by store.Actor, name string, checks ...func(Schedule) error) (Schedule, error) {
	return b.stepSchedule(ctx, by, name, store.ActionResume, checks, func(s Schedule, now time.Time) ([]holdfast.NewTask, func(store.Inserted) store.Plan, error) {
		if s.State == store.PlanRunning {
			return nil, nil, nil
		}
		p, err := s.Spec.Resumed(s.plan, s.Progress, now)
		return nil, to(p), err
	})
}

// DeleteSchedule ends a schedule. Its name is free, and tasks that are stored already stay.
func (b *Backend) DeleteSchedule(ctx context.Context, by store.Actor, name string, checks ...func(Schedule) error) (Schedule, error) {
	return b.stepSchedule(ctx, by, name, store.ActionDelete, checks, func(s Schedule, _ time.Time) ([]holdfast.NewTask, func(store.Inserted) store.Plan, error) {
		return nil, to(plan.Deleted(s.plan)), nil
	})
}

// RunSchedule stores a task of a schedule at once, even if the schedule is paused or has open tasks. It returns the id
// of the task.
func (b *Backend) RunSchedule(ctx context.Context, by store.Actor, name string, checks ...func(Schedule) error) (s Schedule, task holdfast.TaskID, err error) {
	s, err = b.stepSchedule(ctx, by, name, store.ActionRun, checks, func(s Schedule, now time.Time) ([]holdfast.NewTask, func(store.Inserted) store.Plan, error) {
		if s.Spec.BackfillOf != "" {
			return nil, nil, fmt.Errorf("%w: %s is a backfill; run the schedule %s", holdfast.ErrInvalid, name, s.Spec.BackfillOf)
		}
		if len(s.Progress.Open) >= plan.MaxOverlap { // no janitor makes steps of a paused schedule, so tasks of it may have ended
			if err := b.settleRuns(ctx, &s); err != nil {
				return nil, nil, err
			}
		}
		run, finish := s.Spec.RunNow(s.plan, s.Progress, now)
		return []holdfast.NewTask{run}, finish, nil
	})
	if err == nil && len(s.Progress.Recent) > 0 {
		task = s.Progress.Recent[0].Task
	}
	return s, task, err
}

// settleRuns removes the open tasks of a schedule that have ended. It returns an ErrConflict if too many stay.
func (b *Backend) settleRuns(ctx context.Context, s *Schedule) error {
	states, err := plan.States(ctx, b.Store, s.Progress.Open)
	if err != nil {
		return err
	}
	if s.Progress = s.Progress.Settled(states); len(s.Progress.Open) >= plan.MaxOverlap {
		return fmt.Errorf("%w: schedule %s has %d open tasks; run it again when some have ended", holdfast.ErrConflict, s.Name, len(s.Progress.Open))
	}
	return nil
}

// BackfillSchedule runs the moments of a schedule from one time to another, both included, and returns the backfill: a
// schedule of its own, which ends by itself. inFlight is the maximum number of its open tasks. Moments of which the
// store has a task do not run, unless again is set. It returns an ErrConflict if the same backfill has not ended.
func (b *Backend) BackfillSchedule(ctx context.Context, by store.Actor, name string, from, until time.Time, inFlight int, again bool) (Schedule, error) {
	if inFlight < 1 || inFlight > plan.MaxOverlap {
		return Schedule{}, fmt.Errorf("%w: %d tasks in flight must be between 1 and %d", holdfast.ErrInvalid, inFlight, plan.MaxOverlap)
	}
	s, err := b.Schedule(ctx, name)
	if err != nil {
		return Schedule{}, err
	}
	if s.Spec.BackfillOf != "" {
		return Schedule{}, fmt.Errorf("%w: %s is a backfill; use the schedule %s", holdfast.ErrInvalid, name, s.Spec.BackfillOf)
	}
	spec, backfill, err := s.Spec.Backfill(s.plan, from, until, inFlight, again)
	if err != nil {
		return Schedule{}, err
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return Schedule{}, err
	}
	p, err := spec.Plan(backfill, now)
	if err != nil {
		return Schedule{}, err
	}
	if p, err = b.Store.CreatePlan(ctx, by, p); err != nil {
		return Schedule{}, err
	}
	return scheduleOf(p)
}
