package surface

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Schedule is the JSON form of a schedule or a backfill.
type Schedule struct {
	Name       string          `json:"name"`
	State      store.PlanState `json:"state" enum:"running,paused,done,deleted"`
	Cron       string          `json:"cron,omitempty"`
	Every      plan.Duration   `json:"every,omitzero"`
	Timezone   string          `json:"timezone,omitempty" doc:"The time zone of the cron expression; UTC, if it is missing."`
	Start      time.Time       `json:"start,omitzero"`
	End        time.Time       `json:"end,omitzero"`
	RunAtStart bool            `json:"run_at_start,omitempty"`
	Missed     plan.MissedRuns `json:"missed"`
	CatchUp    plan.Duration   `json:"catch_up"`
	Overlap    plan.Overlap    `json:"overlap"`
	Jitter     plan.Duration   `json:"jitter,omitzero"`
	PauseAfter int             `json:"pause_after,omitempty"`
	Note       string          `json:"note,omitempty"`
	Task       ScheduledTask   `json:"task"`
	BackfillOf string          `json:"backfill_of,omitempty" doc:"The schedule whose past times this backfill runs."`
	Again      bool            `json:"again,omitempty" doc:"The backfill also runs times that have a task."`
	Owner      string          `json:"owner,omitempty" doc:"The program that has declared the schedule."`

	NextRunAt  time.Time     `json:"next_run_at,omitzero" doc:"The next time; missing if the schedule is paused or has ended. Jitter makes the task later."`
	Waiting    time.Time     `json:"waiting,omitzero" doc:"The time whose task waits for the end of the open one."`
	Runs       int64         `json:"runs" doc:"How many tasks the schedule has stored."`
	Skipped    int64         `json:"skipped" doc:"How many times were left out because earlier tasks were open."`
	MissedRuns int64         `json:"missed_runs" doc:"How many times were left out because they were missed."`
	Open       []ScheduleRun `json:"open" doc:"The runs whose tasks are open, oldest first. A list has those that were open when the schedule last stored a task."`
	Recent     []ScheduleRun `json:"recent" doc:"The last runs, newest first."`
	PausedBy   string        `json:"paused_by,omitempty" doc:"Why the schedule has paused itself."`
	StepFailure
	Actor     string        `json:"actor" doc:"Who created the schedule."`
	Surface   store.Surface `json:"surface"`
	Reason    string        `json:"reason,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
}

// ScheduledTask is the JSON form of the tasks of a schedule. Lists leave out the payload.
type ScheduledTask struct {
	Type        string            `json:"type"`
	Payload     json.RawMessage   `json:"payload,omitempty"`
	Queue       string            `json:"queue"`
	Priority    holdfast.Priority `json:"priority"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	Key         string            `json:"key,omitempty"`
	Ordered     bool              `json:"ordered,omitempty"`
	Topic       string            `json:"topic,omitempty"`
	Tags        []string          `json:"tags"`
}

// ScheduleRun is a time of a schedule with its task.
type ScheduleRun struct {
	At   time.Time       `json:"at"`
	Task holdfast.TaskID `json:"task"`
}

// ScheduleOf returns the JSON form of a schedule.
func ScheduleOf(s app.Schedule) Schedule {
	run := func(r plan.ScheduleRun) ScheduleRun { return ScheduleRun(r) }
	spec, p := s.Spec, s.Progress
	form := Schedule{
		Name: s.Name, State: s.State, Cron: spec.Cron, Every: spec.Every, Timezone: spec.Timezone, Start: spec.Start, End: spec.End,
		RunAtStart: spec.RunAtStart, Missed: spec.Missed, CatchUp: spec.CatchUp, Overlap: spec.Overlap, Jitter: spec.Jitter,
		PauseAfter: spec.PauseAfter, Note: spec.Note, Task: ScheduledTask(spec.Task), BackfillOf: spec.BackfillOf, Again: spec.Again,
		Owner: spec.Owner, Waiting: p.Waiting, Runs: p.Runs, Skipped: p.Skipped, MissedRuns: p.Missed, Open: Each(p.Open, run),
		Recent: Each(p.Recent, run), PausedBy: p.PausedBy,
	}
	form.Task.Tags = append([]string{}, spec.Task.Tags...)
	form.FailedSteps, form.Failure = s.Failing()
	by, at := s.Creator()
	form.Actor, form.Surface, form.Reason, form.CreatedAt = by.Name, by.Surface, by.Reason, at
	if s.State == store.PlanRunning {
		form.NextRunAt = p.Next
	}
	return form
}

// ScheduleDetails is a schedule with its next times.
type ScheduleDetails struct {
	Schedule
	Next []time.Time `json:"next" doc:"The next ten times, in the time zone of the schedule. Those of a paused schedule only run after it is resumed."`
}

// shownTimes is the number of times that ScheduleDetails has.
const shownTimes = 10

