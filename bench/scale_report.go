package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// scalePage is what the page says.
type scalePage struct {
	*scaling
	when     time.Time
	command  string // that writes it
	cores    int
	versions []string // of Go and the servers
	parts    []part
}

func (p scalePage) write(path string) error {
	if path == "" {
		_, err := fmt.Print(p.page())
		return err
	}
	return os.WriteFile(path, []byte(p.page()), 0o644)
}

func (p scalePage) page() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# How the speed holds\n\nWritten by `%s` on %s; run it to have your own.\n\n", p.command, p.when.Format(time.DateOnly))
	fmt.Fprintf(text, "Holdfast in proportion to itself, with its servers on the same machine with %d %s: %s. Payloads are of %d bytes, a handler "+
		"does nothing, a worker has %d executors, and everything else is by default. Every measurement is made in processes of its own, after a "+
		"checkpoint of the database. Rates are medians of %d %s, in which the lines of a table took turns in being first; a ratio is to the "+
		"first line of its table, and the median of the rounds' ratios.\n",
		p.cores, plural("core", p.cores), strings.Join(p.versions, ", "), p.Payload, concurrency, p.rounds, plural("round", p.rounds))
	for _, part := range p.parts {
		section := "It failed, so there are no figures of it here.\n"
		if !slices.Contains(p.failed, part.name) {
			section = part.section(p.scaling)
		}
		fmt.Fprintf(text, "\n## %s\n\n%s", part.title, section)
	}
	return text.String()
}

// contrast is a table of figures under several conditions. Ratios are to the first of these.
type contrast struct {
	head       string // of the conditions
	conditions []string
	goals      []goal // of a column each
}

// goal is a measure, and what its ratio should be; 0 is no such goal.
type goal struct {
	measure     string
	least, most float64
}

func (c contrast) table(found results) string {
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
			row = append(row, human(value), human(slices.Min(values))+" to "+human(slices.Max(values)))
			ratio, _ := found.ratio(condition, c.conditions[0], g.measure)
			row = append(row, g.verdict(ratio, condition == c.conditions[0]))
		}
		rows = append(rows, row)
	}
	return table(rows)
}

func (g goal) wanted() string {
	switch {
	case g.least > 0:
		return fmt.Sprintf(", goal ≥ %.2f", g.least)
	case g.most > 0:
		return fmt.Sprintf(", goal ≤ %.2f", g.most)
	}
	return ""
}

// verdict judges what it says: the ratio as it is rounded.
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
