package doctor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

func TestSources(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)
	source := func(name string, through time.Duration, dead int, change func(*plan.Source)) store.Plan {
		spec := plan.Source{Type: "pull", Every: new(plan.Duration(time.Minute)), Lag: new(plan.Duration(time.Minute))}
		change(&spec)
		p := spec.Plan(name, plan.Source{Every: new(plan.Duration(time.Hour))}, now)
		var err error
		if p.Progress, err = json.Marshal(plan.SourceProgress{Next: now, DoneThrough: now.Add(-through), Dead: dead}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := func(*plan.Source) {}
	short := func(s *plan.Source) { s.Every = new(plan.Duration(time.Second)) }
	backfill := func(s *plan.Source) { s.BackfillOf, s.From, s.To = "shop", now.Add(-48*time.Hour), now.Add(-time.Hour) }
	hourly := plan.Source{Every: new(plan.Duration(time.Hour)), Lag: new(plan.Duration(0))}
	defaults := store.Plan{Kind: store.SourceKind, Name: plan.DefaultSource, Progress: []byte("{}")}
	defaults.Spec, _ = json.Marshal(hourly)
	newer := source("n", 0, 0, same)
	newer.Spec = []byte(`{"weekday": "monday"}`)
	const limit = 4 * time.Minute // three slices and the lag
	for name, c := range map[string]struct {
		plans []store.Plan
		want  string // a line for each check
	}{
		"none":    {nil, "ok 0 sources are stored, none is behind, and none has dead slices"},
		"on time": {[]store.Plan{source("a", limit, 0, same)}, "ok 1 source is stored, none is behind, and none has dead slices"},
		"behind": {[]store.Plan{source("a", limit, 0, same), source("b", limit+time.Second, 0, same), source("c", 3*time.Hour, 0, same)},
			"warning 2 sources are behind by up to 2h59m0s: b, c source_behind b"},
		"short slices": {[]store.Plan{source("a", 2*time.Minute, 0, short), source("b", 2*time.Minute+time.Second, 0, short)},
			"warning 1 source is behind by up to 1m1s: b source_behind b"},
		"with the length of the default": {[]store.Plan{source("a", 3*time.Hour, 0, func(s *plan.Source) { s.Every = nil }), defaults},
			"ok 1 source is stored, none is behind, and none has dead slices"},
		"dead slices": {[]store.Plan{source("a", time.Minute, 1, same), source("b", time.Minute, 3, same)},
			"warning the source a has 1 dead slice; others have dead slices, too: b dead_slices a"},
		"a backfill": {[]store.Plan{source("shop.b", 30*time.Hour, 2, backfill)}, "warning the source shop.b has 2 dead slices dead_slices shop"},
		"a newer version": {[]store.Plan{newer},
			"warning a newer version has stored 1 source: n advice start janitors of the newer version; this version makes no steps of these sources"},
	} {
		e := &examination{store: &storeDouble{&world{plans: c.plans}}}
		e.examineSources(t.Context(), now)
		var lines []string
		for _, c := range e.Checks {
			if c.Name != "sources" {
				t.Errorf("%s: the check %s", name, c.Name)
			}
			lines = append(lines, strings.TrimSpace(fmt.Sprint(c.Severity, " ", c.Detail, " ", c.Remedy.Kind, " ", c.Remedy.Arg)))
		}
		if got := strings.Join(lines, "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
