package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Origin is the schedule that has made a task, according to the unique key of the task.
type Origin struct {
	Name   string    `json:"name"`
	Moment time.Time `json:"moment"` // the time for which the schedule made the task
	// Backfill is set if a backfill ran the moment again although the store had a task of it. The task of another
	// backfill has the same key as one of the schedule.
	Backfill bool `json:"backfill,omitempty"`
	// State is the state of the schedule. It is empty if the store knows no such schedule: then another program may have
	// chosen the key.
	State store.PlanState `json:"state,omitempty"`
	// NextRun is when the schedule stores its next task. It is zero if no time is known.
	NextRun time.Time `json:"next_run,omitzero"`
	Text    string    `json:"text"`
}

// OriginFacts are what the store knows about the schedule or the source that the unique key of a task names.
type OriginFacts struct {
	Plan *store.Plan       // nil if none with the name exists
	Last *store.AuditEntry // the last change of it, if Plan is nil; nil if the audit log has none
}

// readOrigins sets the facts about the schedule or the source that the unique key of the task names.
func (f *Facts) readOrigins(ctx context.Context, s Source) (err error) {
	if name, _, ok := plan.ScheduleOrigin(f.Task.Unique); ok {
		f.Schedule, err = readOrigin(ctx, s, store.ScheduleKind, name)
	} else if name, _, ok := plan.SliceOrigin(f.Task.Unique); ok {
		f.Source, err = readOrigin(ctx, s, store.SourceKind, name)
	}
	return err
}

func readOrigin(ctx context.Context, s Source, kind store.PlanKind, name string) (*OriginFacts, error) {
	p, err := s.PlanByName(ctx, kind, name)
	if !errors.Is(err, holdfast.ErrNotFound) {
		return &OriginFacts{Plan: &p}, err
	}
	entries, err := s.AuditLog(ctx, store.AuditFilter{Subject: store.PlanSubject(kind, name), Limit: 1})
	if err != nil || len(entries) == 0 {
		return &OriginFacts{}, err
	}
	return &OriginFacts{Last: &entries[0]}, nil
}

// schedule describes the schedule that has made the task. It returns nil if the unique key names none.
func (f *Facts) schedule() *Origin {
	name, moment, ok := plan.ScheduleOrigin(f.Task.Unique)
	if !ok || f.Schedule == nil {
		return nil
	}
	s := &Origin{Name: name, Moment: moment}
	s.Text = fmt.Sprintf("made by the schedule %s for %s", name, moment.Format(time.RFC3339Nano))
	if s.Backfill = strings.Count(f.Task.Unique, "/") > 2; s.Backfill { // the last part of the key is about the backfill
		s.Text = "made by a backfill of" + strings.TrimPrefix(s.Text, "made by")
	}
	switch last := f.Schedule.Last; {
	case f.Schedule.Plan != nil:
		s.describe(*f.Schedule.Plan, f.Now)
	case last == nil:
		s.Text = unknownOrigin("schedule", name)
	default:
		var end string
		s.State, end = f.ended("schedule", *last)
		s.Text += end
	}
	return s
}

func unknownOrigin(noun, name string) string {
	return fmt.Sprintf("its unique key names the %s %s, which does not exist, or does not exist any more", noun, name)
}

// ended describes the end of a schedule or source from its last change.
func (f *Facts) ended(noun string, last store.AuditEntry) (store.PlanState, string) {
	if last.Action == store.ActionDelete {
		return store.PlanDeleted, fmt.Sprintf("; %s deleted the %s %s ago", last.Name, noun, rounded(f.Now.Sub(last.At)))
	}
	return store.PlanDone, fmt.Sprintf("; the %s has ended", noun)
}

// describe adds the state of the schedule, and when it runs next.
func (s *Origin) describe(p store.Plan, now time.Time) {
	s.State = p.State
	_, progress, err := plan.ReadSchedule(p)
	switch {
	case err != nil:
		s.Text += fmt.Sprintf("; the schedule is %s, and a newer version has stored it", p.State)
	case p.State == store.PlanPaused && progress.PausedBy != "":
		s.Text += fmt.Sprintf("; the schedule has paused itself, because %s", progress.PausedBy)
	case p.State != store.PlanRunning:
		s.Text += fmt.Sprintf("; the schedule is %s", p.State)
	case !progress.Waiting.IsZero():
		s.Text += "; the schedule stores its next task when its open task has ended"
	default:
		s.NextRun = p.NextAt
		s.Text += fmt.Sprintf("; the schedule stores its next task in %s", rounded(max(0, p.NextAt.Sub(now))))
	}
}
