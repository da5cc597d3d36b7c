package app

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Schedule is a stored schedule.
type Schedule = Record[plan.Schedule, plan.ScheduleProgress]

var schedules = kind[Schedule]{store.ScheduleKind, scheduleOf}

func scheduleOf(p store.Plan) (Schedule, error) { return recordOf(p, plan.ReadSchedule) }

// NewSchedule checks a schedule, and returns it with the defaults of its type. CreateSchedule stores it.
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

// CreateSchedule stores a schedule that NewSchedule has returned. It returns an ErrConflict if there is one with the
// name.
func (b *Backend) CreateSchedule(ctx context.Context, by store.Actor, s Schedule) (Schedule, error) {
	return schedules.create(ctx, b.Store, by, s.plan)
}

// Schedule returns the schedule or the backfill with a name. It returns an ErrNotFound if there is none.
func (b *Backend) Schedule(ctx context.Context, name string) (Schedule, error) {
	return schedules.get(ctx, b.Store, name)
}

// Schedules returns at most limit schedules and backfills with names greater than after, in the order of their names.
func (b *Backend) Schedules(ctx context.Context, after string, limit int) ([]Schedule, error) {
	return schedules.list(ctx, b.Store, store.PlanFilter{After: after, Limit: limit})
}

// EditSchedule changes a schedule. If the edit changes its times, moments before the edit do not run any more. Checks may
// refuse the change. A backfill cannot be edited.
func (b *Backend) EditSchedule(
	ctx context.Context, by store.Actor, name string, edit func(*plan.Schedule) error, checks ...func(*Schedule) error,
) (before *Schedule, after Schedule, err error) {
	return schedules.change(ctx, b, planChange[Schedule]{
		by: by, name: name, action: store.ActionEdit, checks: checks,
		compute: func(s *Schedule, now time.Time) (planStep, error) {
			p, err := b.editedSchedule(s, edit, now)
			return stepTo(p), err
		},
	})
}

// PlanScheduleEdit returns a schedule as EditSchedule would store it, and changes nothing.
func (b *Backend) PlanScheduleEdit(ctx context.Context, name string, edit func(*plan.Schedule) error, checks ...func(*Schedule) error) (Schedule, error) {
	var p store.Plan
	_, _, err := schedules.change(ctx, b, planChange[Schedule]{
		name: name, action: store.ActionEdit, checks: checks,
		compute: func(s *Schedule, now time.Time) (_ planStep, err error) {
			p, err = b.editedSchedule(s, edit, now)
			return planStep{}, err
		},
	})
	if err != nil {
		return Schedule{}, err
	}
	return scheduleOf(p)
}

// editedSchedule returns the plan of a schedule after an edit.
func (b *Backend) editedSchedule(s *Schedule, edit func(*plan.Schedule) error, now time.Time) (store.Plan, error) {
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
func (b *Backend) PauseSchedule(ctx context.Context, by store.Actor, name string, checks ...func(*Schedule) error) (before *Schedule, after Schedule, err error) {
	return schedules.change(ctx, b, planChange[Schedule]{
		by: by, name: name, action: store.ActionPause, checks: checks,
		compute: func(s *Schedule, _ time.Time) (planStep, error) {
			return stepIfChanged(s.plan, plan.PausedSchedule(s.plan)), nil
		},
	})
}

// ResumeSchedule ends the pause of a schedule. The moments during the pause do not run, except those of a backfill. It
// returns a running schedule as it is.
func (b *Backend) ResumeSchedule(ctx context.Context, by store.Actor, name string, checks ...func(*Schedule) error) (before *Schedule, after Schedule, err error) {
	return schedules.change(ctx, b, planChange[Schedule]{
		by: by, name: name, action: store.ActionResume, checks: checks,
		compute: func(s *Schedule, now time.Time) (planStep, error) {
			if s.State == store.PlanRunning {
				return planStep{}, nil
			}
			p, err := s.Spec.Resumed(s.plan, s.Progress, now)
			return stepTo(p), err
		},
	})
}

// DeleteSchedule ends a schedule. Its name is free, and tasks that are stored already stay.
func (b *Backend) DeleteSchedule(ctx context.Context, by store.Actor, name string, checks ...func(*Schedule) error) (before *Schedule, after Schedule, err error) {
	return schedules.delete(ctx, b, by, name, checks)
}

// RunSchedule stores a task of a schedule at once, even if the schedule is paused or has open tasks. It returns the id
// of the task.
func (b *Backend) RunSchedule(ctx context.Context, by store.Actor, name string, checks ...func(*Schedule) error) (s Schedule, task holdfast.TaskID, err error) {
	_, s, err = schedules.change(ctx, b, planChange[Schedule]{
		by: by, name: name, action: store.ActionRun, checks: checks,
		compute: func(s *Schedule, now time.Time) (planStep, error) {
			if s.Spec.BackfillOf != "" {
				return planStep{}, fmt.Errorf("%w: %s is a backfill; run the schedule %s", holdfast.ErrInvalid, name, s.Spec.BackfillOf)
			}
			if len(s.Progress.Open) >= plan.MaxOverlap { // no janitor makes steps of a paused schedule, so tasks of it may have ended
				if err := b.settleRuns(ctx, s); err != nil {
					return planStep{}, err
				}
			}
			run, finish := s.Spec.RunNow(s.plan, s.Progress, now)
			return planStep{insert: []holdfast.NewTask{run}, to: finish}, nil
		},
	})
	if err == nil && len(s.Progress.Recent) > 0 {
		task = s.Progress.Recent[0].Task
	}
	return s, task, err
}

// settleRuns removes the open tasks of a schedule that have ended. It returns an ErrConflict if too many stay.
func (b *Backend) settleRuns(ctx context.Context, s *Schedule) error {
	states, err := plan.RunStates(ctx, b.Store, s.Progress.Open)
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
	return schedules.create(ctx, b.Store, by, p)
}
