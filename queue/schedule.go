package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
)

// Schedule declares a schedule, which stores a task at regular times. Make one with [Cron] or [Every], and store it with
// Client.Schedule or Client.ScheduleAll.
type Schedule struct {
	name string
	spec plan.Schedule
	err  error // of an option or of the payload
}

// Cron declares a schedule that stores a task of the type at the times of a cron expression. The expression has five
// fields, or six with seconds first, or is a word such as @daily. The times are in UTC, or in the zone of [Timezone].
// The payload is encoded as by Enqueue. It must be the same in all calls, because another payload is another
// declaration. A name has letters, digits and . _ -.
//
// The options of Enqueue set the properties of the tasks, except those that set a unique key or a due time: each task
// gets a unique key from its schedule and its moment. Without [Queue], the tasks get the queue that their type has when
// the schedule is stored.
//
// Client.Schedule returns the errors of the arguments.
func Cron(name, expression, taskType string, payload any, opts ...ScheduleOption) Schedule {
	return newSchedule(name, plan.Schedule{Cron: expression}, NewTask{Type: taskType, Payload: payload}, opts)
}

// Every declares a schedule that stores a task after equal intervals of at least a second. Clock changes of time zones
// do not affect them. The intervals begin when the schedule is created, or at the time of [StartAt]. The other arguments
// are those of [Cron].
func Every(name string, interval time.Duration, taskType string, payload any, opts ...ScheduleOption) Schedule {
	return newSchedule(name, plan.Schedule{Every: plan.Duration(interval)}, NewTask{Type: taskType, Payload: payload}, opts)
}

func newSchedule(name string, spec plan.Schedule, task NewTask, opts []ScheduleOption) Schedule {
	spec.Missed, spec.CatchUp, spec.Overlap = plan.MissedOne, plan.DefaultCatchUp, plan.Overlap(Skip)
	d := scheduleDraft{spec: spec}
	fail := func(err error) Schedule { return Schedule{name: name, err: err} }
	var err error
	if d.task, err = task.Complete(); err != nil {
		return fail(err)
	}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option.applyToSchedule(&d); err != nil {
			return fail(err)
		}
	}
	switch {
	case d.task.Unique != "":
		return fail(fmt.Errorf("%w: the tasks of a schedule cannot have a unique key of their own; remove the option Unique", holdfast.ErrInvalid))
	case d.task.Delay != 0 || !d.task.At.IsZero():
		return fail(fmt.Errorf("%w: the tasks of a schedule are due when they are stored; remove the option In or At", holdfast.ErrInvalid))
	}
	d.spec.Task = plan.TaskOf(d.task)
	return Schedule{name: name, spec: d.spec}
}

// ScheduleOption is an option of Cron and Every. Each TaskOption is one, too.
type ScheduleOption interface {
	applyToSchedule(*scheduleDraft) error
}

// scheduleDraft is a schedule to which options apply. The task of spec is set after them.
type scheduleDraft struct {
	spec plan.Schedule
	task holdfast.NewTask
}

// scheduleField is an option that package app validates.
type scheduleField func(*plan.Schedule)

func (f scheduleField) applyToSchedule(d *scheduleDraft) error {
	f(&d.spec)
	return nil
}

func (f taskOption) applyToSchedule(d *scheduleDraft) error  { return f(&d.task) }
func (n maxAttempts) applyToSchedule(d *scheduleDraft) error { return n.applyToTask(&d.task) }
func (q queueName) applyToSchedule(d *scheduleDraft) error   { return q.applyToTask(&d.task) }

// Timezone sets the time zone of a cron expression, such as Europe/Berlin. The default is UTC. When clocks change, a
// fixed time runs once; expressions for every hour go on in real time.
func Timezone(zone string) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.Timezone = zone })
}

// MissedRuns says which due moments run after an outage of all janitors; see [Missed].
type MissedRuns string

// The values of Missed.
const (
	RunNone MissedRuns = MissedRuns(plan.MissedSkip) // none that was due more than a minute ago
	RunOne  MissedRuns = MissedRuns(plan.MissedOne)  // the last one; the default
	RunAll  MissedRuns = MissedRuns(plan.MissedAll)  // all
)

// Missed sets which of the moments run that an outage of all janitors has missed. Moments that are older than the
// catch-up window do not run; see [CatchUp].
func Missed(runs MissedRuns) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.Missed = plan.MissedRuns(runs) })
}

