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

// column is a column of the tables.
type column struct {
	name          string
	lowerIsBetter bool
}

// columns lists the columns of the tables in their order.
var columns = []column{
	{steady, false}, {cpu, true}, {bulk, false}, {drain, false}, {singles16, false}, {singles256, false},
	{pickUp50, true}, {pickUp99, true}, {late99, true}, {workerMemory, true},
}

// results contains the measured values by system, column and turn. A round has one or more turns.
type results map[string]map[string]map[int]float64

func (r results) add(turn int, system, column string, value float64) {
	if r[system] == nil {
		r[system] = make(map[string]map[int]float64)
	}
	if r[system][column] == nil {
		r[system][column] = make(map[int]float64)
	}
	r[system][column][turn] = value
}

func (r results) values(system, column string) []float64 {
	return slices.Collect(maps.Values(r[system][column]))
}

func (r results) median(system, column string) (float64, bool) {
	return median(r.values(system, column))
}

// ratio returns the median of the ratios of all turns, and false if there are none; see turns.
func (r results) ratio(over, under, column string) (float64, bool) {
	return median(r.turns(over, under, column))
}

// turns returns the ratio of each turn: the value of the system over, divided by the value of the system under. It
// ignores turns in which a value is missing or not positive; the delay of a task that starts early is negative.
func (r results) turns(over, under, column string) (ratios []float64) {
	for turn, value := range r[over][column] {
		if to := r[under][column][turn]; value > 0 && to > 0 {
			ratios = append(ratios, value/to)
		}
	}
	return ratios
}

// median returns the median of the values, and false if there are none.
func median(values []float64) (float64, bool) {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	if n == 0 {
		return 0, false
	}
	return (values[(n-1)/2] + values[n/2]) / 2, true
}

// report is the data of the page.
type report struct {
	when      time.Time
	command   string // the command that writes the page
	cores     int
	goVersion string
	servers   []string          // names and versions
	versions  map[string]string // versions of modules
	rounds    int
	scale     scale
	systems   []system
	found     results
}

// page returns the report in Markdown. chart is the name of an image in the same folder.
func (r report) page(chart string) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# Benchmarks\n\nWritten by `%s` on %s; run it to get your own figures.\n\n", r.command, r.when.Format(time.DateOnly))
	fmt.Fprintf(text, "%s\n\n![Bars of the rates](%s)\n\n%s\n", r.conditions(), chart, r.medians())
	fmt.Fprintf(text, "%s\n", r.legend())
	if ratios := r.ratios(); ratios != "" {
		fmt.Fprintf(text, "## Ratios\n\nHow many times better Holdfast is: its rate divided by the rate of the other system, or the other system's time "+
			"or memory divided by its own. Less than 1 is worse. The figures are medians of the ratios of all rounds. The two values of a ratio were "+
			"measured within a few minutes.\n\n%s\n", ratios)
	}
	if spread := r.spread(); spread != "" {
		fmt.Fprintf(text, "## Variation between rounds\n\n%s\n", spread)
	}
	fmt.Fprintf(text, "## Settings of each system\n\n%s", r.settings())
	return text.String()
}

// conditions describes where and how the figures were measured.
func (r report) conditions() string {
	with := append([]string{r.goVersion}, r.servers...)
	for _, s := range r.systems {
		if version := r.versions[s.module]; version != "" {
			with = append(with, s.name+" "+version)
		}
	}
	return fmt.Sprintf("This page compares task queues. All servers run on one machine with %d %s: %s. A payload has %d bytes, and a "+
		"handler does nothing. Each measurement runs in a new process. The figures are medians of %d %s. The order of the systems alternates "+
		"from round to round.", r.cores, plural("core", r.cores), strings.Join(with, ", "), r.scale.Payload, r.rounds, plural("round", r.rounds))
}

// plural returns the plural of word, unless n is 1.
func plural(word string, n int) string {
	if n != 1 {
		word += "s"
	}
	return word
}

// legend explains the columns.
func (r report) legend() string {
	o := r.scale
	count := func(n int) string { return formatNumber(float64(n)) }
	lines := []string{
		fmt.Sprintf("**%s**: tasks that are stored and run at the same time for %s, with about %s stored tasks waiting. The processor time is that of "+
			"the process and of all servers.", steady, o.For, count(o.Ahead)),
		fmt.Sprintf("**%s**: tasks stored for %s, in calls of %s tasks each.", bulk, o.For, count(o.Batch)),
		fmt.Sprintf("**%s**: %s tasks, run by a worker that starts after they are stored. The memory is the peak of the worker process above its "+
			"memory at the start, with at most %d tasks at once.", drain, count(o.Backlog), concurrency),
		fmt.Sprintf("**%s** and **%s**: calls that store one task each, for %s, from 16 or 256 goroutines at once.", singles16, singles256, o.For),
		fmt.Sprintf("**idle pick-up**: time from the call that stores a task to the start of its handler. The tasks are stored one at a time, 10 to "+
			"30 ms apart, %s in each of the %d turns of a round. The figures are medians of all turns.", count(o.PickUps), stepOf("pickup").turns),
		"**delayed**: time from when a delayed task is due to the start of its handler, with 2,000 tasks due each second.",
		"—: not supported or not measured.",
		"No task has a key, a topic, a limit or another feature. What each costs the tasks that use it is in [feature cost](feature-cost.md).",
	}
	return "- " + strings.Join(lines, "\n- ") + "\n"
}

// medians returns the table of the medians, with a row for each system.
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

// columns returns the columns that have a value for at least one system.
func (r report) columns() (list []column) {
	for _, c := range columns {
		if slices.ContainsFunc(r.systems, func(s system) bool { return len(r.found[s.name][c.name]) > 0 }) {
			list = append(list, c)
		}
	}
	return list
}

// cell returns the median as text, or a dash if there is none.
func (r report) cell(s system, column string) string {
	if value, ok := r.found.median(s.name, column); ok {
		return formatNumber(value)
	}
	return "—"
}

// title returns the name in Markdown. The names of our systems are bold.
func (s system) title() string {
	if s.ours {
		return "**" + s.name + "**"
	}
	return s.name
}

// ratios returns the table that compares the first of our systems with the systems of others, or "" if one side is
// missing.
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
			if c.lowerIsBetter {
				over, under = under, over
			}
			cell := "—"
			if ratio, ok := r.found.ratio(over, under, c.name); ok {
				cell = formatNumber(ratio)
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

// spread returns the table of the least and the greatest rate of the rounds, or "" if there is only one round.
func (r report) spread() string {
	rows := [][]string{{steady, "least", "median", "most"}}
	for _, s := range r.systems {
		if values := r.found.values(s.name, steady); len(values) > 1 {
			rows = append(rows, []string{s.title(), formatNumber(slices.Min(values)), r.cell(s, steady), formatNumber(slices.Max(values))})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return table(rows)
}

// settings lists how each system is configured.
func (r report) settings() string {
	text := &strings.Builder{}
	for _, s := range r.systems {
		fmt.Fprintf(text, "- **%s**: %s\n", s.name, s.settings)
	}
	return text.String()
}

// table returns a Markdown table. The first row is the header. The first column contains names, all others contain
// figures.
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

// formatNumber rounds v to its significant digits: three for numbers of at least 100, two for smaller ones.
func formatNumber(v float64) string {
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
