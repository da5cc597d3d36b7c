package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

type column struct {
	name string
	less bool // is better
}

// columns of the tables, in order.
var columns = []column{
	{steady, false}, {cpu, true}, {bulk, false}, {drain, false}, {singles16, false}, {singles256, false},
	{pickUp50, true}, {pickUp99, true}, {late99, true}, {workerMemory, true},
}

// results are what was measured, by system, column and round, or turn where a round has several.
type results map[string]map[string]map[int]float64

func (r results) add(round int, system, column string, value float64) {
	if r[system] == nil {
		r[system] = make(map[string]map[int]float64)
	}
	if r[system][column] == nil {
		r[system][column] = make(map[int]float64)
	}
	r[system][column][round] = value
}

func (r results) values(system, column string) []float64 {
	return slices.Collect(maps.Values(r[system][column]))
}

func (r results) median(system, column string) (float64, bool) {
	return median(r.values(system, column))
}

// ratio is the median of the rounds' ratios. It is false without a round in which both values are positive: there is no
// proportion to what is missing, nor to a task that comes early.
func (r results) ratio(over, under, column string) (float64, bool) {
	var ratios []float64
	for round, value := range r[over][column] {
		if to := r[under][column][round]; value > 0 && to > 0 {
			ratios = append(ratios, value/to)
		}
	}
	return median(ratios)
}

// median is false if there is no value.
func median(values []float64) (float64, bool) {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	if n == 0 {
		return 0, false
	}
	return (values[(n-1)/2] + values[n/2]) / 2, true
}

// report is what the page says.
type report struct {
	when      time.Time
	command   string // that writes it
	cores     int
	goVersion string
	servers   []string          // with their versions
	versions  map[string]string // of modules
	rounds    int
	scale     scale
	systems   []system
	found     results
}

// page is the report in Markdown, with a chart that is an image in the same folder.
func (r report) page(chart string) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# Benchmarks\n\nWritten by `%s` on %s; run it to have your own.\n\n", r.command, r.when.Format(time.DateOnly))
	fmt.Fprintf(text, "%s\n\n![Bars of the rates](%s)\n\n%s\n", r.conditions(), chart, r.medians())
	fmt.Fprintf(text, "%s\n", r.explained())
	if ratios := r.ratios(); ratios != "" {
		fmt.Fprintf(text, "## Holdfast in proportion\n\nHow many times better it is: its rate in proportion to the peer's, or the peer's time and memory in "+
			"proportion to its own. Less than 1 is worse. Medians of the rounds' proportions, each of measurements within a few minutes.\n\n%s\n", ratios)
	}
	if spread := r.spread(); spread != "" {
		fmt.Fprintf(text, "## How far the rounds differ\n\n%s\n", spread)
	}
	fmt.Fprintf(text, "## How each was run\n\n%s", r.settings())
	return text.String()
}

func (r report) conditions() string {
	with := append([]string{r.goVersion}, r.servers...)
	for _, s := range r.systems {
		if version := r.versions[s.module]; version != "" {
			with = append(with, s.name+" "+version)
		}
	}
	return fmt.Sprintf("Task queues side by side, with their servers on the same machine with %d %s: %s. Payloads are of %d bytes, and a "+
		"handler does nothing. Every measurement is made in a process of its own. Figures are medians of %d %s, in which the systems "+
		"took turns, and turns in being first.", r.cores, plural("core", r.cores), strings.Join(with, ", "), r.scale.Payload, r.rounds, plural("round", r.rounds))
}

func plural(word string, n int) string {
	if n != 1 {
		word += "s"
	}
	return word
}

