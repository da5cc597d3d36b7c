package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// exampleFeatures returns the page of a measurement with invented figures.
func exampleFeatures() featurePage {
	b := &featureBench{Options: load.Defaults(), rounds: 3, tasks: 100_000, flood: 1_000_000, found: map[string]results{serversPlace: make(results), filePlace: make(results)}}
	for _, v := range []struct {
		place, row, column string
		values             []float64
	}{
		{serversPlace, "plain", perSecond, []float64{40_000, 50_000, 20_000}}, {serversPlace, "limit", perSecond, []float64{10_000, 10_000, 10_000}},
		{serversPlace, "plain", cpuProcess, []float64{15, 15, 15}}, {serversPlace, "limit", cpuProcess, []float64{30, 45, 60}},
		{serversPlace, "plain", cpuServers, []float64{10, 20, 30}}, {serversPlace, "limit", cpuServers, []float64{100, 100, 90}},
		{serversPlace, idleName, first50, []float64{11, 12, 10}}, {serversPlace, floodName, first99, []float64{93, 90, 120}},
		{filePlace, "plain", perSecond, []float64{16_000, 16_000, 16_000}}, {filePlace, "limit", perSecond, []float64{8_000, 8_000, 4_000}},
	} {
		for round, value := range v.values {
			b.found[v.place].add(round, v.row, v.column, value)
		}
	}
	b.steps, b.places = featureSteps, featurePlaces
	return featurePage{featureBench: b, when: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), command: "make bench-features", cores: 2, versions: []string{"go1.26.8", "PostgreSQL 15.18"}}
}

// The ratios are those of the rounds and not of the medians. A feature without figures has no row.
func TestFeaturePageContainsConditionsAndFigures(t *testing.T) {
	t.Parallel()
	p := exampleFeatures()
	page := p.page()
	for _, want := range []string{
		"# What a feature costs its tasks\n\nWritten by `make bench-features` on 2026-03-01;", "with 2 cores: go1.26.8, PostgreSQL 15.18.",
		"medians of 3 rounds, with the least and the most in parentheses.",
		`
## Servers

| feature | tasks/s | ratio | CPU of the process, ratio | CPU of the servers, ratio |
|---|---:|---:|---:|---:|
| none: plain tasks | 40,000 (20,000 to 50,000) |  |  |  |
| limits: one | 10,000 (10,000 to 10,000) | 0.25 (0.20 to 0.50) | 3.00 (2.00 to 4.00) | 5.00 (3.00 to 10.00) |

The processor time for 1,000 plain tasks: 15 (15 to 15) ms of the process, 20 (10 to 30) ms of the servers.
`,
		`
## One file

| feature | tasks/s | ratio | CPU of the process, ratio |
|---|---:|---:|---:|
| none: plain tasks | 16,000 (16,000 to 16,000) |  |  |
| limits: one | 8,000 (4,000 to 8,000) | 0.50 (0.25 to 0.50) | — |
`,
		"a backlog of 1,000,000 tasks", "| Servers | 11 (10 to 12) | — | — | 93 (90 to 120) |\n| One file | — | — | — | — |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	p.steps = p.steps[:1]
	if page := p.page(); strings.Contains(page, "flood") {
		t.Errorf("the page has a part that was not measured:\n%s", page)
	}
}

func TestEachFeatureRunsOnAFile(t *testing.T) {
	t.Parallel()
	for _, st := range featureSteps {
		t.Run(st.name, func(t *testing.T) {
			t.Parallel()
			file := "HOLDFAST_DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "holdfast.db")
			q, err := openFeatures([]string{file, "HOLDFAST_AMQP_URLS=inproc:", "DATABASE_URL=", "AMQP_URL="})(t.Context(), concurrency)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			o := scale{Options: load.Options{Payload: 200, Batch: 10}, Backlog: 30}
			if st.name == idleName || st.name == floodName {
				o.Backlog = 0 // a flood that is large enough takes long
			}
			if found, err := st.run(t.Context(), system{}, q, o); err != nil || found.(figures)[perSecond]+found.(figures)[first50] <= 0 {
				t.Errorf("measured %v, %v", found, err)
			}
		})
	}
}

func TestFeaturesSelectByName(t *testing.T) {
	t.Parallel()
	b := &featureBench{rounds: 1, tasks: 1, flood: 1}
	if err := b.check(nil, "limit", filePlace); err != nil || len(b.steps) != 2 || b.steps[1].name != "limit" || len(b.places) != 1 {
		t.Errorf("selected %+v, %v", b, err)
	}
}

func TestFeaturesRefuseInvalidOptions(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]struct {
		rest         []string
		only, places string
		rounds       int
	}{
		`unknown feature "limts"`:         {only: "limts", places: filePlace, rounds: 1},
		`unknown place "disk"`:            {places: "disk", rounds: 1},
		`unexpected argument "limit"`:     {rest: []string{"limit"}, places: filePlace, rounds: 1},
		"every number must be at least 1": {places: filePlace},
	} {
		b := &featureBench{rounds: o.rounds, tasks: 1, flood: 1}
		if err := b.check(o.rest, o.only, o.places); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
