package main

import (
	"fmt"
	"html"
	"strings"
)

// charted lists the measures that have a panel in the chart. A row of the chart has two panels.
var charted = []string{steady, drain, bulk, singles256}

// Sizes in the chart, in pixels.
const (
	chartMargin  = 16
	panelWidth   = 420
	panelGap     = 24
	panelHead    = 30
	rowHeight    = 24
	barHeight    = 14
	barLeft      = 150 // left end of the bars
	maxBarWidth  = 200 // the values are to the right of the bar
	textBaseline = 11  // below the top of a bar
)

// chartStyle has colors for light and dark mode. It also has a background, because the background of the page may
// differ from the mode that the browser reports.
const chartStyle = `<style>
.back { fill: #ffffff } .head, .name, .value { fill: #1f2328 } .bar { fill: #9aa4af } .ours { fill: #0969da }
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif } .head, .own { font-weight: 600 } .head { font-size: 13px }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .head, .name, .value { fill: #e6edf3 } .bar { fill: #6e7681 } .ours { fill: #4493f8 }
}
</style>
`

// chart returns the report as an SVG image. Each measure with values has a panel, and each panel has a bar for each
// system.
func (r report) chart() string {
	var panels []string
	for _, measure := range charted {
		if r.most(measure) > 0 {
			panels = append(panels, measure)
		}
	}
	panelHeight := panelHead + rowHeight*len(r.systems)
	lines := (len(panels) + 1) / 2
	width := 2*chartMargin + 2*panelWidth + panelGap
	height := 2*chartMargin + lines*panelHeight + max(0, lines-1)*panelGap
	svg := &strings.Builder{}
	fmt.Fprintf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n", width, height, width, height)
	fmt.Fprintf(svg, "<title>Tasks per second of Holdfast and other task queues</title>\n%s", chartStyle)
	fmt.Fprintf(svg, "<rect class=\"back\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", width, height)
	for i, measure := range panels {
		x := chartMargin + i%2*(panelWidth+panelGap)
		y := chartMargin + i/2*(panelHeight+panelGap)
		fmt.Fprintf(svg, "<g transform=\"translate(%d %d)\">\n%s</g>\n", x, y, r.panel(measure))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// most returns the highest median of a measure.
func (r report) most(measure string) (most float64) {
	for _, s := range r.systems {
		value, _ := r.found.median(s.name, measure)
		most = max(most, value)
	}
	return most
}

// panel returns the panel of a measure, which must have a positive value.
func (r report) panel(measure string) string {
	svg := &strings.Builder{}
	fmt.Fprintf(svg, "<text class=\"head\" x=\"%d\" y=\"14\">%s</text>\n", barLeft, html.EscapeString(measure))
	most := r.most(measure)
	for i, s := range r.systems {
		bar, name := "bar", "name"
		if s.ours {
			bar, name = "bar ours", "name own"
		}
		y := panelHead + i*rowHeight
		value, _ := r.found.median(s.name, measure)
		width := value / most * maxBarWidth
		fmt.Fprintf(svg, "<text class=\"%s\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", name, barLeft-8, y+textBaseline, html.EscapeString(s.name))
		fmt.Fprintf(svg, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", bar, barLeft, y, width, barHeight)
		fmt.Fprintf(svg, "<text class=\"value\" x=\"%.1f\" y=\"%d\">%s</text>\n", barLeft+width+6, y+textBaseline, r.cell(s, measure))
	}
	return svg.String()
}
