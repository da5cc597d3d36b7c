package plan_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// changeSource replaces the settings of a source, and keeps its progress.
func (w *world) changeSource(name string, change func(*plan.Source)) {
	w.Helper()
	p, _ := w.readSource(name)
	s, _, err := plan.ReadSource(p)
	w.must(err)
	change(&s)
	changed := s.Plan(name, plan.Source{Every: new(plan.Duration(time.Minute))}, w.now)
	changed.Progress = p.Progress
	_, err = w.Client.StepPlan(w.Context(), store.PlanStep{From: p}, func(store.Inserted) (store.Plan, []store.PlanItem) { return changed, nil })
	w.must(err)
}

// payload returns the payload of the stored task with an index.
func (w *world) payload(i int) string {
	w.Helper()
	full, err := w.Task(w.Context(), w.tasks()[i].ID)
	w.must(err)
	return string(full.Payload)
}

// A slice has a copy of the settings that its source had when it was stored. Later changes concern later slices.
func TestSlicesHaveTheSettingsOfTheirSource(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource(plan.DefaultSource, plan.Source{})
	w.createSource("shop", source(func(s *plan.Source) { s.Every = new(plan.Duration(time.Minute)) }))
	next := func(want string) {
		t.Helper()
		w.now = w.now.Add(time.Minute)
		w.step()
		times := w.pulls()
		if got := w.payload(len(w.tasks()) - 1); got != want {
			t.Errorf("payload %s, want %s; pulls %s", got, want, times)
		}
	}
	next(`{"source":"shop","from":"2030-01-01T00:00:00Z","to":"2030-01-01T00:01:00Z"}`)
	w.changeSource(plan.DefaultSource, func(s *plan.Source) {
		s.Timeout, s.RetryStrategy, s.RetryBase = new(plan.Duration(time.Minute)), holdfast.Linear, new(plan.Duration(time.Hour))
	})
	w.changeSource("shop", func(s *plan.Source) {
		s.RetryBase, s.RetryMax = new(plan.Duration(90*time.Second)), new(plan.Duration(0))
	})
	next(`{"source":"shop","from":"2030-01-01T00:01:00Z","to":"2030-01-01T00:02:00Z",` +
		`"settings":{"timeout":"1m0s","retry_strategy":"linear","retry_base":"1m30s","retry_max":"0s"}}`)
	w.changeSource("shop", func(s *plan.Source) { s.SliceSettings = plan.SliceSettings{RetryStrategy: holdfast.Exponential} })
	next(`{"source":"shop","from":"2030-01-01T00:02:00Z","to":"2030-01-01T00:03:00Z",` +
		`"settings":{"timeout":"1m0s","retry_strategy":"exponential","retry_base":"1h0m0s"}}`)
	if got := w.payload(0); got != `{"source":"shop","from":"2030-01-01T00:00:00Z","to":"2030-01-01T00:01:00Z"}` {
		t.Errorf("the first slice has changed: %s", got)
	}

	own := source(func(s *plan.Source) { s.BackfillOf = "shop" })
	if e := own.Effective(plan.Source{SliceSettings: plan.SliceSettings{RetryStrategy: holdfast.Linear}}); e.RetryStrategy != "" {
		t.Errorf("a backfill takes the strategy %s of the default", e.RetryStrategy)
	}
}

func TestSettingsOfSlicesTakePrecedence(t *testing.T) {
	ofType := func() holdfast.TypeSettings {
		return holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), Timeout: time.Hour, Queue: "pulls"}
	}
	list := func(t *holdfast.TypeSettings) {
		t.Policy.Strategy, t.Policy.Delays, t.Policy.Factor, t.Policy.Base = holdfast.List, []time.Duration{time.Hour}, 0, 0
	}
	none := func(*holdfast.TypeSettings) {}
	for name, c := range map[string]struct {
		settings string // the member of the payload
		has      func(t *holdfast.TypeSettings)
		want     func(t *holdfast.TypeSettings)
	}{
		"all": {`{"timeout":"3s","retry_strategy":"linear","retry_base":"1m","retry_max":"0s"}`, none, func(t *holdfast.TypeSettings) {
			t.Timeout, t.Policy.Strategy, t.Policy.Base, t.Policy.Max = 3*time.Second, holdfast.Linear, time.Minute, 0
		}},
		"no timeout":                {`{"timeout":"0s"}`, none, func(t *holdfast.TypeSettings) { t.Timeout = 0 }},
		"at once":                   {`{"retry_strategy":"fixed","retry_base":"0s"}`, none, func(t *holdfast.TypeSettings) { t.Policy.Strategy, t.Policy.Base = holdfast.Fixed, 0 }},
		"no base at once":           {`{"retry_base":"0s","timeout":"3s"}`, none, func(t *holdfast.TypeSettings) { t.Timeout = 3 * time.Second }},
		"a member of a new build":   {`{"timeout":"3s","retry_jitter":0.5}`, none, func(t *holdfast.TypeSettings) { t.Timeout = 3 * time.Second }},
		"a strategy of a new build": {`{"timeout":"3s","retry_strategy":"fibonacci"}`, none, none},
		"no duration":               {`{"timeout":3}`, none, none},
		"a negative one":            {`{"timeout":"-3s"}`, none, none},
		"no object":                 {`7`, none, none},
		"null":                      {`null`, none, none},
		"over a list": {`{"retry_strategy":"exponential"}`, list, func(t *holdfast.TypeSettings) {
			list(t)
			t.Policy.Strategy, t.Policy.Factor, t.Policy.Base = holdfast.Exponential, holdfast.DefaultPolicy().Factor, holdfast.DefaultPolicy().Base
		}},
		"a base that a list ignores": {`{"retry_base":"1m"}`, list, func(t *holdfast.TypeSettings) { list(t); t.Policy.Base = time.Minute }},
	} {
		has, unchanged, want := ofType(), ofType(), ofType()
		c.has(&has)
		c.has(&unchanged)
		c.has(&want)
		c.want(&want)
		payload := json.RawMessage(`{"source":"shop","settings":` + c.settings + `}`)
		same := func(a, b holdfast.TypeSettings) bool { return plainText(a) == plainText(b) }
		if got := plan.TaskSettings(&has, &holdfast.Task{Unique: "slice/shop/a/b", Payload: payload}); !same(*got, want) {
			t.Errorf("%s: settings %s, want %s", name, plainText(*got), plainText(want))
		}
		if !same(has, unchanged) {
			t.Errorf("%s: the settings of the type have changed", name)
		}
		if got := plan.TaskSettings(&has, &holdfast.Task{Unique: "shop", Payload: payload}); got != &has {
			t.Errorf("%s: a task that is no slice has other settings", name)
		}
	}
	settings := ofType()
	task := holdfast.Task{Unique: "order-1", Payload: json.RawMessage(`{"settings":{"timeout":"3s"}}`)}
	if n := testing.AllocsPerRun(100, func() { plan.TaskSettings(&settings, &task) }); n != 0 {
		t.Errorf("%v allocations for a task that is no slice", n)
	}
}

// plainText returns the settings that JSON can have.
func plainText(t holdfast.TypeSettings) string {
	text, err := json.Marshal(store.TypeSettings{Policy: t.Policy, Timeout: t.Timeout})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
