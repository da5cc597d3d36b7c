package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// scalePage is the data of the page.
type scalePage struct {
	*scaleBench
	when     time.Time
	command  string // the command that writes the page
	cores    int
	versions []string // versions of Go and the servers
	parts    []part
}

// writePage writes a page to a file, or prints it if path is empty.
func writePage(path, page string) error {
	if path == "" {
		_, err := fmt.Print(page)
		return err
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

func (p scalePage) page() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# How the speed of Holdfast scales\n\nWritten by `%s` on %s; run it to get your own figures.\n\n", p.command, p.when.Format(time.DateOnly))
	fmt.Fprintf(text, "This page compares Holdfast with itself under different conditions. All servers run on one machine with %d %s: %s. A payload has %d bytes, a handler "+
		"does nothing, a worker has %d executors, and all other settings have their defaults. Each measurement runs in new processes, after a "+
		"checkpoint of the database. The rates are medians of %d %s. The order of the rows of a table alternates from round to round. A ratio "+
		"compares a row with the first row of its table; it is the median of the ratios of all rounds.\n",
		p.cores, plural("core", p.cores), strings.Join(p.versions, ", "), p.Payload, concurrency, p.rounds, plural("round", p.rounds))
	for _, part := range p.parts {
		section := "This part failed and has no figures.\n"
		if !slices.Contains(p.failed, part.name) {
			section = part.section(p.scaleBench)
		}
		fmt.Fprintf(text, "\n## %s\n\n%s", part.title, section)
	}
	return text.String()
}

// comparison is a table of figures under several conditions. A ratio compares a condition with the first one.
type comparison struct {
	head       string // header of the column of conditions
	conditions []string
	goals      []goal // each has three columns
}

// goal is a measure with the limits of its ratio. A limit of 0 means no limit.
type goal struct {
	measure     string
	least, most float64
}

// table returns the comparison as a Markdown table.
func (c comparison) table(found results) string {
	rows := [][]string{{c.head}}
	for _, g := range c.goals {
		rows[0] = append(rows[0], g.measure, "least to most", "ratio"+g.wanted())
	}
	for _, condition := range c.conditions {
		row := []string{condition}
		for _, g := range c.goals {
			value, ok := found.median(condition, g.measure)
			if !ok {
				row = append(row, "—", "—", "—")
				continue
			}
			values := found.values(condition, g.measure)
			row = append(row, formatNumber(value), formatNumber(slices.Min(values))+" to "+formatNumber(slices.Max(values)))
			ratio, _ := found.ratio(condition, c.conditions[0], g.measure)
			row = append(row, g.verdict(ratio, condition == c.conditions[0]))
		}
		rows = append(rows, row)
	}
	return table(rows)
}

// wanted returns the goal as a part of a table header, or "" if there is none.
func (g goal) wanted() string {
	switch {
	case g.least > 0:
		return fmt.Sprintf(", goal ≥ %.2f", g.least)
	case g.most > 0:
		return fmt.Sprintf(", goal ≤ %.2f", g.most)
	}
	return ""
}

// verdict returns the rounded ratio, and whether the rounded ratio meets the goal. For the first condition, base is
// true and verdict returns "".
func (g goal) verdict(ratio float64, base bool) string {
	rounded := math.Round(ratio*100) / 100
	text := fmt.Sprintf("%.2f", rounded)
	switch {
	case base:
		return ""
	case g.least > 0 && rounded < g.least, g.most > 0 && rounded > g.most:
		return text + ", missed"
	case g.least > 0, g.most > 0:
		return text + ", met"
	}
	return text
}