// scheduleDetails returns a schedule with its next times from its next one on, but not before the given time.
func scheduleDetails(s app.Schedule, from time.Time) (d ScheduleDetails, err error) {
	d.Schedule = ScheduleOf(s)
	if s.Progress.Next.After(from) {
		from = s.Progress.Next
	}
	if !s.Progress.Next.IsZero() {
		d.Next, err = s.Spec.Moments(from.Add(-time.Microsecond), shownTimes)
	}
	d.Next = append([]time.Time{}, d.Next...)
	return d, err
}

// GetSchedule returns the schedule or the backfill with a name, and what it was made from.
func GetSchedule(ctx context.Context, b *app.Backend, name string) (ScheduleDetails, app.Schedule, error) {
	s, err := b.Schedule(ctx, name)
	if err != nil {
		return ScheduleDetails{}, s, err
	}
	var from time.Time
	if s.State == store.PlanPaused && s.Spec.BackfillOf == "" {
		if from, err = b.Store.Now(ctx); err != nil {
			return ScheduleDetails{}, s, err
		}
	}
	d, err := scheduleDetails(s, from)
	if err != nil || len(d.Open) == 0 {
		return d, s, err
	}
	// The schedule reads the states of its tasks only when it needs them.
	tasks, err := b.Store.TasksByID(ctx, Each(d.Open, func(r ScheduleRun) holdfast.TaskID { return r.Task }))
	open := make(map[holdfast.TaskID]bool)
	for _, task := range tasks {
		open[task.ID] = task.State == holdfast.Ready || task.State == holdfast.Running
	}
	d.Open = slices.DeleteFunc(d.Open, func(r ScheduleRun) bool { return !open[r.Task] })
	return d, s, err
}

