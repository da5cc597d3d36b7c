package plan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// An edit that leaves the times as they are must not lose the moments that are due: not those in the time of their
// jitter, and not those that no janitor has used yet.
func TestAnEditKeepsDueMoments(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*plan.Schedule)
		want string
	}{
		{"of the note", func(s *plan.Schedule) { s.Note = "changed" }, "2m0s"},
		{"of the interval", func(s *plan.Schedule) { s.Every = plan.Duration(90 * time.Second) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.create(schedule(func(*plan.Schedule) {}))
			w.now = begin.Add(150 * time.Second) // no janitor has made a step
			w.change(func(p store.Plan, was plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
				s := was
				c.edit(&s)
				return s.Edited(p, was, progress, w.now)
			})
			w.advance()
			if got := strings.Join(w.moments(), " "); got != c.want {
				t.Errorf("ran %q, want %q", got, c.want)
			}
		})
	}
}

// An edit of a schedule that has paused itself keeps the reason of the pause.
func TestAnEditKeepsThePause(t *testing.T) {
	w := newWorld(t, 1)
	w.create(schedule(func(*plan.Schedule) {}))
	w.change(func(p store.Plan, was plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
		progress.PausedBy = "the last 3 tasks are dead"
		return was.Edited(plan.PausedSchedule(p), was, progress, w.now)
	})
	p, _, progress := w.read()
	if p.State != store.PlanPaused || progress.PausedBy == "" || !p.NextAt.IsZero() {
		t.Errorf("state %s, paused by %q, next step at %v", p.State, progress.PausedBy, p.NextAt)
	}
}
