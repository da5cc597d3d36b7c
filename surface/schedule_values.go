package surface

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/cron"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/internal/search"
)

// ScheduleTimes is the part of a request that says when a schedule stores tasks. A missing member keeps its value.
type ScheduleTimes struct {
	Cron       *string          `json:"cron,omitempty" flag:"EXPR" doc:"A cron expression with five fields, or six with the second first, such as 0 3 * * 1-5; either this or an interval."`
	Every      *string          `json:"every,omitempty" flag:"DURATION" doc:"An interval of at least 1s, such as 5m or 36h; it begins at the start, or when the schedule is created."`
	Timezone   Optional[string] `json:"timezone,omitzero" flag:"ZONE" doc:"The time zone of the cron expression, such as Europe/Berlin; default UTC; null removes it."`
	Missed     *string          `json:"missed,omitempty" flag:"WHICH" enum:"skip,one,all" doc:"Which of the times run late that no janitor ran in time, by default one, the last of them."`
	CatchUp    *string          `json:"catch_up,omitempty" flag:"DURATION" doc:"Missed times that are older do not run; default 1h."`
	Overlap    *string          `json:"overlap,omitempty" flag:"WHAT" doc:"What to do while earlier tasks are open: skip the time, queue one time, or a number N for at most N open tasks; default skip."`
	Jitter     Optional[string] `json:"jitter,omitzero" flag:"DURATION" doc:"Store each task up to so long after its time; null removes it."`
	Start      Optional[string] `json:"start,omitzero" flag:"TIME" doc:"The earliest time: 2030-01-31, 2030-01-31 09:00 or 2030-01-31T09:00:00Z; without a zone, the time of --timezone, or for an interval local time; null removes it."`
	End        Optional[string] `json:"end,omitzero" flag:"TIME" doc:"The latest time; null removes it."`
	Note       Optional[string] `json:"note,omitzero" flag:"TEXT" doc:"A text for people, of at most 1000 bytes; null removes it."`
	PauseAfter Optional[int]    `json:"pause_after,omitzero" flag:"N" minimum:"1" doc:"Pause after so many dead tasks in a row; null removes it."`
}

// apply changes a schedule. A cron expression replaces an interval, and an interval replaces a cron expression with its
// time zone.
func (r ScheduleTimes) apply(s *plan.Schedule) (err error) {
	switch {
	case r.Cron != nil && r.Every != nil:
		return fmt.Errorf("%w: give a cron expression or an interval, and not both", holdfast.ErrInvalid)
	case r.Cron != nil:
		s.Cron, s.Every = *r.Cron, 0
	case r.Every != nil:
		s.Cron, s.Timezone = "", ""
	}
	if r.Timezone.Given {
		s.Timezone = r.Timezone.Or("")
	}
	if r.Missed != nil {
		s.Missed = plan.MissedRuns(*r.Missed)
	}
	if r.Overlap != nil {
		if s.Overlap, err = plan.ParseOverlap(*r.Overlap); err != nil {
			return err
		}
	}
	if r.Jitter.Given {
		r.Jitter.Value = new(r.Jitter.Or("0s"))
	}
	for _, d := range []struct {
		name string
		text *string
		to   *plan.Duration
	}{{"every", r.Every, &s.Every}, {"catch_up", r.CatchUp, &s.CatchUp}, {"jitter", r.Jitter.Value, &s.Jitter}} {
		if d.text != nil {
			if *d.to, err = planDuration(d.name, *d.text); err != nil {
				return err
			}
		}
	}
	for _, t := range []struct {
		name string
		text Optional[string]
		to   *time.Time
	}{{"start", r.Start, &s.Start}, {"end", r.End, &s.End}} {
		if t.text.Given {
			if *t.to, err = scheduleTime(t.name, t.text.Value, zoneOf(s)); err != nil {
				return err
			}
		}
	}
	if r.Note.Given {
		s.Note = r.Note.Or("")
	}
	if r.PauseAfter.Given {
		s.PauseAfter = r.PauseAfter.Or(0)
	}
	return nil
}

// planDuration parses a duration of a schedule or a source.
func planDuration(name, text string) (d plan.Duration, err error) {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return 0, fmt.Errorf("%w: %s %.100q is not a duration like 5m or 1h30m", holdfast.ErrInvalid, name, text)
	}
	return d, nil
}

// scheduleTime parses a time of a schedule or a source. A text without a zone is a time of the given zone. If text is nil,
// scheduleTime returns the zero time.
func scheduleTime(name string, text *string, zone *time.Location) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	at, err := search.TimeIn(*text, zone)
	if err != nil {
		return at, fmt.Errorf("%w: %s %w", holdfast.ErrInvalid, name, err)
	}
	return at.UTC().Truncate(time.Microsecond), nil
}

// zoneOf returns the zone of times without a zone in requests about a schedule. A cron expression has a zone; for an
// interval the zone is the local one.
func zoneOf(s *plan.Schedule) *time.Location {
	if zone, err := cron.Zone(s.Timezone); err == nil && s.Cron != "" { // Validate returns the error
		return zone
	}
	return time.Local
}

// ScheduleTask is the part of a request that describes the tasks of a schedule. A missing member keeps its value.
type ScheduleTask struct {
	Type        string             `json:"type,omitempty" flag:"TYPE" doc:"The type of the tasks, which selects the handler; http is built in."`
	Payload     json.RawMessage    `json:"payload,omitempty" doc:"The input of the handler."`
	Queue       Optional[string]   `json:"queue,omitzero" flag:"QUEUE" doc:"The queue of the tasks; default the queue of the type; null restores the default."`
	Priority    *holdfast.Priority `json:"priority,omitempty" flag:"PRIORITY" doc:"The priority of the tasks: low, normal, high or critical, or a number from 0 to 9; default normal."`
	MaxAttempts Optional[int]      `json:"max_attempts,omitzero" flag:"N" minimum:"1" doc:"A task is dead after so many failed attempts; null restores the limit of the type."`
	Key         Optional[string]   `json:"key,omitzero" flag:"KEY" doc:"What the tasks are for, such as a tenant; null removes it."`
	Ordered     *bool              `json:"ordered,omitempty" flag:"-" doc:"Start each task after all earlier ordered tasks with the same key."`
	Topic       Optional[string]   `json:"topic,omitzero" flag:"TOPIC" doc:"The stream that the tasks belong to; null removes it."`
	Tags        []string           `json:"tags,omitempty" doc:"Words by which to find the tasks; they replace all present ones."`
}

// apply changes the description of tasks.
func (r ScheduleTask) apply(t *plan.Task) error {
	t.Type, t.Priority, t.Ordered = cmp.Or(r.Type, t.Type), *cmp.Or(r.Priority, &t.Priority), *cmp.Or(r.Ordered, &t.Ordered)
	if r.Payload != nil {
		t.Payload = r.Payload
	}
	if r.Tags != nil {
		t.Tags = slices.Clone(r.Tags)
	}
	if r.MaxAttempts.Given {
		if t.MaxAttempts = r.MaxAttempts.Or(0); r.MaxAttempts.Value != nil && t.MaxAttempts < 1 { // 0 is the limit of the type
			return fmt.Errorf("%w: max_attempts %d must be at least 1", holdfast.ErrInvalid, t.MaxAttempts)
		}
	}
	for _, m := range []struct {
		text Optional[string]
		to   *string
	}{{r.Queue, &t.Queue}, {r.Key, &t.Key}, {r.Topic, &t.Topic}} {
		if m.text.Given {
			*m.to = m.text.Or("")
		}
	}
	return nil
}
