package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// featurePage is the data of the page.
type featurePage struct {
	*featureBench
	when     time.Time
	command  string // the command that writes the page
	cores    int
	versions []string // versions of Go and the servers
}

func (p featurePage) page() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# What a feature costs its tasks\n\nWritten by `%s` on %s; run it to get your own figures.\n\n", p.command, p.when.Format(time.DateOnly))
	parentheses := ""
	if p.rounds > 1 {
		parentheses = ", with the least and the most in parentheses"
	}
	fmt.Fprintf(text, "A task that does not use a feature pays nothing for it. This page shows what the tasks pay that use it. All servers run on one machine with %d %s: %s. "+
		"In each measurement, one process stores %s tasks in calls of %s, and runs them at the same time with %d executors. A payload has %d bytes, and a handler does "+
		"nothing that the row does not name. The limits allow %s attempts at a time, more than the worker can run. Each measurement runs in a new process, in an empty schema or file. The order of the rows alternates from round to round.\n\n"+
		"The time begins with the first call that stores tasks, and ends when all results are stored. One call of such tasks runs before. A ratio compares a row with the plain tasks of the same round. "+
		"The processor time is that of the process, or of all servers on the machine, for the same number of tasks. The figures are medians of %d %s%s.\n",
		p.cores, plural("core", p.cores), strings.Join(p.versions, ", "), formatNumber(float64(p.tasks)), formatNumber(float64(p.Batch)), concurrency, p.Payload,
		formatNumber(store.MaxConcurrency), p.rounds, plural("round", p.rounds), parentheses)
	for _, where := range p.places {
		fmt.Fprintf(text, "\n## %s\n\n%s", placeTitle(where.name), p.section(where.name))
	}
	if slices.ContainsFunc(p.steps, func(st step) bool { return st.name == idleName || st.name == floodName }) {
		fmt.Fprintf(text, "\n## First task of a topic beside a flood\n\nThe time from Enqueue to the start of the first task of a new topic, for %d topics one after the other: in an idle "+
			"queue, and while another topic has a backlog of %s tasks that do nothing. "+
			"The measurement beside the backlog begins when a twentieth of it has started.\n\n%s", newTopics, formatNumber(float64(p.flood)), p.newTopicsTable())
	}
	return text.String()
}

func placeTitle(name string) string {
	if name == filePlace {
		return "One file"
	}
	return "Servers"
}

// section returns the table of a place, and the processor time of plain tasks.
func (p featurePage) section(place string) string {
	found, plain := p.found[place], features[0].name
	columns := []string{cpuProcess, cpuServers}
	if place == filePlace {
		columns = columns[:1]
	}
	rows := [][]string{{"feature", perSecond, "ratio"}}
	var used []string
	for _, column := range columns {
		rows[0] = append(rows[0], column+", ratio")
		used = append(used, spread(found.values(plain, column), formatNumber)+" ms"+strings.TrimPrefix(column, "CPU"))
	}
	for _, f := range features {
		if len(found[f.name]) == 0 {
			continue
		}
		row := []string{f.title, spread(found.values(f.name, perSecond), formatNumber)}
		for _, column := range append([]string{perSecond}, columns...) {
			cell := ""
			if f.name != plain {
				cell = spread(found.turns(f.name, plain, column), formatRatio)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return fmt.Sprintf("%s\nThe processor time for 1,000 plain tasks: %s.\n", table(rows), strings.Join(used, ", "))
}

func (p featurePage) newTopicsTable() string {
	rows := [][]string{{"", "idle, " + first50, first99, "beside the flood, " + first50, first99}}
	for _, where := range p.places {
		row := []string{placeTitle(where.name)}
		for _, c := range []string{idleName, floodName} {
			for _, column := range []string{first50, first99} {
				row = append(row, spread(p.found[where.name].values(c, column), formatNumber))
			}
		}
		rows = append(rows, row)
	}
	return table(rows)
}

// spread returns the median with the least and the greatest value, or a dash if there are no values.
func spread(values []float64, format func(float64) string) string {
	m, ok := median(values)
	if !ok {
		return "—"
	}
	if len(values) == 1 {
		return format(m)
	}
	return fmt.Sprintf("%s (%s to %s)", format(m), format(slices.Min(values)), format(slices.Max(values)))
}
