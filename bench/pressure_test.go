package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// A share is that of a round and not of the medians. A system without a figure has a dash.
func TestPressurePageContainsSharesAndRates(t *testing.T) {
	t.Parallel()
	o := scale{Options: load.Defaults(), Bloat: 5_000_000}
	b := &pressureBench{
		report: report{
			when: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), command: "make bench-pressure", cores: 2, goVersion: "go1.26.8", rounds: 3, scale: o,
			systems: []system{holdfastServers, riverSystem}, found: make(results),
		},
		cells: cells(o), failed: []string{"River, bloat, round 2"},
	}
	for round, v := range [][2]float64{{1000, 900}, {2000, 1000}, {4000, 4400}} {
		b.record(round, holdfastServers, b.cells[0], figures{steady: v[0]})
		b.record(round, holdfastServers, b.cells[2], figures{steady: v[1], growth: v[0] / 2})
	}
	b.record(0, riverSystem, b.cells[0], figures{steady: 500})
	page := b.page()
	for _, want := range []string{
		"# Speed under pressure\n\nWritten by `make bench-pressure` on 2026-03-01;", "with 2 cores: go1.26.8.", "medians of 3 rounds",
		"- **bloat**: the steady state after 5,000,000 tasks have run,",
		"\n| growing backlog | 0.90 (0.50 to 1.10) | — |\n",
		"\n|  | **Holdfast** | River |\n|---|---:|---:|\n| clean | 2,000 (1,000 to 4,000) | 500 (500 to 500) |\n| growing backlog | 1,000 (900 to 4,400) | — |\n" +
			"| growth of the backlog | 1,000 (500 to 2,000) | — |\n",
		"\n- River, bloat, round 2\n", "- **River**: 2,000 workers",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestPressureSelectsCells(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]string{
		"": "clean snapshot backlog bursts autovacuum bloat", "bloat,snapshot": "clean snapshot bloat", "clean": "clean",
	} {
		selected, err := selectCells(cells(scale{}), names)
		var got []string
		for _, c := range selected {
			got = append(got, c.name)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("-only %q: %q, %v", names, got, err)
		}
	}
	if _, err := selectCells(cells(scale{}), "bloat,calm"); err == nil || err.Error() != `unknown cell "calm"; see -help` {
		t.Errorf("got %v, want the unknown cell", err)
	}
}

// sink is a queue that accepts tasks and runs none.
type sink struct {
	load.Queue
	stored int
}

func (s *sink) Fill(_ context.Context, payloads [][]byte) error {
	s.stored += len(payloads)
	return nil
}

func TestBacklogGrowsByHalfOfTheCleanRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, found := &sink{}, figures{}
		end, err := growBacklog(t.Context(), system{}, &countingQueue{Queue: stored}, scale{Options: load.Defaults(), Clean: 20_000})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second - time.Millisecond)
		if err := end(found); err != nil {
			t.Fatal(err)
		}
		if stored.stored != 100_000 || formatNumber(found[growth]) != "10,000" {
			t.Errorf("%d tasks were stored in 10 s, %v; want 100,000", stored.stored, found)
		}
	})
}

func TestRunThroughEndsIfNoTaskRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &countingQueue{}
		for range 3 {
			q.count()
		}
		o := scale{Options: load.Defaults(), Bloat: 3}
		if _, err := runThrough(t.Context(), system{}, q, o); err != nil {
			t.Errorf("3 tasks of 3: %v", err)
		}
		o.Bloat = 4
		if _, err := runThrough(t.Context(), system{}, q, o); err == nil || err.Error() != "3 of 4 tasks were run, and none for 30s" {
			t.Errorf("3 tasks of 4: %v", err)
		}
	})
}
