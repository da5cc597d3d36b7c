package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Begun returns the schedule with a Start if it has intervals: they begin now, if no other time is set.
func (s Schedule) Begun(now time.Time) Schedule {
	if s.Every > 0 && s.Start.IsZero() {
		s.Start = now.UTC().Truncate(time.Second)
	}
	return s
}

// Plan returns a new plan for a schedule. Now is the time of the store.
func (s Schedule) Plan(name string, now time.Time) (store.Plan, error) {
	p := store.Plan{Kind: store.ScheduleKind, Name: name, State: store.PlanRunning, CreatedAt: now}
	s = s.Begun(now)
	var progress ScheduleProgress
	if s.RunAtStart {
		progress.Waiting = now
	}
	if s.Again {
		s.AgainAt = now
	}
	return s.Restart(p, progress, now)
}

// Restart returns the plan with the schedule and its first moment after now. Moments before now do not run. It returns
// an ErrInvalid if there is no such moment.
func (s Schedule) Restart(p store.Plan, progress ScheduleProgress, now time.Time) (store.Plan, error) {
	c, err := s.clock()
	if err != nil {
		return p, err
	}
	from := now
	if s.BackfillOf != "" {
		from = s.Start.Add(-time.Microsecond)
		if progress.Next.After(from) {
			from = progress.Next.Add(-time.Microsecond)
		}
	}
	progress.PausedBy, progress.Deaths = "", 0
	return s.from(c, p, progress, from, now)
}

// Edited returns the plan after an edit that replaces the schedule was by s. If s has no Start, and both have the same
// interval, the intervals continue from the same beginning. If both schedules have the same moments, those that are due
// but have not run yet still run, for example during their jitter. Otherwise only moments after now run. Edited returns
// an ErrInvalid if no moment runs.
func (s Schedule) Edited(p store.Plan, was Schedule, progress ScheduleProgress, now time.Time) (store.Plan, error) {
	if s.Start.IsZero() && s.Every == was.Every {
		s.Start = was.Start
	}
	s = s.Begun(now)
	c, err := s.clock()
	if err != nil {
		return p, err
	}
	from := now
	same := s.Cron == was.Cron && s.Every == was.Every && s.Timezone == was.Timezone && s.Start.Equal(was.Start)
	if same && p.State == store.PlanRunning && !progress.Next.IsZero() {
		from = progress.Next.Add(-time.Microsecond)
	}
	return s.from(c, p, progress, from, now)
}

// from returns the plan with the schedule, whose first moment is after from.
func (s Schedule) from(c clock, p store.Plan, progress ScheduleProgress, from, now time.Time) (store.Plan, error) {
	if progress.Next = c.after(from); progress.Next.IsZero() && progress.Waiting.IsZero() {
		return p, fmt.Errorf("%w: the schedule has no time to run, from %s on", holdfast.ErrInvalid, from.UTC().Format(time.RFC3339))
	}
	d := scheduleStep{spec: s, progress: progress}
	d.schedule(p.Name, now, !progress.Waiting.IsZero())
	p.Spec, p.Progress, p.NextAt = encode(s), encode(progress), d.next
	if p.State != store.PlanRunning {
		p.NextAt = time.Time{}
	}
	return p, nil
}

// PausedSchedule returns the plan in the state paused.
func PausedSchedule(p store.Plan) store.Plan {
	p.State, p.NextAt = store.PlanPaused, time.Time{}
	return p
}

// Resumed returns the plan in the state running, with its first moment after now.
func (s Schedule) Resumed(p store.Plan, progress ScheduleProgress, now time.Time) (store.Plan, error) {
	p.State = store.PlanRunning
	return s.Restart(p, progress, now)
}

// Settled returns the progress without open tasks that have ended. states has the states of the open tasks.
func (p ScheduleProgress) Settled(states map[holdfast.TaskID]holdfast.State) ScheduleProgress {
	d := scheduleStep{progress: p}
	d.settle(states)
	return d.progress
}

// RunNow returns the task of a run that a person requests, and the function that returns the plan after the step. The
// task counts as open, whatever Overlap says.
func (s Schedule) RunNow(p store.Plan, progress ScheduleProgress, now time.Time) (holdfast.NewTask, func(store.Inserted) store.Plan) {
	moment := now.UTC().Truncate(time.Microsecond)
	return s.task(p.Name, moment), func(inserted store.Inserted) store.Plan {
		after := progress
		run := ScheduleRun{At: moment, Task: inserted.Tasks[0].ID}
		after.Open = append(slices.Clone(after.Open), run)
		after.Recent = append([]ScheduleRun{run}, after.Recent...)
		after.Recent = after.Recent[:min(len(after.Recent), maxRecent)]
		after.Runs++
		to := p
		to.Progress = encode(after)
		return to
	}
}

// Backfill returns the schedule and the name of a backfill that runs the moments of a plan from one time to another,
// both included. inFlight is the maximum number of open tasks. again also runs moments of which the store has a task. It
// returns an ErrInvalid if there is no such moment.
func (s Schedule) Backfill(of store.Plan, from, to time.Time, inFlight int, again bool) (Schedule, string, error) {
	const form = "20060102T150405Z"
	name := fmt.Sprintf("%s.backfill-%s-%s", of.Name, from.UTC().Format(form), to.UTC().Format(form))
	if err := cmp.Or(holdfast.CheckTime("the begin", from), holdfast.CheckTime("the end", to)); err != nil {
		return s, "", err
	}
	s.End = time.Time{} // a backfill may go beyond the schedule
	if s.Every == 0 {
		s.Start = time.Time{}
	}
	c, err := s.clock()
	if err != nil {
		return s, "", err
	}
	first := c.next(from.Add(-time.Microsecond)) // so that the intervals begin at a due moment of the schedule
	if first.IsZero() || first.After(to) {
		return s, "", fmt.Errorf("%w: %s has no run from %s to %s", holdfast.ErrInvalid, of.Subject(), from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
	}
	s.BackfillOf, s.Start, s.End, s.Overlap, s.Again = of.Name, first.UTC(), to.UTC(), Overlap(inFlight), again
	s.Jitter, s.Missed, s.PauseAfter, s.RunAtStart, s.Owner, s.Declared, s.Revision = 0, MissedAll, 0, false, "", "", 0
	return s, name, nil
}
