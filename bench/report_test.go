package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// exampleReport returns a report with invented figures.
func exampleReport() report {
	r := report{
		when: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), command: "make bench", cores: 2, goVersion: "go1.26.8",
		servers: []string{"PostgreSQL 15.18", "RabbitMQ 3.10.8"}, versions: map[string]string{"example.com/other": "v1.2.3"},
		rounds: 3, scale: scale{Options: load.Defaults(), Backlog: 100_000},
		systems: []system{
			{name: "Holdfast", ours: true, settings: "With its defaults."},
			{name: "Holdfast embedded", ours: true, settings: "On a file."},
			{name: "other", module: "example.com/other", settings: "With <many> workers."},
			{name: "by hand", settings: "Without delays."},
		},
		found: make(results),
	}
	for _, v := range []struct {
		system, column string
		values         []float64
	}{
		{"Holdfast", steady, []float64{30_400, 28_000, 31_000}}, {"Holdfast", late99, []float64{20}}, {"Holdfast", cpu, []float64{0.06, 0.05}},
		{"Holdfast embedded", steady, []float64{15_000, 16_000, 15_500}},
		{"other", steady, []float64{10_000, 9_000, 10_133}}, {"other", late99, []float64{-120}}, {"other", cpu, []float64{0.22}},
		{"by hand", steady, []float64{60_800, 60_800, 60_800}},
	} {
		for round, value := range v.values {
			r.found.add(round, v.system, v.column, value)
		}
	}
	return r
}

func TestMediansHaveARowForEverySystem(t *testing.T) {
	t.Parallel()
	const want = `|  | steady state/s | CPU s per 1,000, steady | delayed 2,000/s, p99 late, ms |
|---|---:|---:|---:|
| **Holdfast** | 30,400 | 0.055 | 20 |
| **Holdfast embedded** | 15,500 | — | — |
| other | 10,000 | 0.22 | -120 |
| by hand | 60,800 | — | — |
`
	if got := exampleReport().medians(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRatiosAboveOneAreBetter(t *testing.T) {
	t.Parallel()
	// A ratio is the median of the ratios of the rounds, not the ratio of the medians. The delay of "other" has no
	// ratio, because its tasks started early.
	const want = `| Holdfast to | steady state/s | CPU s per 1,000, steady | delayed 2,000/s, p99 late, ms |
|---|---:|---:|---:|
| other | 3.1 | 3.7 | — |
| by hand | 0.5 | — | — |
`
	r := exampleReport()
	if got := r.ratios(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r.systems = r.systems[2:]
	if got := r.ratios(); got != "" {
		t.Errorf("without Holdfast: %q", got)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	var got []string
	for _, group := range groups([]step{{name: "a"}, {name: "b", followsPrevious: true}, {name: "c"}, {name: "d", followsPrevious: true}, {name: "e", followsPrevious: true}}) {
		names := ""
		for _, st := range group {
			names += st.name
		}
		got = append(got, names)
	}
	if want := []string{"ab", "cde"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSpreadIsOverTheRounds(t *testing.T) {
	t.Parallel()
	const want = `| steady state/s | least | median | most |
|---|---:|---:|---:|
| **Holdfast** | 28,000 | 30,400 | 31,000 |
| **Holdfast embedded** | 15,000 | 15,500 | 16,000 |
| other | 9,000 | 10,000 | 10,100 |
| by hand | 60,800 | 60,800 | 60,800 |
`
	if got := exampleReport().spread(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPageContainsConditionsAndSettings(t *testing.T) {
	t.Parallel()
	r := exampleReport()
	page := strings.Join(strings.Fields(r.page("figures.svg")), " ")
	for _, want := range []string{
		"Written by `make bench` on 2026-03-01;", "with 2 cores:", "go1.26.8, PostgreSQL 15.18, RabbitMQ 3.10.8, other v1.2.3.", "medians of 3 rounds",
		"](figures.svg)", "100,000 tasks, run by a worker", "stored for 10s, in calls of 1,000 tasks each", "for 10s, with about 20,000 stored tasks waiting",
		"- **other**: With <many> workers.", "- **Holdfast**: With its defaults.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	r.rounds, r.found = 1, results{"Holdfast": {bulk: {0: 1}}}
	page = r.page("figures.svg")
	for _, unwanted := range []string{"## Variation", "1 rounds"} {
		if strings.Contains(page, unwanted) {
			t.Errorf("the page of one round has %q:\n%s", unwanted, page)
		}
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	r := make(results)
	if _, ok := r.median("a", "b"); ok {
		t.Error("the median of no values: got true, want false")
	}
	for round, test := range []struct{ add, want float64 }{{5, 5}, {1, 3}, {9, 5}, {6, 5.5}} {
		r.add(round, "a", "b", test.add)
		if got, ok := r.median("a", "b"); !ok || got != test.want {
			t.Errorf("after %v: %v, want %v", test.add, got, test.want)
		}
	}
}

func TestFormatNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.0312: "0.031", 0.249: "0.25", 1.509: "1.5", 9.96: "10", 47.776: "48", 99.6: "100", 123.4: "123", 999.6: "1,000",
		7223.7: "7,220", 34567: "34,600", 1234567: "1,230,000", -0.5: "-0.5", -12.34: "-12", -1234: "-1,230",
	} {
		if got := formatNumber(v); got != want {
			t.Errorf("formatNumber(%v) = %q, want %q", v, got, want)
		}
	}
}
