package console

import (
	"context"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// charts is the view of the template charts: the figures of a queue, or of all queues, over time.
type charts struct {
	Range string // "1h" or "1d"
	// Charts has the drawings, and Table the same numbers.
	Charts, Table template.HTML
	Gaps          bool // some steps are unknown
	Flow          flow
}

// flow is what the figures of the last minutes and of the last day say. A nil pointer is unknown.
type flow struct {
	In, Out   *float64 // tasks per second; In is an estimate
	Failing   *float64 // the share of attempts that failed
	Recovered *int64   // tasks taken back from ended workers in the last day
	Fenced    *int64   // the number of these ended workers; set only for the sum of all queues
}

// chartRanges are the ranges of charts. The first one is the default.
var chartRanges = []chartRange{
	{"1h", time.Hour, time.Minute, "60 min ago", "30 min ago"},
	{"1d", 24 * time.Hour, 10 * time.Minute, "24 h ago", "12 h ago"},
}

// chartRange is a time of which charts can be drawn.
type chartRange struct {
	name         string
	last, step   time.Duration
	from, middle string // labels
}

// rateMinutes is the number of full minutes of which flow has the mean.
const rateMinutes = 5

// maxChartSets is the maximum number of queues whose charts are kept.
const maxChartSets = 100

// chartCache has the charts of the present minute, which all viewers share.
type chartCache struct {
	mu   sync.Mutex
	sets map[string]*chartSet // by queue
}

// chartSet is the charts of a queue.
type chartSet struct {
	mu     sync.Mutex // held while the charts are computed
	minute time.Time
	ranges map[string]charts
}

// charts returns the charts of a queue, or of store.AllQueues. now is the time of the store. name is a range; another
// text means the default. The charts end with the last full minute, so they are computed once a minute.
func (c *Console) charts(ctx context.Context, now time.Time, queue, name string) (charts, error) {
	set := c.chartCache.of(queue)
	set.mu.Lock()
	defer set.mu.Unlock()
	if minute := now.Truncate(time.Minute); !set.minute.Equal(minute) {
		ranges, err := c.readCharts(ctx, minute, queue)
		if err != nil {
			return charts{}, err
		}
		set.minute, set.ranges = minute, ranges
	}
	if found, known := set.ranges[name]; known {
		return found, nil
	}
	return set.ranges[chartRanges[0].name], nil
}

func (c *chartCache) of(queue string) *chartSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	set, known := c.sets[queue]
	if !known {
		if c.sets == nil || len(c.sets) >= maxChartSets {
			c.sets = make(map[string]*chartSet)
		}
		set = new(chartSet)
		c.sets[queue] = set
	}
	return set
}

// readCharts reads the figures of all ranges, and draws them.
func (c *Console) readCharts(ctx context.Context, minute time.Time, queue string) (map[string]charts, error) {
	ranges := make(map[string]charts)
	var now flow
	for _, r := range chartRanges {
		points, err := c.b.Store.ListFigures(ctx, queue, r.last+r.step, r.step)
		if err != nil {
			return nil, err
		}
		steps := stepsOf(points, r, minute)
		if r.step == time.Minute {
			now.rate(steps)
		}
		if r.last == 24*time.Hour {
			now.recovered(points, queue)
		}
		view := charts{Range: r.name}
		view.Charts, view.Table = drawCharts(steps, r)
		view.Gaps = slices.ContainsFunc(steps, func(s chartStep) bool { return math.IsNaN(s.ready) })
		ranges[r.name] = view
	}
	for name, view := range ranges {
		view.Flow = now
		ranges[name] = view
	}
	return ranges, nil
}

// chartStep is a step of a chart. Its numbers are NaN if they are unknown.
type chartStep struct {
	at                      time.Time
	succeeded, failed, died float64 // per minute
	ready, running, oldest  float64 // oldest is in seconds
}

