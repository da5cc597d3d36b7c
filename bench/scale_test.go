package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// exampleScale returns a scaleBench with invented figures.
func exampleScale() *scaleBench {
	s := &scaleBench{
		Options: load.Defaults(), rounds: 3, finished: 5_000_000, small: 50_000, large: 1_000_000, drains: 5, tasks: 200_000,
		endurance: 10 * time.Minute, found: make(results),
		samples: []sample{{time.Minute, 30_000, 50}, {2 * time.Minute, 30_500, 52}, {3 * time.Minute, 29_500, 51}},
	}
	for _, v := range []struct {
		condition, measure string
		values             []float64
	}{
		{noFinished, steady, []float64{30_000, 31_000, 29_000}}, {noFinished, cpu, []float64{0.05, 0.05, 0.05}},
		{s.manyFinished(), steady, []float64{29_000, 28_000, 29_100}}, {s.manyFinished(), cpu, []float64{0.054, 0.0552, 0.0556}},
		{backlogCondition(s.small), drain, []float64{40_000, 41_000, 39_000}}, {backlogCondition(s.large), drain, []float64{35_000, 34_000, 36_000}},
		{processesCondition(1), drain, []float64{40_000, 40_000, 40_000}}, {processesCondition(2), drain, []float64{42_000, 42_000, 42_000}},
	} {
		for round, value := range v.values {
			s.found.add(round, v.condition, v.measure, value)
		}
	}
	return s
}

