package console

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// drawn returns the drawing of a chart with some lines, after checks that hold for all charts.
func drawn(t *testing.T, lines ...chartLine) string {
	t.Helper()
	c := chart{
		title: `<script>"'&`, lines: lines, format: formatCount, top: topCount, from: "60 <min> ago", middle: "30 min ago",
		ago: func(int) string { return "<ago>" },
	}
	html := string(c.html())
	for _, part := range []string{"<script", "<min>", "<ago>", "style=", "NaN", "Inf", "e+"} {
		if strings.Contains(html, part) {
			t.Errorf("the chart has %q: %s", part, html)
		}
	}
	decoder := xml.NewDecoder(strings.NewReader(html))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return html
		} else if err != nil {
			t.Fatalf("%v: %s", err, html)
		}
	}
}

// paths returns the line, or else the dots, and the area of the first line of a drawing.
func paths(html string) (stroke, area string) {
	for _, m := range regexp.MustCompile(`<path class="(line|dot|area)[^"]*" d="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		if m[1] != "area" && stroke == "" {
			stroke = m[2]
		} else if m[1] == "area" && area == "" {
			area = m[2]
		}
	}
	return stroke, area
}

func TestChart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values       []float64
		stroke, area string
		gaps         int
		has          []string
	}{
		"points":       {[]float64{0, 1, 2}, "M0 100L1 50L2 0", "M0 100L0 100L1 50L2 0L2 100Z", 0, []string{"line 2</span>", "line now 2, highest 2 ", ">2</span><span>1</span><span>0<"}},
		"a gap":        {[]float64{2, 2, unknown, 1, 1}, "M0 0L1 0M3 50L4 50", "M0 100L0 0L1 0L1 100ZM3 100L3 50L4 50L4 100Z", 1, []string{`x="1" y="0" width="2"`}},
		"a dot":        {[]float64{unknown, 2, unknown}, "M1 0h0", "", 2, []string{"line –</span>", "line now –, highest 2 "}},
		"gaps at ends": {[]float64{unknown, 1, 1, unknown}, "M1 50L2 50", "M1 100L1 50L2 50L2 100Z", 2, nil},
		"one point":    {[]float64{1}, "M0 50h0", "", 0, []string{`viewBox="0 0 1 100"`, `class="dot ready"`}},
		"zeros":        {[]float64{0, 0}, "M0 100L1 100", "M0 100L0 100L1 100L1 100Z", 0, []string{"line now 0, highest 0"}},
		"unknown":      {[]float64{unknown, unknown}, "", "", 1, []string{"line unknown", "line –"}},
		"no points":    {nil, "", "", 0, []string{"line unknown"}},
		"huge":         {[]float64{math.MaxInt64, math.MaxInt64 / 2, 0}, "M0 7.8L1 53.9L2 100", "M0 100L0 7.8L1 53.9L2 100L2 100Z", 0, []string{"line 0<", "9223372T"}},
	} {
		html := drawn(t, chartLine{"line", "ready", true, c.values})
		stroke, area := paths(html)
		if stroke != c.stroke || area != c.area {
			t.Errorf("%s: the line is %q, want %q; the area is %q, want %q", name, stroke, c.stroke, area, c.area)
		}
		if got := strings.Count(html, `class="gap"`); got != c.gaps {
			t.Errorf("%s: %d gaps, want %d", name, got, c.gaps)
		}
		for _, part := range c.has {
			if !strings.Contains(html, part) {
				t.Errorf("%s: the chart lacks %q: %s", name, part, html)
			}
		}
	}
	two := drawn(t, chartLine{"one", "ready", true, []float64{1, 3}}, chartLine{"<two>", "running", false, []float64{4, 2}})
	if strings.Count(two, `class="line`) != 2 || strings.Count(two, `class="area`) != 1 || strings.Contains(two, "<two>") || !strings.Contains(two, "&lt;two&gt; now 2, highest 4 ") {
		t.Errorf("two lines: %s", two)
	}
	drawn(t)
}

func TestChartAxes(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]float64{0: 2, 1: 2, 2: 2, 2.1: 4, 5: 10, 11: 20, 99: 100, 101: 200, 4001: 10000, 1e9 + 1: 2e9} {
		if got := topCount(n); got != want {
			t.Errorf("the top of %g is %g, want %g", n, got, want)
		}
	}
	for n, want := range map[float64]float64{0: 1, 1: 1, 1.5: 2, 3: 10, 61: 120, 3601: 7200, 86400: 86400, 86401: 2 * 86400, 30 * 86400: 40 * 86400} {
		if got := topSeconds(n); got != want {
			t.Errorf("the top of %g seconds is %g, want %g", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0", 0.25: "0.2", 1.5: "1.5", 2: "2", 9.96: "10", 12345: "12.3k"} {
		if got := formatCount(n); got != want {
			t.Errorf("%g is %q, want %q", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0 s", 0.5: "500 ms", 60: "1 min", 1e300: "> 292 years"} {
		if got := formatSeconds(n); got != want {
			t.Errorf("%g seconds are %q, want %q", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0/s", 0.01: "0.6/min", 2: "2/s", 310.4: "310/s"} {
		if got := rate(&n); got != want {
			t.Errorf("%g per second is %q, want %q", n, got, want)
		}
	}
}

// minutesOf returns the steps of an hour that ends now. The last values are of the last minutes.
func minutesOf(values ...chartStep) []chartStep {
	end := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	steps := stepsOf(nil, chartRanges[0], end)
	for i, v := range values {
		v.at = steps[len(steps)-len(values)+i].at
		steps[len(steps)-len(values)+i] = v
	}
	return steps
}

func TestRates(t *testing.T) {
	t.Parallel()
	gap := chartStep{ready: unknown, succeeded: unknown, failed: unknown, died: unknown, running: unknown}
	busy := func(succeeded, failed, died, ready float64) chartStep {
		return chartStep{succeeded: succeeded, failed: failed, died: died, ready: ready, running: 10}
	}
	for name, c := range map[string]struct {
		steps            []chartStep
		in, out, failing string
	}{
		"nothing":            {minutesOf(), "–", "–", "–"},
		"one minute":         {minutesOf(busy(60, 0, 0, 0)), "–", "–", "–"},
		"idle":               {minutesOf(busy(0, 0, 0, 0), busy(0, 0, 0, 0)), "0/s", "0/s", "–"},
		"steady":             {minutesOf(busy(1, 1, 1, 5), busy(60, 0, 0, 5), busy(60, 40, 0, 5)), "1/s", "1/s", "25.0 %"},
		"growing":            {minutesOf(busy(1, 1, 1, 0), busy(60, 60, 60, 600)), "12/s", "2/s", "50.0 %"},
		"drained by a purge": {minutesOf(busy(0, 0, 0, 6000), busy(60, 0, 0, 0)), "0/s", "1/s", "0.0 %"},
		"a gap":              {minutesOf(busy(9, 9, 9, 900), busy(9, 9, 9, 900), gap, busy(9, 9, 9, 0), busy(60, 0, 0, 0)), "1/s", "1/s", "0.0 %"},
		"the last is late":   {minutesOf(busy(9, 9, 9, 0), busy(60, 0, 0, 0), gap), "1/s", "1/s", "0.0 %"},
		"only old minutes":   {minutesOf(busy(9, 9, 9, 0), busy(60, 0, 0, 0), gap, gap, gap, gap, gap, gap), "–", "–", "–"},
	} {
		var f flow
		f.rate(c.steps)
		failing := "–"
		if f.Failing != nil {
			failing = share(*f.Failing)
		}
		if in, out := rate(f.In), rate(f.Out); in != c.in || out != c.out || failing != c.failing {
			t.Errorf("%s: in %s, out %s, failing %s; want %s, %s, %s", name, in, out, failing, c.in, c.out, c.failing)
		}
	}
}

func TestStepsOfCharts(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 12, 7, 0, 0, time.UTC)
	day := chartRanges[1]
	point := func(at time.Time, minutes int, figures map[store.FigureKind]int64) store.FigurePoint {
		return store.FigurePoint{At: at, Minutes: minutes, Figures: figures}
	}
	end := now.Truncate(day.step)
	steps := stepsOf([]store.FigurePoint{
		point(end.Add(-25*time.Hour), 1, map[store.FigureKind]int64{store.FigureReady: 1}),
		point(end.Add(-24*time.Hour), 10, map[store.FigureKind]int64{store.FigureSucceeded: 100, store.FigureReady: 7, store.FigureOldest: 2500}),
		point(end.Add(-day.step), 4, map[store.FigureKind]int64{store.FigureSucceeded: 100, store.FigureFailed: 2}),
		point(end, 7, map[store.FigureKind]int64{store.FigureReady: 9}), // the step that has not ended
	}, day, now)
	if len(steps) != 144 || !steps[0].at.Equal(end.Add(-24*time.Hour)) || !steps[143].at.Equal(end.Add(-day.step)) {
		t.Fatalf("%d steps from %s to %s", len(steps), steps[0].at, steps[len(steps)-1].at)
	}
	if s := steps[0]; s.succeeded != 10 || s.failed != 0 || s.ready != 7 || s.oldest != 2.5 || !math.IsNaN(s.running) {
		t.Errorf("the first step is %+v", s)
	}
	if s := steps[143]; s.succeeded != 25 || s.failed != 0.5 || !math.IsNaN(s.ready) || !math.IsNaN(s.oldest) {
		t.Errorf("the last step is %+v", s)
	}
	for i := 1; i < 143; i++ {
		if !math.IsNaN(steps[i].succeeded) || !math.IsNaN(steps[i].ready) {
			t.Errorf("step %d is %+v", i, steps[i])
		}
	}
	_, table := drawCharts(steps, day)
	if rows := strings.Count(string(table), "<tr><td>"); rows != 144 || !strings.Contains(string(table), "<tr><td>12:00<td>10<td>0<td>7<td>–<td>2.5 s</table>") {
		t.Errorf("the table has %d rows: %s", rows, table)
	}
}
