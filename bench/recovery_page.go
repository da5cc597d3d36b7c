package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// recoveryPage is what the page says.
type recoveryPage struct {
	when     time.Time
	command  string // that writes it
	cores    int
	servers  []string
	versions map[string]string // of modules
	systems  []system
	*recovering
}

func (p recoveryPage) write(path string) error {
	if path == "" {
		_, err := fmt.Print(p.text())
		return err
	}
	return os.WriteFile(path, []byte(p.text()), 0o644)
}

func (p recoveryPage) text() string {
	with := append([]string{runtime.Version()}, p.servers...)
	for _, s := range p.systems {
		if version := p.versions[s.module]; version != "" {
			with = append(with, s.name+" "+version)
		}
	}
	text := &strings.Builder{}
	fmt.Fprintf(text, "# After a kill -9, beside other task queues\n\nWritten by `%s` on %s; run it to have your own.\n\n", p.command, p.when.Format(time.DateOnly))
	fmt.Fprintf(text, "The machine has %d %s: %s. Each system is set up as [benchmarks.md](benchmarks.md) says, but a worker runs %d tasks at once. What "+
		"decides how soon work goes on, such as leases, is at its default.\n", p.cores, plural("core", p.cores), strings.Join(with, ", "), inFlight)
	if len(p.workers) > 0 {
		fmt.Fprintf(text, "\n## A worker is killed\n\nOne worker runs %d tasks that do not end. Another one waits. The first one is killed with kill -9. The figures are "+
			"the times from the kill until the other worker begins a task of the first one. The program waits until nothing has begun for %s. "+
			"River rescues a job that has run for an hour, unless a setting says otherwise.\n\n%s", inFlight, p.patience, p.workersTable())
	}
	if len(p.brokers) > 0 {
		fmt.Fprintf(text, "\n## The broker is killed\n\nOne worker runs %s tasks of %s. After %d of them have begun, RabbitMQ is killed with kill -9 and started again on "+
			"its data. The worker lives. A worker that ends without a connection is started again at once. The figures are medians, with the least and the most "+
			"of all trials.\n\n%s", human(float64(p.tasks)), p.lasts, 4*inFlight, p.brokersTable())
	}
	return text.String()
}

func (p recoveryPage) workersTable() string {
	rows := [][]string{{"", "kills", "median", "slowest", "began again"}}
	for _, k := range p.workers {
		row := []string{k.system, fmt.Sprint(k.trials)}
		all := len(k.took) + k.missing
		// What is missing took longer than everything that came.
		for _, at := range []int{(all - 1) / 2, all - 1} {
			cell := "more than " + p.patience.String()
			if at < len(k.took) {
				cell = human(k.took[at].Seconds()) + " s"
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, fmt.Sprintf("%d of %d", len(k.took), all)))
	}
	return table(rows)
}

func (p recoveryPage) brokersTable() string {
	rows := [][]string{{"", "kills", "ran twice", "did not run"}}
	for _, k := range p.brokers {
		rows = append(rows, []string{k.system, fmt.Sprint(len(k.twice)), between(k.twice), between(k.lost)})
	}
	return table(rows)
}

// between is the median of counts, with the least and the most if they differ.
func between(counts []int) string {
	sorted := slices.Sorted(slices.Values(counts))
	least, most := sorted[0], sorted[len(sorted)-1]
	middle := sorted[(len(sorted)-1)/2]
	if least == most {
		return fmt.Sprint(middle)
	}
	return fmt.Sprintf("%d (%d–%d)", middle, least, most)
}
