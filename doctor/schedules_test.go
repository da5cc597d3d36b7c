package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// schedule returns a plan of a schedule that was created at a time, and changed by the functions.
func schedule(t *testing.T, name string, created time.Time, changes ...func(*store.Plan)) store.Plan {
	t.Helper()
	spec := plan.Schedule{Every: plan.Duration(time.Hour), Missed: plan.MissedOne, Overlap: 1, Task: plan.Task{Type: "mail"}}
	p, err := spec.Plan(name, created)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)
	// The next step of a schedule that was created at these times is due in half an hour, late, and on time.
	onTime, late, nearlyOnTime := now.Add(-30*time.Minute), now.Add(-65*time.Minute), now.Add(-61*time.Minute)
	paused := func(by string) func(*store.Plan) {
		return func(p *store.Plan) {
			p.State, p.NextAt, p.Progress = store.PlanPaused, time.Time{}, fmt.Appendf(nil, `{"runs": 3, "skipped": 0, "missed": 0, "paused_by": %q}`, by)
		}
	}
	failing := func(n int) func(*store.Plan) {
		return func(p *store.Plan) { p.Failures, p.Failure = n, "no zone data" }
	}
	newer := func(p *store.Plan) { p.Spec = []byte(`{"weekday": "monday"}`) }
	many := func(n int, created time.Time) (plans []store.Plan) {
		for i := range n {
			plans = append(plans, schedule(t, fmt.Sprintf("s%04d", i), created))
		}
		return plans
	}
	active := Check{Name: "janitors", Severity: OK}
	for name, c := range map[string]struct {
		plans   []store.Plan
		earlier []Check
		want    string // a line for each check
	}{
		"none":    {nil, nil, "ok 0 schedules are stored, none is late, and none has paused itself "},
		"on time": {[]store.Plan{schedule(t, "a", onTime), schedule(t, "b", nearlyOnTime)}, nil, "ok 2 schedules are stored, none is late, and none has paused itself "},
		"pages":   {many(2*planPage+1, onTime), nil, "ok 401 schedules are stored, none is late, and none has paused itself "},
		"late": {[]store.Plan{schedule(t, "a", now.Add(-2*time.Hour)), schedule(t, "b", onTime), schedule(t, "c", late)}, nil,
			"failed 2 schedules are late by up to 1h0m0s, because no janitor has made the step: a, c serve_janitor "},
		"late, beside a janitor": {[]store.Plan{schedule(t, "a", late)}, []Check{active},
			"failed 1 schedule is late by up to 5m0s, because no janitor has made the step: a advice "},
		"many are late": {many(8, late), nil, "failed 8 schedules are late by up to 5m0s, because no janitor has made the step: s0000, s0001, s0002, s0003, s0004 and 3 more serve_janitor "},
		"failing": {[]store.Plan{schedule(t, "a", onTime), schedule(t, "b", onTime, failing(3)), schedule(t, "c", onTime, failing(1))}, nil,
			"failed the steps of 2 schedules fail: b, c; the first because of: no zone data (3 failures in a row) advice "},
		"a newer version": {[]store.Plan{schedule(t, "a", late, newer)}, nil,
			"warning a newer version has stored 1 schedule: a advice "},
		"a person has paused it": {[]store.Plan{schedule(t, "a", late, paused(""))}, nil, "ok 1 schedule is stored, none is late, and none has paused itself "},
		"it has paused itself": {[]store.Plan{schedule(t, "a", late, paused("the last 3 tasks are dead"))}, nil,
			"warning the schedule a has paused itself, because the last 3 tasks are dead resume_schedule a"},
		"several have paused themselves": {[]store.Plan{schedule(t, "a", late, paused("x")), schedule(t, "b", late, paused("y"))}, nil,
			"warning the schedule a has paused itself, because x; others have paused themselves, too: b resume_schedule a"},
		"the clock was set back": {[]store.Plan{schedule(t, "a", now.Add(5*time.Hour)), schedule(t, "b", now.Add(3*time.Hour)), schedule(t, "c", onTime)}, nil,
			"warning the schedule a stores no task before 2026-11-26T18:30:00Z, although one of its moments is 2026-11-26T17:30:00Z: " +
				"the clock of the store was set back; the same is true of b restart_schedule a"},
	} {
		e := &examination{store: &storeDouble{&world{plans: c.plans}}}
		e.Checks = c.earlier
		e.examineSchedules(t.Context(), now)
		var lines []string
		for _, c := range e.Checks[len(c.earlier):] {
			arg := c.Remedy.Arg
			if c.Remedy.Kind == holdfast.HintAdvice {
				arg = ""
			}
			lines = append(lines, strings.TrimSuffix(fmt.Sprint(c.Severity, " ", c.Detail, " ", c.Remedy.Kind, " ", arg), " ")+" ")
		}
		got := strings.TrimSuffix(strings.Join(lines, "\n"), " ")
		if strings.TrimSpace(got) != strings.TrimSpace(c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