// ScheduleQuery is a request for a page of schedules and backfills.
type ScheduleQuery struct {
	Limit int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"1000" doc:"At most so many schedules."`
	After string `query:"after" flag:"NAME" doc:"Only greater names: the value next of the page before."`
}

// ListSchedules reads a page of schedules in the order of their names, and the name after which the next page begins,
// which is nil on the last page. Lists leave out the payload of the tasks.
func ListSchedules(ctx context.Context, b *app.Backend, r ScheduleQuery) ([]Listed[Schedule, app.Schedule], *string, error) {
	found, err := b.Schedules(ctx, r.After, r.Limit+1)
	page, next := listed(found, r.Limit, func(s app.Schedule) Schedule {
		form := ScheduleOf(s)
		form.Task.Payload = nil
		return form
	}, func(s app.Schedule) string { return s.Name })
	return page, next, err
}

// NewSchedule is a request to create a schedule.
type NewSchedule struct {
	Name string `json:"name" doc:"At most 100 letters, digits and . _ -, unique among the schedules."`
	ScheduleTimes
	RunAtStart bool         `json:"run_at_start,omitempty" doc:"Also store a task when the schedule is created."`
	Task       ScheduleTask `json:"task"`
	DryRun     bool         `json:"dry_run,omitempty" doc:"Store nothing; answer with the schedule and its next times."`
	Reason     string       `json:"reason,omitempty" doc:"Why, for the audit log."`
}

// Spec returns the schedule that the request describes.
func (r NewSchedule) Spec() (plan.Schedule, error) {
	s := plan.Schedule{Missed: plan.MissedOne, CatchUp: plan.DefaultCatchUp, Overlap: 1, RunAtStart: r.RunAtStart}
	return s, cmp.Or(r.apply(&s), r.Task.apply(&s.Task))
}

// CreateSchedule stores a schedule, unless the request is a dry run. Before that it calls show, if show is not nil,
// with the schedule that it will store. It returns an ErrConflict if there is a schedule with the name.
func CreateSchedule(
	ctx context.Context, b *app.Backend, by store.Actor, r NewSchedule, show func(ScheduleDetails),
) (ScheduleDetails, app.Schedule, error) {
	by.Reason = r.Reason
	spec, err := r.Spec()
	if err != nil {
		return ScheduleDetails{}, app.Schedule{}, err
	}
	s, err := b.NewSchedule(ctx, r.Name, spec)
	if err != nil {
		return ScheduleDetails{}, s, err
	}
	d, err := scheduleDetails(s, time.Time{})
	d.Actor, d.Surface, d.Reason = by.Name, by.Surface, by.Reason
	if err != nil {
		return d, s, err
	}
	switch _, err := b.Schedule(ctx, r.Name); {
	case err == nil:
		return d, s, fmt.Errorf("%w: there is already a schedule %s", holdfast.ErrConflict, r.Name)
	case !errors.Is(err, holdfast.ErrNotFound):
		return d, s, err
	}
	if show != nil {
		show(d)
	}
	if r.DryRun {
		return d, s, nil
	}
	if s, err = b.CreateSchedule(ctx, by, s); err != nil {
		return d, s, err
	}
	d, err = scheduleDetails(s, time.Time{})
	return d, s, err
}

// ScheduleEdit is a request to change a schedule.
type ScheduleEdit struct {
	ScheduleTimes
	Task   ScheduleTask `json:"task,omitzero"`
	DryRun bool         `json:"dry_run,omitempty" doc:"Change nothing; answer with the schedule and its next times."`
	Reason string       `json:"reason,omitempty" doc:"Why, for the audit log."`
}

// apply changes a schedule.
func (r ScheduleEdit) apply(s *plan.Schedule) error {
	return cmp.Or(r.ScheduleTimes.apply(s), r.Task.apply(&s.Task))
}

// Check returns an error if the request changes nothing.
func (r ScheduleEdit) Check() error {
	r.DryRun, r.Reason = false, ""
	if reflect.ValueOf(r).IsZero() {
		return fmt.Errorf("%w: nothing to change; give at least one new value", holdfast.ErrInvalid)
	}
	return nil
}

// EditSchedule changes a schedule, unless the request is a dry run. Before that it calls show like CreateSchedule.
// check, if it is not nil, may refuse the change.
func EditSchedule(
	ctx context.Context, b *app.Backend, by store.Actor, name string, r ScheduleEdit,
	check func(*app.Schedule) error, show func(ScheduleDetails),
) (ScheduleDetails, app.Schedule, error) {
	by.Reason = r.Reason
	if err := r.Check(); err != nil {
		return ScheduleDetails{}, app.Schedule{}, err
	}
	checks := []func(*app.Schedule) error{}
	if check != nil {
		checks = append(checks, check)
	}
	s, err := b.PlanScheduleEdit(ctx, name, r.apply, checks...)
	if err != nil {
		return ScheduleDetails{}, s, err
	}
	d, err := scheduleDetails(s, time.Time{})
	if err != nil {
		return d, s, err
	}
	if show != nil {
		show(d)
	}
	if r.DryRun {
		return d, s, nil
	}
	if _, s, err = b.EditSchedule(ctx, by, name, r.apply, checks...); err != nil {
		return d, s, err
	}
	d, err = scheduleDetails(s, time.Time{})
	return d, s, err
}

// RunNow is the answer to a request to run a schedule at once.
type RunNow struct {
	Name string `json:"name"`
	Type string `json:"type"`
	ScheduleRun
}

// RunSchedule stores a task of a schedule at once.
func RunSchedule(ctx context.Context, b *app.Backend, by store.Actor, name string, checks ...func(*app.Schedule) error) (RunNow, error) {
	s, _, err := b.RunSchedule(ctx, by, name, checks...)
	if err != nil || len(s.Progress.Recent) == 0 {
		return RunNow{}, err
	}
	return RunNow{s.Name, s.Spec.Task.Type, ScheduleRun(s.Progress.Recent[0])}, nil
}

// Backfill is a request to run the times of a schedule in a range.
type Backfill struct {
	From     string `json:"from" flag:"TIME" required:"true" doc:"The first time of the range: 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; without a zone, the time of the schedule's zone, or for an interval local time."`
	To       string `json:"to" flag:"TIME" required:"true" doc:"The last time of the range, which is a part of it."`
	InFlight *int   `json:"in_flight,omitempty" flag:"N" default:"1" minimum:"1" doc:"At most so many open tasks of the backfill."`
	Again    bool   `json:"again,omitempty" flag:"-" doc:"Also run the times of which the store has a task."`
	Reason   string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// Backfilled is the answer to a request for a backfill.
type Backfilled struct {
	ScheduleDetails
	Times int       `json:"times" doc:"How many times the backfill has, counted up to 1000."`
	From  time.Time `json:"from" doc:"The begin of the range, in the zone of the schedule."`
	To    time.Time `json:"to" doc:"The end of the range, in the zone of the schedule."`
}

// MaxCountedTimes is the number up to which the times of a backfill are counted.
const MaxCountedTimes = 1000

// BackfillSchedule starts a backfill; see app.Backend.BackfillSchedule.
func BackfillSchedule(ctx context.Context, b *app.Backend, by store.Actor, name string, r Backfill) (started Backfilled, s app.Schedule, err error) {
	by.Reason = r.Reason
	of, err := b.Schedule(ctx, name)
	if err != nil {
		return started, s, err
	}
	zone := zoneOf(&of.Spec)
	from, err := scheduleTime("from", &r.From, zone)
	if err != nil {
		return started, s, err
	}
	to, err := scheduleTime("to", &r.To, zone)
	if err != nil {
		return started, s, err
	}
	if to.Before(from) {
		return started, s, fmt.Errorf("%w: the range begins at %s, after its end %s", holdfast.ErrInvalid,
			from.In(zone).Format(time.RFC3339), to.In(zone).Format(time.RFC3339))
	}
	if s, err = b.BackfillSchedule(ctx, by, name, from, to, *cmp.Or(r.InFlight, new(1)), r.Again); err != nil {
		return started, s, err
	}
	all, err := s.Spec.Moments(time.Time{}, MaxCountedTimes)
	if err != nil {
		return started, s, err
	}
	started.Times, started.From, started.To = len(all), from.In(zone), to.In(zone)
	started.ScheduleDetails, err = scheduleDetails(s, time.Time{})
	return started, s, err
}
