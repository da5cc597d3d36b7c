package surface

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	edit "github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// Every entrance refuses the times and the durations outside of the one range, and names the field. It accepts the ends
// of the range.
func TestEveryEntranceChecksTheRange(t *testing.T) {
	t.Parallel()
	second := func(_ any, err error) error { return err }
	policy := func(change func(*holdfast.Policy)) error {
		p := holdfast.DefaultPolicy()
		change(&p)
		return p.Validate()
	}
	settings := func(s holdfast.TypeSettings) error { return holdfast.Settings{Defaults: s}.Validate() }
	setSource := func(set func(*SourceSettings, Optional[string]), d time.Duration) error {
		var r SetSourceRequest
		set(&r.SourceSettings, Optional[string]{Given: true, Value: new(d.String())})
		return r.Check()
	}
	pause := func(d time.Duration) error { return store.PauseFor(store.Subject{Queue: "q"}, d).Validate() }
	for _, c := range []struct {
		entrance, field string
		refuses         func(time.Duration) error
	}{
		{"a task", "delay", func(d time.Duration) error { return holdfast.NewTask{Type: "a", Delay: d}.Validate(9) }},
		{"a task", "unique key", func(d time.Duration) error { return holdfast.NewTask{Type: "a", Unique: "u", UniqueFor: d}.Validate(9) }},
		{"a policy", "base", func(d time.Duration) error { return policy(func(p *holdfast.Policy) { p.Base = d }) }},
		{"a policy", "max", func(d time.Duration) error { return policy(func(p *holdfast.Policy) { p.Max = d }) }},
		{"a policy", "deadline", func(d time.Duration) error { return policy(func(p *holdfast.Policy) { p.Deadline = d }) }},
		{"a policy", "delay", func(d time.Duration) error { return policy(func(p *holdfast.Policy) { p.Delays = []time.Duration{d} }) }},
		{"settings of a type", "timeout", func(d time.Duration) error { return settings(holdfast.TypeSettings{Timeout: d}) }},
		{"settings of a type", "abandon after", func(d time.Duration) error { return settings(holdfast.TypeSettings{AbandonAfter: d}) }},
		{"a pause", "pause", pause},
		{"a request for a pause", "for", func(d time.Duration) error {
			return second(NewGate{Kind: string(store.GatePause), GateSubject: GateSubject{Queue: "q"}, For: Optional[string]{Given: true, Value: new(d.String())}}.change())
		}},
		{"a request for a token", "expires", func(d time.Duration) error { return NewToken{Expires: d.String()}.Check() }},
		{"an operation", "timeout of a step", func(d time.Duration) error {
			return (&operate.Request{Action: store.ActionRetry, Filter: store.Filter{States: []holdfast.State{holdfast.Dead}}, StepTimeout: d}).Check()
		}},
		{"a search", "87840h0m1s", func(d time.Duration) error { return second(search.Parse("since:"+d.String(), time.Now())) }},
		{"a search", "87840h0m1s", func(d time.Duration) error { return second(search.Parse("until:"+d.String(), time.Now())) }},
		{"the audit log", "since", func(d time.Duration) error { return AuditQuery{Since: d.String()}.Check() }},
		{"the environment", "HOLDFAST_TYPES_A_TIMEOUT", func(d time.Duration) error {
			return second(configs.Load(configs.Options{Env: []string{"HOLDFAST_TYPES_A_TIMEOUT=" + d.String()}}))
		}},
		{"a flag", "janitor-keep-done", func(d time.Duration) error {
			return second(configs.Load(configs.Options{Flags: map[string]string{"janitor-keep-done": d.String()}}))
		}},
		{"a source", "timeout", func(d time.Duration) error {
			return setSource(func(s *SourceSettings, text Optional[string]) { s.Timeout = text }, d)
		}},
		{"a source", "retry base", func(d time.Duration) error {
			return setSource(func(s *SourceSettings, text Optional[string]) { s.RetryBase = text }, d)
		}},
		{"a source", "longest delay", func(d time.Duration) error {
			return setSource(func(s *SourceSettings, text Optional[string]) { s.RetryMax = text }, d)
		}},
		{"a schedule", "interval", func(d time.Duration) error {
			return (&plan.Schedule{Every: plan.Duration(d), Missed: plan.MissedOne, Overlap: 1, Task: plan.Task{Type: "a"}}).Validate(9)
		}},
	} {
		if err := c.refuses(holdfast.MaxDuration); err != nil {
			t.Errorf("%s refuses ten years in %s: %v", c.entrance, c.field, err)
		}
		if err := c.refuses(holdfast.MaxDuration + time.Second); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s accepts more than ten years in %s, or does not name it: %v", c.entrance, c.field, err)
		}
	}

	ready := holdfast.Task{ID: 1, Type: "a", Queue: "q", State: holdfast.Ready, MaxAttempts: 3, NextRunAt: time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC)}
	for _, c := range []struct {
		entrance, field string
		refuses         func(time.Time) error
	}{
		{"a task", "time", func(at time.Time) error { return holdfast.NewTask{Type: "a", At: at}.Validate(9) }},
		{"a request for a task", "at", func(at time.Time) error {
			return second(NewTask{Type: "a", At: at.Format(time.RFC3339)}.Task(holdfast.NewTask{}))
		}},
		{"an edit", "run_at", func(at time.Time) error {
			to := edit.DocumentOf(ready)
			to.RunAt = at
			return second(edit.Edit(ready, to, edit.Rules{MaxPayload: 9}))
		}},
		{"a search", "is not in the years", func(at time.Time) error { return second(search.Parse("since:"+at.Format(time.RFC3339), time.Now())) }},
		{"the audit log", "until", func(at time.Time) error { return AuditQuery{Until: at.Format(time.RFC3339)}.Check() }},
		{"a simulation", "from", func(at time.Time) error { return Simulation{Type: "a", From: at.Format(time.RFC3339)}.Check() }},
		{"a list of slices", "after", func(at time.Time) error { return SliceQuery{After: at.Format(time.RFC3339)}.Check() }},
		{"a schedule", "start", func(at time.Time) error {
			return (&plan.Schedule{Every: plan.Duration(time.Hour), Start: at, Missed: plan.MissedOne, Overlap: 1, Task: plan.Task{Type: "a"}}).Validate(9)
		}},
		{"a source", "begin", func(at time.Time) error {
			return (&plan.Source{Type: "a", From: at}).Validate(true)
		}},
	} {
		for _, at := range []time.Time{time.Unix(0, 0).UTC(), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)} {
			if err := c.refuses(at); err != nil {
				t.Errorf("%s refuses %s in %s: %v", c.entrance, at, c.field, err)
			}
		}
		for _, at := range []time.Time{time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*3600))} {
			if err := c.refuses(at); err == nil || !strings.Contains(err.Error(), c.field) || !strings.Contains(err.Error(), "1970 to 9999") {
				t.Errorf("%s accepts %s in %s, or does not name the field and the range: %v", c.entrance, at, c.field, err)
			}
		}
	}

	// What an older build stored is still editable: only a new time is checked.
	to := edit.DocumentOf(ready)
	to.Tags = []string{"x"}
	if _, err := edit.Edit(ready, to, edit.Rules{MaxPayload: 9}); err != nil {
		t.Errorf("edit of a task with an old time: %v", err)
	}
	if _, err := (&app.Backend{}).CreateToken(t.Context(), store.Actor{}, "name", store.TokenRoles()[0], holdfast.MaxDuration+1); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a token: %v", err)
	}
}
