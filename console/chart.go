package console

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// chart is a drawing of some lines over the same steps of time. Its labels are HTML beside the drawing, so that they keep
// their size when the drawing is stretched to the width of the page. The drawing has attributes and classes only, because
// the policy of the console forbids styles.
type chart struct {
	title  string
	lines  []chartLine
	format func(float64) string   // of a value
	top    func(float64) float64  // the round number at the top of the axis for the highest value
	from   string                 // the label at the left end of the time axis
	middle string                 // the label in its middle
	ago    func(index int) string // when a step was, in words
}

// chartLine is a line of a chart.
type chartLine struct {
	name  string
	class string
	area  bool // fill the area below
	// values has a value for each step. NaN is unknown, and leaves a gap.
	values []float64
}

var unknown = math.NaN()

// html returns the chart as a figure.
func (c *chart) html() template.HTML {
	highest, steps := 0.0, 0
	for _, l := range c.lines {
		steps = max(steps, len(l.values))
		for _, v := range l.values {
			if !math.IsNaN(v) {
				highest = max(highest, v)
			}
		}
	}
	top := c.top(highest)
	var b strings.Builder
	fmt.Fprintf(&b, `<figure class="chart"><figcaption><b>%s</b>`, text(c.title))
	for _, l := range c.lines {
		fmt.Fprintf(&b, ` <span class="key %s">%s %s</span>`, text(l.class), text(l.name), text(c.word(latest(l.values))))
	}
	fmt.Fprintf(&b, `</figcaption><div class="plot"><div class="y" aria-hidden="true"><span>%s</span><span>%s</span><span>%s</span></div>`,
		c.axis(top), c.axis(top/2), c.axis(0))
	width := max(steps-1, 1)
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d 100" preserveAspectRatio="none" role="img"><title>%s</title>`, width, text(c.summary()))
	for _, gap := range c.gaps(steps) {
		fmt.Fprintf(&b, `<rect class="gap" x="%d" y="0" width="%d" height="100"/>`, gap[0], gap[1]-gap[0])
	}
	fmt.Fprintf(&b, `<path class="grid" d="M0 0H%d M0 50H%[1]d M0 100H%[1]d"/>`, width)
	for _, l := range c.lines {
		stroke, area, dots := l.paths(top)
		if !l.area {
			area = ""
		}
		for _, path := range [][2]string{{"area", area}, {"line", stroke}, {"dot", dots}} {
			if path[1] != "" {
				fmt.Fprintf(&b, `<path class="%s %s" d="%s"/>`, path[0], text(l.class), path[1])
			}
		}
	}
	fmt.Fprintf(&b, `</svg><div class="x" aria-hidden="true"><span>%s</span><span>%s</span><span>now</span></div></div></figure>`, text(c.from), text(c.middle))
	return template.HTML(b.String())
}

// text returns a text as HTML.
func text(s string) string { return template.HTMLEscapeString(s) }

// word returns a value, or a dash if it is unknown.
func (c *chart) word(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return c.format(v)
}

// latest returns the last value.
func latest(values []float64) float64 {
	if len(values) == 0 {
		return unknown
	}
	return values[len(values)-1]
}

// summary returns the chart in words.
func (c *chart) summary() string {
	parts := make([]string, len(c.lines))
	for i, l := range c.lines {
		at := -1
		for j, v := range l.values {
			if !math.IsNaN(v) && (at < 0 || v >= l.values[at]) {
				at = j
			}
		}
		if parts[i] = l.name + " unknown"; at >= 0 {
			parts[i] = fmt.Sprintf("%s now %s, highest %s %s", l.name, c.word(latest(l.values)), c.format(l.values[at]), c.ago(at))
		}
	}
	return c.title + ": " + strings.Join(parts, "; ")
}

// gaps returns the ranges of steps between which the first line has no value.
func (c *chart) gaps(steps int) (found [][2]int) {
	if len(c.lines) == 0 || steps < 2 {
		return nil
	}
	values, start := c.lines[0].values, -1
	for i, v := range values {
		switch missing := math.IsNaN(v); {
		case missing && start < 0:
			start = max(i-1, 0)
		case !missing && start >= 0:
			found, start = append(found, [2]int{start, i}), -1
		}
	}
	if start >= 0 {
		found = append(found, [2]int{start, len(values) - 1})
	}
	return found
}

// paths returns the line and the area below it, in a box with the height 100. A value between two gaps is a dot.
func (l *chartLine) paths(top float64) (stroke, area, dots string) {
	for first := 0; first < len(l.values); first++ {
		var points []string
		for i := first; i < len(l.values) && !math.IsNaN(l.values[i]); i++ {
			y := math.Round(1000-1000*min(max(l.values[i]/top, 0), 1)) / 10
			points = append(points, fmt.Sprintf("%d %s", i, strconv.FormatFloat(y, 'f', -1, 64)))
		}
		last, part := first+len(points)-1, strings.Join(points, "L")
		switch len(points) {
		case 0:
			continue
		case 1:
			dots += "M" + part + "h0"
		default:
			stroke += "M" + part
			area += fmt.Sprintf("M%d 100L%sL%d 100Z", first, part, last)
		}
		first = last
	}
	return stroke, area, dots
}

// topCount returns a round number that is at least n and at least 2. Half of it is a whole number.
func topCount(n float64) float64 {
	for unit := 1.0; ; unit *= 10 {
		for _, m := range []float64{2, 4, 10} {
			if n <= m*unit || unit > 1e300 {
				return m * unit
			}
		}
	}
}

// tops are the ends of an axis of durations, in seconds.
var tops = []float64{1, 2, 10, 20, 60, 120, 600, 1200, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}

// topSeconds returns a round duration in seconds that is at least n seconds.
func topSeconds(n float64) float64 {
	for _, top := range tops {
		if n <= top {
			return top
		}
	}
	return topCount(n/86400) * 86400
}

// axis returns the label of a value on the axis.
func (c *chart) axis(v float64) string { return text(strings.Replace(c.format(v), ".0", "", 1)) }

func formatCount(n float64) string {
	if n > 0 && n < 9.95 && n != math.Trunc(n) {
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return count(n)
}

func formatSeconds(n float64) string {
	if n >= math.MaxInt64/float64(time.Second) {
		return "> 292 years"
	}
	return duration(time.Duration(n * float64(time.Second)))
}
