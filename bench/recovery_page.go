package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// recoveryPage is the data of the page.
type recoveryPage struct {
	when     time.Time
	command  string // the command that writes the page
	cores    int
	servers  []string          // names and versions
	versions map[string]string // versions of modules
	systems  []system
	*recoveryBench
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
	fmt.Fprintf(text, "# Recovery after kill -9, compared with other task queues\n\nWritten by `%s` on %s; run it to get your own figures.\n\n", p.command, p.when.Format(time.DateOnly))
	fmt.Fprintf(text, "All servers run on one machine with %d %s: %s. Each system is configured as in [benchmarks.md](benchmarks.md), but a worker runs %d tasks at once. "+
		"Leases and all other settings that affect the recovery have their defaults.\n", p.cores, plural("core", p.cores), strings.Join(with, ", "), inFlight)
	if len(p.workers) > 0 {
		fmt.Fprintf(text, "\n## A worker is killed\n\nOne worker runs %d tasks that do not end. A second worker is idle. The first worker is killed with kill -9. The figures "+
			"are the times from the kill until the second worker starts a task of the first one. A trial ends when all tasks have started, or when no task has started for %s. "+
			"By default River rescues a job that has run for an hour.\n\n%s", inFlight, p.giveUpAfter, p.workersTable())
	}
	if len(p.brokers) > 0 {
		fmt.Fprintf(text, "\n## The broker is killed\n\nOne worker runs %s tasks of %s each. After %d of them have started, RabbitMQ is killed with kill -9 and started again with "+
			"its data. The worker is not killed. If it ends because it has no connection, it is started again at once. The figures are medians, with the "+
			"minimum and the maximum of all trials.\n\n%s", formatNumber(float64(p.tasks)), p.taskDuration, 4*inFlight, p.brokersTable())
	}
	return text.String()
}

func (p recoveryPage) workersTable() string {
	rows := [][]string{{"", "kills", "median", "slowest", "started again"}}
	for _, k := range p.workers {
		row := []string{k.system, fmt.Sprint(k.trials)}
		all := len(k.took) + k.missing
		// A task that did not start again is treated as slower than all others.
		for _, at := range []int{(all - 1) / 2, all - 1} {
			cell := "more than " + p.giveUpAfter.String()
			if at < len(k.took) {
				cell = formatNumber(k.took[at].Seconds()) + " s"
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

// between returns the median of the counts, with the minimum and the maximum if they differ.
func between(counts []int) string {
	sorted := slices.Sorted(slices.Values(counts))
	least, most := sorted[0], sorted[len(sorted)-1]
	middle := sorted[(len(sorted)-1)/2]
	if least == most {
		return fmt.Sprint(middle)
	}
	return fmt.Sprintf("%d (%d–%d)", middle, least, most)
}