func (r report) explained() string {
	o := r.scale
	count := func(n int) string { return human(float64(n)) }
	lines := []string{
		fmt.Sprintf("**%s**: tasks that are stored and run at the same time for %s, with about %s in between. The processor time is that of the process "+
			"and of all servers.", steady, o.For, count(o.Ahead)),
		fmt.Sprintf("**%s**: tasks that are stored for %s, %s at a time.", bulk, o.For, count(o.Batch)),
		fmt.Sprintf("**%s**: %s tasks, run by a worker that finds them stored. The memory is what a worker takes at most for them, beyond that of "+
			"the program before it begins, with at most %d tasks at once.", drain, count(o.Backlog), concurrency),
		fmt.Sprintf("**%s** and **%s**: calls that store a task each, for %s, from that many goroutines at once.", singles16, singles256, o.For),
		fmt.Sprintf("**idle pick-up**: from the call that stores a task to its handler, for tasks that come one at a time, 10 to 30 ms apart, %s in each "+
			"of %d turns a round. The figures are medians of the turns'.", count(o.PickUps), stepOf("pickup").turns),
		"**delayed**: how long after its time the handler of a delayed task begins, with 2,000 that come due every second.",
		"—: it has no such thing, or it was not measured.",
	}
	return "- " + strings.Join(lines, "\n- ") + "\n"
}

func (r report) medians() string {
	rows := [][]string{{""}}
	for _, c := range r.columns() {
		rows[0] = append(rows[0], c.name)
	}
	for _, s := range r.systems {
		row := []string{s.title()}
		for _, c := range r.columns() {
			row = append(row, r.cell(s, c.name))
		}
		rows = append(rows, row)
	}
	return table(rows)
}

// columns are those for which there are values.
func (r report) columns() (list []column) {
	for _, c := range columns {
		if slices.ContainsFunc(r.systems, func(s system) bool { return len(r.found[s.name][c.name]) > 0 }) {
			list = append(list, c)
		}
	}
	return list
}

func (r report) cell(s system, column string) string {
	if value, ok := r.found.median(s.name, column); ok {
		return human(value)
	}
	return "—"
}

func (s system) title() string {
	if s.ours {
		return "**" + s.name + "**"
	}
	return s.name
}

// ratios compares with the first of our own systems; it is empty without one, or without peers.
func (r report) ratios() string {
	first := slices.IndexFunc(r.systems, func(s system) bool { return s.ours })
	if first < 0 {
		return ""
	}
	rows := [][]string{{r.systems[first].name + " to"}}
	for _, c := range r.columns() {
		rows[0] = append(rows[0], c.name)
	}
	for _, s := range r.systems {
		if s.ours {
			continue
		}
		row := []string{s.name}
		for _, c := range r.columns() {
			over, under := r.systems[first].name, s.name
			if c.less {
				over, under = under, over
			}
			cell := "—"
			if ratio, ok := r.found.ratio(over, under, c.name); ok {
				cell = human(ratio)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	if len(rows) == 1 {
		return ""
	}
	return table(rows)
}

// spread is empty if there is nothing to compare.
func (r report) spread() string {
	rows := [][]string{{steady, "least", "median", "most"}}
	for _, s := range r.systems {
		if values := r.found.values(s.name, steady); len(values) > 1 {
			rows = append(rows, []string{s.title(), human(slices.Min(values)), r.cell(s, steady), human(slices.Max(values))})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return table(rows)
}

func (r report) settings() string {
	text := &strings.Builder{}
	for _, s := range r.systems {
		fmt.Fprintf(text, "- **%s**: %s\n", s.name, s.settings)
	}
	return text.String()
}

// table is in Markdown. The first row is its head, the first column is of names, all others are of figures.
func table(rows [][]string) string {
	text := &strings.Builder{}
	for i, row := range rows {
		fmt.Fprintf(text, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(text, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
		}
	}
	return text.String()
}

// human rounds to as many digits as mean something: three from a hundred on, two below.
func human(v float64) string {
	digits := 2
	if math.Abs(v) >= 100 {
		digits = 3
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	text := strconv.FormatFloat(math.Abs(rounded), 'f', -1, 64)
	for at := len(text) - 3; math.Abs(rounded) >= 1000 && at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	if rounded < 0 {
		text = "-" + text
	}
	return text
}