func TestScaleSelectsParts(t *testing.T) {
	t.Parallel()
	for names, want := range map[string][]string{
		"": partNames(), "finished": {"finished"}, "endurance,backlog": {"endurance", "backlog"},
	} {
		selected, err := exampleScale().check(nil, names)
		var got []string
		for _, p := range selected {
			got = append(got, p.name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("-only %q: %q, %v", names, got, err)
		}
	}
}

func TestScaleRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(s *scaleBench) (rest []string, names string){
		`unknown part "workrs"; use finished, backlog, workers, endurance`: func(*scaleBench) ([]string, string) { return nil, "finished,workrs" },
		`unexpected argument "finished"`:                                   func(*scaleBench) ([]string, string) { return []string{"finished"}, "" },
		"0: every number must be at least 1":                               func(s *scaleBench) ([]string, string) { s.drains = 0; return nil, "" },
		"every duration must be longer than 0s":                            func(s *scaleBench) ([]string, string) { s.endurance = 0; return nil, "" },
	} {
		s := exampleScale()
		rest, names := spoil(s)
		if _, err := s.check(rest, names); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A process finds its system and its step by their names.
func TestEverySystemAndStepIsFound(t *testing.T) {
	t.Parallel()
	for _, where := range slices.Concat(systems, places, featurePlaces) {
		for _, st := range slices.Concat(steps, scaleSteps, featureSteps, pressureSteps()) {
			if s, found, err := find(where.name, st.name); err != nil || s.name != where.name || found.name != st.name {
				t.Errorf("%s, %s: found %s, %s, %v", where.name, st.name, s.name, found.name, err)
			}
		}
	}
	if _, _, err := find(empty.name, "steadily"); err == nil {
		t.Error("found a step that does not exist")
	}
}

func TestScaleContinuesAfterAPartFails(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	var did []string
	does := func(name string, err error) part {
		return part{name: name, measure: func(*scaleBench, context.Context) error { did = append(did, name); return err }}
	}
	cleaned := 0
	s := exampleScale()
	err := s.measure(t.Context(), []part{does("a", nil), does("b", full), does("c", nil)}, func(context.Context) error { cleaned++; return nil })
	if !errors.Is(err, full) || err.Error() != "b: the disk is full" {
		t.Errorf("got %v, want the error of part b", err)
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(did, want) || cleaned != 3 || !slices.Equal(s.failed, want[1:2]) {
		t.Errorf("did %q, cleaned %d times, failed %q", did, cleaned, s.failed)
	}

	// A failed cleanup does not discard the figures.
	s = exampleScale()
	if err = s.measure(t.Context(), []part{does("a", nil)}, func(context.Context) error { return full }); !errors.Is(err, full) || len(s.failed) > 0 {
		t.Errorf("got %v, failed %q", err, s.failed)
	}
}

func TestAnInterruptedScaleCleansUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cleaned := false
	err := exampleScale().measure(ctx, []part{
		{name: "a", measure: func(_ *scaleBench, ctx context.Context) error { cancel(); return ctx.Err() }},
		{name: "b", measure: func(*scaleBench, context.Context) error { t.Error("b is measured"); return nil }},
	}, func(context.Context) error { cleaned = true; return nil })
	if !errors.Is(err, context.Canceled) || !cleaned {
		t.Errorf("got %v, cleaned up: %v", err, cleaned)
	}
}

func TestScalePageContainsConditionsAndFigures(t *testing.T) {
	t.Parallel()
	s := exampleScale()
	s.failed = []string{"workers"}
	p := scalePage{
		scaleBench: s, when: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), command: "make bench-scale", cores: 2,
		versions: []string{"go1.26.8", "PostgreSQL 15.18", "RabbitMQ 3.10.8"}, parts: parts,
	}
	page := p.page()
	for _, want := range []string{
		"# How the speed of Holdfast scales\n\nWritten by `make bench-scale` on 2026-03-01;", "with 2 cores: go1.26.8, PostgreSQL 15.18, RabbitMQ 3.10.8.",
		"medians of 3 rounds",
		"\n## Many finished tasks\n\n", "for 10s in each of two stores", `
| the store keeps | steady state/s | least to most | ratio | CPU s per 1,000, steady | least to most | ratio, goal ≤ 1.10 |
|---|---:|---:|---:|---:|---:|---:|
| no finished tasks | 30,000 | 29,000 to 31,000 |  | 0.05 | 0.05 to 0.05 |  |
| 5,000,000 finished tasks | 29,000 | 28,000 to 29,100 | 0.97 | 0.055 | 0.054 to 0.056 | 1.10, met |
`,
		"\n## A large backlog\n\n", "In each round, 5 small backlogs are drained", `
| drained | drain/s | least to most | ratio, goal ≥ 0.90 |
|---|---:|---:|---:|
| 50,000 waiting tasks | 40,000 | 39,000 to 41,000 |  |
| 1,000,000 waiting tasks | 35,000 | 34,000 to 36,000 | 0.88, missed |
`,
		"\n## More workers\n\nThis part failed and has no figures.\n",
		"\n## Time\n\n", "is measured for 10m0s", `
| rate at the end, divided by the median rate | 0.98 |
| best-fitting straight line through the rates: its end, divided by its beginning | 0.98 |
| memory at the end, divided by the memory in the first row below | 1.02 |

| until | steady state/s | worker, MiB |
|---|---:|---:|
| 1m0s | 30,000 | 50 |
| 2m0s | 30,500 | 52 |
| 3m0s | 29,500 | 51 |
`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	p.parts = parts[:1]
	if page := p.page(); strings.Contains(page, "## Time") {
		t.Errorf("the page has a part that was not measured:\n%s", page)
	}
}

func TestComparisonHasDashesForMissingFigures(t *testing.T) {
	t.Parallel()
	const want = `| drained by | drain/s | least to most | ratio, goal ≥ 0.95 |
|---|---:|---:|---:|
| 1 process | 40,000 | 40,000 to 40,000 |  |
| 2 processes | 42,000 | 42,000 to 42,000 | 1.05, met |
| 4 processes | — | — | — |
`
	c := comparison{"drained by", []string{processesCondition(1), processesCondition(2), processesCondition(4)}, []goal{{measure: drain, least: 0.95}}}
	if got := c.table(exampleScale().found); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
