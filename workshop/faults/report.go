package faults

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// WriteTable writes the numbers of a verdict as rows of a Markdown table.
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
		{"executions", v.Executions}, {"executions with a planned failure", v.Planned},
		{"successful executions longer than the consumer timeout", v.Long},
		{"repeated executions that a fault explains", explained},
		{"**repeated executions that no fault explains**", unexplained},
		{"**attempts that were executed twice**", len(v.SameAttempt)},
		{fmt.Sprintf("executions with a limit of %d at the same time, at most, with those that a fault took from their worker", limitedAtOnce), v.Limited},
		{"**times when more of them ran, without those**", len(v.Exceeded)},
		{fmt.Sprintf("executions of a key that was paused %d times", v.Pauses), v.Held},
		{"**those that began in a pause, later than a lease after its begin, and that no fault can have delayed**", len(v.Escaped)},
		{"executed but not accepted, because the producer was killed", v.Unaccepted},
	} {
		fmt.Fprintf(out, "| %s | %v |\n", row.name, row.value)
	}
}

// WriteFaults writes a Markdown table with a row for each kind of fault.
func WriteFaults(out io.Writer, v Verdict) {
	fmt.Fprintln(out, "| fault | times | alone | longest duration | repeated executions | restart of an interrupted task that could run: p50 / p99 | restart of a blocked one: p50 / p99 | longest wait of a new task: p50 / p99 |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|")
	for _, t := range traits {
		if v.Times[t.kind] == 0 {
			continue
		}
		lasted := "–"
		if of := v.Lasted[t.kind]; len(of) > 0 {
			lasted = fmt.Sprintf("%.1f s", slices.Max(of).Seconds())
		}
		fmt.Fprintf(out, "| %s | %d | %d | %s | %d | %s | %s | %s |\n", t.kind, v.Times[t.kind], len(v.Waited[t.kind]), lasted, v.Extra[t.kind],
			quantiles(v.Restarted[t.kind]), quantiles(v.Blocked[t.kind]), quantiles(v.Waited[t.kind]))
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

// WriteReport writes the report as a Markdown page.
func WriteReport(out io.Writer, o Options, b Books, v Verdict) {
	target, title := "faults", "Fault report"
	if o.Soak {
		target, title = "soak", "Soak report"
	}
	fmt.Fprintf(out, `# %s

`+"`make %s SEED=%d MINUTES=%d`"+` wrote this page on %s. To write your own, run the same command. It needs Linux, root and the
packages of RabbitMQ and PostgreSQL. The doc comment of `+"`workshop/faults`"+` describes how it counts.

The deployment had three RabbitMQ nodes (%s, quorum queues, consumer timeout %.0f s), PostgreSQL %s with a synchronous
replica, %d workers, %d janitors and %d producers. Each process had its own network namespace on one machine with %d cores.
The programs were built with %s. Producers stored about %d tasks per second, with four priorities. Most tasks took up to
0.8 s, one in ten failed at first, one in twenty was delayed, one in five had a key with a limit, one in ten a key that was
paused and resumed all the time, and some took longer than the consumer timeout. A lease lasted %.0f s. The older build
was %s, the newer build %s. Faults were inflicted for %.0f minutes, two at the same time in one act of five. Then all
remaining tasks were run.

## What happened to the tasks

| counted by the recorder, the producers and the store | |
|---|---|
`, title, target, o.Seed, int(o.For.Minutes()), b.Began.Format(time.DateOnly), b.Broker, consumerTimeout.Seconds(), b.Database, workers, janitors, producers,
		runtime.NumCPU(), runtime.Version(), o.Rate, lease.Seconds(), o.Names[0], o.Names[1], b.Took.Minutes())
	WriteTable(out, v)
	for _, list := range []struct {
		title string
		lines []string
	}{{"Lost", v.Lost}, {"Repeated executions that no fault explains", v.Unexplained}, {"Attempts that were executed twice", v.SameAttempt}, {"More limited executions than allowed", v.Exceeded}, {"Executions in a pause", v.Escaped}, {"Not inflicted or repaired as planned", b.Problems}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(out, "\n%s:\n\n- %s\n", list.title, strings.Join(list.lines[:min(20, len(list.lines))], "\n- "))
		}
	}
	fmt.Fprintf(out, `
## The cost of each fault

A fault explains a repeated execution only if it hit the database, or the worker of the execution before. Faults of the
broker, of its network, of janitors and of producers explain none. The last three columns count only faults that were
alone. The restart of an interrupted task is measured from the begin of the fault. Only the first interruption of a task
counts, because from its second crash on a task waits on purpose. An interrupted task was blocked if its key was paused, or
if other tasks took up its limit, at any time between the two executions. All others could run. A new task is one without
the limit or the paused key that became due during the fault or within %.0f seconds after its end. Its wait is the time
until a worker ran it.

`, recoveryWindow.Seconds())
	WriteFaults(out, v)
	if len(b.Samples) > 0 {
		fmt.Fprintf(out, "\n## Growth\n\nMeasured every %.0f s at a worker and a janitor that no fault hit, at the database and at the broker. Finished tasks were\nkept for one minute. Early is the median of the second fifth of the time, and late that of the last fifth.\n\n", sampleEvery.Seconds())
		WriteTrends(out, Trends(b.Samples))
		return
	}
	fmt.Fprint(out, peers)
}

// peers has figures that were measured once by hand, not by a campaign.
const peers = `
## Peers

These figures were measured by hand, not by this run. Each system ran 1,000 tasks of 200 ms, 50 of them at the same time,
and the worker or the broker was killed with kill -9.

| | time until tasks of the killed worker start again | tasks executed twice after a kill of the broker |
|---|---|---|
| River | 1 h by default; 22 s with the shortest settings, and then 50 finished tasks ran again | no broker |
| asynq | 90–105 s | not measured |
| a plain RabbitMQ worker (manual ack) | 0.12 s | 50 on quorum queues, 200–450 on classic ones, which forget acks |
`
