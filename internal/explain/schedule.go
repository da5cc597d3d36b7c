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

// OriginFacts are what the store knows about the schedule that the unique key of a task names.
type OriginFacts struct {
	Plan *store.Plan       // nil if no schedule with the name exists
	Last *store.AuditEntry // the last change of the schedule, if Plan is nil; nil if the audit log has none
}

// readSchedule returns the facts about the schedule that the unique key of a task names. It returns nil if the key names
// none.
func readSchedule(ctx context.Context, s Source, task holdfast.Task) (*OriginFacts, error) {
	name, _, ok := plan.Origin(task.Unique)
	if !ok {
		return nil, nil
	}
	p, err := s.PlanByName(ctx, store.ScheduleKind, name)
	if !errors.Is(err, holdfast.ErrNotFound) {
		return &OriginFacts{Plan: &p}, err
	}
	entries, err := s.AuditLog(ctx, store.AuditFilter{Subject: store.PlanSubject(store.ScheduleKind, name), Limit: 1})
	if err != nil || len(entries) == 0 {
		return &OriginFacts{}, err
	}
	return &OriginFacts{Last: &entries[0]}, nil
}

// schedule describes the schedule that has made the task. It returns nil if the unique key names none.
func (f *Facts) schedule() *Origin {
	name, moment, ok := plan.Origin(f.Task.Unique)
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
		s.Text = fmt.Sprintf("its unique key names the schedule %s, which does not exist, or does not exist any more", name)
	case last.Action == store.ActionDelete:
		s.State = store.PlanDeleted
		s.Text += fmt.Sprintf("; %s deleted the schedule %s ago", last.Name, rounded(f.Now.Sub(last.At)))
	default:
		s.State = store.PlanDone
		s.Text += "; the schedule has ended"
	}
	return s
}

// describe adds the state of the schedule, and when it runs next.
func (s *Origin) describe(p store.Plan, now time.Time) {
	s.State = p.State
	_, progress, err := plan.Read(p)
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