// CatchUp sets the catch-up window: how old a missed moment may be. The default is an hour.
func CatchUp(window time.Duration) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.CatchUp = plan.Duration(window) })
}

// Arguments of Overlap.
const (
	Skip     int = 1  // leave out a due moment while the task of an earlier one is open; the default
	QueueOne int = -1 // let one moment wait until that task has ended
)

// Overlap sets what happens to a due moment while earlier tasks of the schedule are ready or running: [Skip],
// [QueueOne], or the maximum number of tasks that may be so at the same time.
func Overlap(limit int) ScheduleOption {
	return scheduleOption(func(d *scheduleDraft) error {
		switch {
		case limit == QueueOne:
			d.spec.Overlap = plan.OverlapQueue
		case limit < 1:
			return fmt.Errorf("%w: overlap %d must be Skip, QueueOne or a number from 1 to %d", holdfast.ErrInvalid, limit, plan.MaxOverlap)
		default:
			d.spec.Overlap = plan.Overlap(limit)
		}
		return nil
	})
}

type scheduleOption func(*scheduleDraft) error

func (f scheduleOption) applyToSchedule(d *scheduleDraft) error { return f(d) }

// Jitter delays each task by a part of d that depends on the schedule and the moment. So schedules with the same times
// do not store all of their tasks at once.
func Jitter(d time.Duration) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.Jitter = plan.Duration(d) })
}

// StartAt sets the earliest moment of a schedule.
func StartAt(t time.Time) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.Start = t.UTC().Truncate(time.Microsecond) })
}

// EndAt sets the latest moment of a schedule. The schedule ends after it.
func EndAt(t time.Time) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.End = t.UTC().Truncate(time.Microsecond) })
}

// RunAtStart also stores a task when the schedule is created.
func RunAtStart() ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.RunAtStart = true })
}

// PauseAfter pauses the schedule after n tasks in a row that are dead.
func PauseAfter(n int) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.PauseAfter = n })
}

// Note sets a text for the people who operate the schedule.
func Note(text string) ScheduleOption {
	return scheduleField(func(s *plan.Schedule) { s.Note = text })
}

// ScheduledFor returns the moment for which a schedule has stored the task. It differs from the present time: after an
// outage a missed moment runs later, and a backfill runs moments of the past. So a handler must compute the period of its
// work from this moment. ok is false if no schedule has stored the task.
func ScheduledFor(task holdfast.Task) (at time.Time, ok bool) {
	_, at, ok = plan.ScheduleOrigin(task.Unique)
	return at, ok
}

// RunSchedule stores a task of a schedule at once, even if the schedule is paused or has open tasks. It returns the id
// of the task. RunSchedule returns ErrNotFound if there is no such schedule.
func (c *Client) RunSchedule(ctx context.Context, name string) (holdfast.TaskID, error) {
	b, err := c.openBackend()
	if err != nil {
		return 0, err
	}
	_, id, err := b.RunSchedule(ctx, by(""), name)
	return id, err
}

// PauseSchedule stops a schedule until ResumeSchedule. Stored tasks still run. If the schedule is already paused,
// PauseSchedule changes nothing. It returns ErrNotFound if there is no such schedule.
func (c *Client) PauseSchedule(ctx context.Context, name, reason string) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.PauseSchedule(ctx, by(reason), name)
	return err
}

// ResumeSchedule ends the pause of a schedule. The moments of the pause do not run. If the schedule is not paused,
// ResumeSchedule changes nothing. It returns ErrNotFound if there is no such schedule.
func (c *Client) ResumeSchedule(ctx context.Context, name, reason string) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.ResumeSchedule(ctx, by(reason), name)
	return err
}

// DeleteSchedule deletes a schedule. Stored tasks still run. The next call of Schedule that declares the schedule creates
// it again. DeleteSchedule returns ErrNotFound if there is no such schedule.
func (c *Client) DeleteSchedule(ctx context.Context, name, reason string) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.DeleteSchedule(ctx, by(reason), name)
	return err
}

// openBackend returns the backend with the settings that calls of Handle have made so far, or ErrClosed.
func (c *Client) openBackend() (*app.Backend, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	b := *c.backend
	return &b, nil
}
