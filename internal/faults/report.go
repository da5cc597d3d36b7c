package faults

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// WriteTable prints what a verdict says, as the table a person looks at first.
func WriteTable(out io.Writer, v Verdict) {
	explained, unexplained := 0, len(v.Unexplained)
	for _, n := range v.Extra {
		explained += n
	}
	for _, row := range []struct {
		name  string
		value any
	}{
		{"accepted", v.Accepted}, {"finished", v.Finished}, {"**lost**", len(v.Lost)},
		{"executions", v.Executions}, {"planned failures among them", v.Planned},
		{"longer than the consumer timeout among them, and answered", v.Long},
		{"executions beyond the first, explained by a fault", explained},
		{"**executions beyond the first, unexplained**", unexplained},
		{"**executions of one attempt twice**", len(v.SameAttempt)},
		{"not accepted, as the producer was killed, and run all the same", v.Unaccepted},
	} {
		fmt.Fprintf(out, "| %s | %v |\n", row.name, row.value)
	}
}

// WriteFaults prints a line for each kind of fault.
func WriteFaults(out io.Writer, v Verdict) {
	fmt.Fprintln(out, "| fault | times | alone | lasted, at most | executions beyond the first | broken off, again after: p50 / p99 | longest wait of a new task: p50 / p99 |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, t := range traits {
		if v.Times[t.kind] == 0 {
			continue
		}
		lasted := "–"
		if of := v.Lasted[t.kind]; len(of) > 0 {
			lasted = fmt.Sprintf("%.1f s", slices.Max(of).Seconds())
		}
		fmt.Fprintf(out, "| %s | %d | %d | %s | %d | %s | %s |\n", t.kind, v.Times[t.kind], len(v.Waited[t.kind]), lasted, v.Extra[t.kind],
			quantiles(v.Restarted[t.kind]), quantiles(v.Waited[t.kind]))
	}
}

func quantiles(of []time.Duration) string {
	if len(of) == 0 {
		return "–"
	}
	slices.Sort(of)
	at := func(q float64) string {
		return fmt.Sprintf("%.2f s", of[min(len(of)-1, int(q*float64(len(of))))].Seconds())
	}
	return at(0.5) + " / " + at(0.99)
}

// WriteReport writes the whole report, in Markdown.
func WriteReport(out io.Writer, o Options, b Books, v Verdict) {
	target, title := "faults", "Fault report"
	if o.Soak {
		target, title = "soak", "Soak report"
	}
	fmt.Fprintf(out, `# %s

Written by `+"`make %s SEED=%d MINUTES=%d`"+` on %s; run it to have your own. It needs Linux, root and the
packages of RabbitMQ and PostgreSQL, nothing else. How it is counted stands in the doc comment of `+"`internal/faults`"+`.

Three RabbitMQ nodes (%s, quorum queues, consumer timeout %.0f s), PostgreSQL %s with a synchronous replica, %d
workers, %d janitors and %d producers, each in a network namespace of its own on one machine with %d cores; %s;
about %d tasks a second: most take up to 0.8 s, one in ten fails at first, one in twenty is delayed, some take longer than the
consumer timeout. Leases of %.0f s. The older build is %s, the newer %s. Faults for %.0f minutes, one in five acts with two at once;
then everything left is done.

## What became of the tasks

| counted by the recorder, the producers and the store | |
|---|---|
`, title, target, o.Seed, int(o.For.Minutes()), b.Began.Format(time.DateOnly), b.Broker, consumerTimeout.Seconds(), b.Database, workers, janitors, producers,
		runtime.NumCPU(), runtime.Version(), o.Rate, lease.Seconds(), o.Names[0], o.Names[1], b.Took.Minutes())
	WriteTable(out, v)
	for _, list := range []struct {
		title string
		lines []string
	}{{"Lost", v.Lost}, {"Unexplained", v.Unexplained}, {"One attempt twice", v.SameAttempt}, {"Not inflicted or mended as planned", b.Problems}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(out, "\n%s:\n\n- %s\n", list.title, strings.Join(list.lines[:min(20, len(list.lines))], "\n- "))
		}
	}
	fmt.Fprintf(out, `
## What each fault cost

An execution beyond the first is explained by a fault only if the fault hit the worker of the one before it, or the
database; faults of the broker, its network, janitors and producers are allowed none. Recovery is taken from faults that
were alone. What a fault broke off is counted from its begin, and only the first time that a task is broken off: later
it waits on purpose. A new task is one that became due while the fault lasted or
within %.0f seconds after it was mended; its wait is that for a worker, however long the fault itself was.

`, aftermath.Seconds())
	WriteFaults(out, v)
	if len(b.Samples) > 0 {
		fmt.Fprintf(out, "\n## What stayed flat\n\nMeasured every %.0f s at a worker and a janitor that were not killed, at the database and the broker. Finished tasks were\nkept for a minute. Early is the second fifth of the time, the end its last fifth (medians).\n\n", sampleEvery.Seconds())
		WriteTrends(out, Trends(b.Samples))
		return
	}
	fmt.Fprint(out, peers)
}

// peers are figures that were measured by hand, once, outside of this run.
const peers = `
## Peers

Measured by hand, not by this run, each on the same work: 1,000 tasks of 200 ms, 50 in flight, the worker killed with
kill -9, or the broker.

| | work of the killed worker starts again after | executed twice after a kill of the broker |
|---|---|---|
| River | 1 h by default; set as short as it goes 22 s, and then 50 finished tasks ran again | no broker |
| asynq | 90–105 s | not measured |
| machinery | 0.14 s | 401–451 |
| a plain RabbitMQ worker (manual ack) | 0.12 s | 50 on quorum queues, 200–450 on classic ones, which forget acks |
`
