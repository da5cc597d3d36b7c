package measure

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// Conditions describe how and where the figures were measured.
type Conditions struct {
	Command            string // the command that writes the report
	Version            string // version of the program
	PostgreSQL, Broker string // names and versions; empty if only a file was measured
	Began              time.Time
	Took               time.Duration
}

// WriteReport writes the figures to out as the page docs/recovery.md. Each figure must have a sample.
func WriteReport(out io.Writer, c Conditions, figures []Figure) error {
	servers := ""
	if c.PostgreSQL != "" {
		servers = fmt.Sprintf("The servers were %s and %s, on the same machine. ", c.PostgreSQL, c.Broker)
	}
	_, err := fmt.Fprintf(out, `# How soon work resumes

`+"`%s`"+` wrote this page on %s and took %s. To measure your own machine, run the same
command. The machine had %d cores. The program had version %[6]s and was built with %[5]s.
%[7]sAll other settings had their defaults.

"One file" is one process with SQLite and the broker inside. If several tasks wait in a trial, the slowest one counts. The
tests assert what happens, in which order and how often. They do not assert these figures, because a test must also pass
on a machine that does other work.

| measured from one event, until another | backend | trials | p50 | p99 | maximum |
|---|---|---:|---:|---:|---:|
`, c.Command, c.Began.Format(time.DateOnly), c.Took.Round(time.Second), runtime.NumCPU(), runtime.Version(), c.Version, servers)
	name := ""
	for _, f := range grouped(figures) {
		if err != nil {
			return err
		}
		if f.Name != name {
			if _, err = fmt.Fprintf(out, "| **%s** | | | | | |\n", f.Name); err != nil {
				return err
			}
			name = f.Name
		}
		_, err = fmt.Fprintf(out, "| %s | %s | %d | %s | %s | %s |\n", f.What, f.Backend, len(f.Samples), f.at(0.5), f.at(0.99), f.at(1))
	}
	return err
}

// at returns the q-quantile as text with its unit.
func (f Figure) at(q float64) string {
	value := f.Quantile(q)
	switch {
	case f.Unit == percent:
		return fmt.Sprintf("%.0f %%", value)
	case value < 0.1:
		return fmt.Sprintf("%.0f ms", 1000*value)
	default:
		return fmt.Sprintf("%.2f s", value)
	}
}

// grouped returns the figures with equal names next to each other. The names keep their order of first appearance.
func grouped(figures []Figure) (all []Figure) {
	var names []string
	for _, f := range figures {
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	for _, name := range names {
		for _, f := range figures {
			if f.Name == name {
				all = append(all, f)
			}
		}
	}
	return all
}