// stepsOf returns the steps of a range that have ended at the beginning of minute, oldest first.
func stepsOf(points []store.FigurePoint, r chartRange, minute time.Time) []chartStep {
	end := minute.Truncate(r.step)
	steps := make([]chartStep, r.last/r.step)
	for i := range steps {
		at := end.Add(time.Duration(i-len(steps)) * r.step)
		steps[i] = chartStep{at, unknown, unknown, unknown, unknown, unknown, unknown}
	}
	for _, p := range points {
		i := int(p.At.Sub(end)/r.step) + len(steps)
		if i < 0 || i >= len(steps) || !p.At.Before(end) {
			continue
		}
		perMinute := func(kind store.FigureKind) float64 { return float64(p.Figures[kind]) / float64(p.Minutes) }
		level := func(kind store.FigureKind) float64 {
			if n, known := p.Figures[kind]; known {
				return float64(n)
			}
			return unknown
		}
		steps[i] = chartStep{p.At, perMinute(store.FigureSucceeded), perMinute(store.FigureFailed), perMinute(store.FigureDied),
			level(store.FigureReady), level(store.FigureRunning), level(store.FigureOldest) / 1000}
	}
	return steps
}

// rate sets the rates of the last minutes. What came in is what went out, and what the number of open tasks has grown by.
func (f *flow) rate(minutes []chartStep) {
	last := minutes[max(0, len(minutes)-rateMinutes-1):]
	for len(last) > 0 && math.IsNaN(last[len(last)-1].ready) {
		last = last[:len(last)-1]
	}
	var succeeded, failed, died float64
	first, n := -1, 0
	for i, m := range last {
		switch {
		case math.IsNaN(m.ready): // only the minutes after the gap are used
			first, n, succeeded, failed, died = -1, 0, 0, 0, 0
		case first < 0:
			first = i
		default:
			n++
			succeeded, failed, died = succeeded+m.succeeded, failed+m.failed, died+m.died
		}
	}
	if n == 0 {
		return
	}
	seconds := float64(n) * 60
	from, to := last[first], last[len(last)-1]
	out := (succeeded + died) / seconds
	in := max(0, out+(to.ready+to.running-from.ready-from.running)/seconds)
	f.Out, f.In = &out, &in
	if succeeded+failed > 0 {
		failing := failed / (succeeded + failed)
		f.Failing = &failing
	}
}

// recovered sets the recoveries of the points.
func (f *flow) recovered(points []store.FigurePoint, queue string) {
	if len(points) == 0 {
		return
	}
	var tasks, workers int64
	for _, p := range points {
		tasks, workers = tasks+p.Figures[store.FigureRecovered], workers+p.Figures[store.FigureFenced]
	}
	f.Recovered = &tasks
	if queue == store.AllQueues {
		f.Fenced = &workers
	}
}

// drawCharts returns the drawings of the steps, and a table of their numbers, the newest first.
func drawCharts(steps []chartStep, r chartRange) (drawings, table template.HTML) {
	line := func(name, class string, area bool, of func(chartStep) float64) chartLine {
		values := make([]float64, len(steps))
		for i, s := range steps {
			values[i] = of(s)
		}
		return chartLine{name, class, area, values}
	}
	ago := func(i int) string { return duration(time.Duration(len(steps)-i)*r.step) + " ago" }
	for _, c := range []chart{
		{title: "Attempts per minute", format: formatCount, top: topCount, lines: []chartLine{
			line("succeeded", "done", true, func(s chartStep) float64 { return s.succeeded }),
			line("failed", "failed", false, func(s chartStep) float64 { return s.failed }),
		}},
		{title: "Open tasks", format: formatCount, top: topCount, lines: []chartLine{
			line("ready", "ready", true, func(s chartStep) float64 { return s.ready }),
			line("running", "running", false, func(s chartStep) float64 { return s.running }),
		}},
		{title: "Oldest due task", format: formatSeconds, top: topSeconds, lines: []chartLine{
			line("waits", "oldest", true, func(s chartStep) float64 { return s.oldest }),
		}},
	} {
		c.from, c.middle, c.ago = r.from, r.middle, ago
		drawings += c.html()
	}
	var b strings.Builder
	b.WriteString(`<table class="numbers"><thead><tr><th>UTC<th>Succeeded<th>Failed<th>Ready<th>Running<th>Oldest due<tbody>`)
	cell := func(format func(float64) string, v float64) string {
		if math.IsNaN(v) {
			return "–"
		}
		return text(format(v))
	}
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		fmt.Fprintf(&b, "<tr><td>%s<td>%s<td>%s<td>%s<td>%s<td>%s", s.at.UTC().Format("15:04"), cell(formatCount, s.succeeded), cell(formatCount, s.failed),
			cell(formatCount, s.ready), cell(formatCount, s.running), cell(formatSeconds, s.oldest))
	}
	b.WriteString("</table>")
	return drawings, template.HTML(b.String())
}
