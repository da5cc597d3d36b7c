package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/load"
)

const (
	// benchCleanupTimeout is the time limit for deleting the test data.
	benchCleanupTimeout = time.Minute
	// These limit the payloads of a batch, and of the tasks that wait in the steady state.
	benchBatchBytes = 16 << 20
	benchAheadBytes = 256 << 20

	minPayload     = 32 // bytes
	minFor         = 100 * time.Millisecond
	pickUpInterval = 20 * time.Millisecond
	delayedRate    = 1000 // tasks per second
	delayedLead    = 2 * time.Second
)

// benchCallers are the numbers of concurrent callers that store single tasks.
var benchCallers = []int{16, 256}

func (t benchCommand) command() *cli.Command {
	defaults := load.Defaults()
	return t.verb("bench", "measure the throughput and latency of your servers or of a file",
		`The benchmark puts full load on PostgreSQL and RabbitMQ for about a minute, so it slows down their other users.
It does not touch your tasks: it creates a schema holdfast_bench_… and AMQP queues with the prefix holdfast-bench-…, and
deletes them at the end, even after Ctrl-C. It ignores --schema and --prefix. The user needs the right to create
schemas, and AMQP queues with that prefix.

Without configuration, the command measures a file in a temporary folder, which it deletes at the end. To measure
another disk, set TMPDIR to a folder on that disk.

  bulk     tasks stored per second, by one caller, in batches of 1,000
  drain    tasks run per second until all are done, by one worker, with a handler that does nothing
  steady   tasks stored and run per second, both at the same time
  single   tasks stored per second, one task in each call, from 16 and from 256 callers
  pickup   time from the call that stores a task to the start of its handler, on an idle system
  delayed  time from the due time of a delayed task to the start of its handler, with up to 1,000 due
           tasks per second

--for sets the duration of each measurement except bulk and drain. The producer and the worker are in this process. Do
not measure on a busy machine.

Example:
  holdfast bench
  holdfast bench --only bulk,drain --tasks 200000 --concurrency 200 -o json`,
		plain(t.run), outputFlag(), []cli.Flag{
			&cli.StringFlag{Name: "only", Usage: "measure only `NAME,...`: " + strings.Join(benchNames(), ", ")},
			&cli.IntFlag{Name: "tasks", Value: 50_000, Usage: "store and run `N` tasks in bulk and drain; default 50000"},
			&cli.DurationFlag{Name: "for", Value: defaults.For, Usage: "run each other measurement for `DURATION`; default " + defaults.For.String()},
			&cli.IntFlag{Name: "payload", Value: defaults.Payload, Usage: "size of each payload in `BYTES`; default " + strconv.Itoa(defaults.Payload)},
			setting("concurrency", "worker.concurrency", "N"),
		})
}

// figureRow is one figure as the command prints it.
type figureRow struct {
	Measure string  `json:"measure"`
	Figure  float64 `json:"figure"`
	Unit    string  `json:"unit"`
}

func (t benchCommand) run(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	b, err := t.newBenchmark(c, cfg)
	if err != nil {
		return err
	}
	place, err := app.NewBench(cfg, t.quietLogger(cfg), daemon.Metrics(nil))
	if err != nil {
		return err
	}
	t.say("measuring under full load in %s", place.Place())
	err = b.run(ctx, place)
	if ctx.Err() != nil {
		t.say("interrupted; deleting test data")
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanupTimeout)
	defer cancel()
	if deleteErr := place.Delete(cleanup); deleteErr != nil {
		t.report(deleteErr) // even if the benchmark failed too
		if err == nil {
			err = &failure{code: exitCode(deleteErr)}
		}
	}
	if len(b.results) == 0 {
		return err
	}
	if printing := list(t.tool, c, "measures", b.results, "",
		column[figureRow]{"measure", func(f figureRow) string { return f.Measure }},
		column[figureRow]{"figure", figureRow.figure},
		column[figureRow]{"unit", func(f figureRow) string { return f.Unit }}); err == nil {
		err = printing
	}
	return err
}

// figure formats the figure without insignificant digits.
func (f figureRow) figure() string {
	if f.Figure >= 100 {
		return strconv.FormatFloat(f.Figure, 'f', 0, 64)
	}
	return strconv.FormatFloat(f.Figure, 'f', 2, 64)
}

// benchmark is one execution of the command.
type benchmark struct {
	load.Options
	t       *tool
	tasks   int
	only    []string
	results []figureRow
}

func (t benchCommand) newBenchmark(c *cli.Context, cfg configs.Config) (*benchmark, error) {
	b := &benchmark{Options: load.Defaults(), t: t.tool, tasks: c.Int("tasks"), only: benchNames()}
	b.For, b.Payload = c.Duration("for"), c.Int("payload")
	switch {
	case b.tasks < 1:
		return nil, usageOf(commandName(c), "--tasks %d must be at least 1", b.tasks)
	case b.For < minFor:
		return nil, usageOf(commandName(c), "--for %s must be at least %s", b.For, minFor)
	case b.Payload < minPayload || b.Payload > cfg.Producer.MaxPayload:
		return nil, usageOf(commandName(c), "--payload %d must be between %d and %d bytes; the upper limit is producer.max_payload", b.Payload, minPayload, cfg.Producer.MaxPayload)
	}
	b.WarmUp = min(b.WarmUp, b.For)
	b.Batch = max(1, min(b.Batch, benchBatchBytes/b.Payload))
	b.Ahead = max(b.Batch, min(b.Ahead, benchAheadBytes/b.Payload))
	if c.IsSet("only") {
		b.only = strings.Split(c.String("only"), ",")
	}
	for _, name := range b.only {
		if !slices.Contains(benchNames(), name) {
			return nil, usageOf(commandName(c), "unknown measurement %q; use %s", name, strings.Join(benchNames(), ", "))
		}
	}
	return b, nil
}

// measurement is a function that starts with an empty store and measures one or more figures.
type measurement struct {
	names   []string // values of --only that select it
	measure func(*benchmark, context.Context, load.Queue) error
}

var measurements = []measurement{
	{[]string{"bulk", "drain"}, (*benchmark).backlog},
	{[]string{"steady"}, (*benchmark).steady},
	{[]string{"single"}, (*benchmark).single},
	{[]string{"pickup"}, (*benchmark).pickUp},
	{[]string{"delayed"}, (*benchmark).delayed},
}

func benchNames() (names []string) {
	for _, m := range measurements {
		names = append(names, m.names...)
	}
	return names
}

func (b *benchmark) run(ctx context.Context, place *app.Bench) error {
	for _, m := range measurements {
		if !slices.ContainsFunc(m.names, b.wants) {
			continue
		}
		q, err := place.Recreate(ctx)
		if err != nil {
			return err
		}
		if err := m.measure(b, ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func (b *benchmark) wants(name string) bool { return slices.Contains(b.only, name) }

// add adds a figure to the results, rounded to three decimals.
func (b *benchmark) add(measure string, figure float64, unit string) {
	b.results = append(b.results, figureRow{measure, math.Round(figure*1000) / 1000, unit})
}

func (b *benchmark) rate(measure string, r load.Rate) { b.add(measure, r.PerSecond(), "tasks/s") }

// times adds the 50th and the 99th percentile of durations to the results.
func (b *benchmark) times(measure string, sorted []time.Duration) {
	for _, p := range []float64{50, 99} {
		b.add(fmt.Sprintf("%s p%.0f", measure, p), float64(load.Percentile(sorted, p))/float64(time.Millisecond), "ms")
	}
}

func (b *benchmark) backlog(ctx context.Context, q load.Queue) error {
	b.t.say("bulk: storing %s", plural(b.tasks, "task"))
	rate, err := b.Bulk(ctx, q, b.tasks)
	if err != nil {
		return fmt.Errorf("bulk: %w", err)
	}
	if b.wants("bulk") {
		b.rate("bulk enqueue", rate)
	}
	if !b.wants("drain") {
		return nil
	}
	b.t.say("drain: running %s", plural(b.tasks, "task"))
	if rate, err = b.Drain(ctx, q, b.tasks); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	b.rate("drain", rate)
	return nil
}

func (b *benchmark) steady(ctx context.Context, q load.Queue) error {
	b.t.say("steady: storing and running tasks for %s, and %s to warm up", b.For, b.WarmUp)
	rate, err := b.Steady(ctx, q, func() {}, func() {})
	if err != nil {
		return fmt.Errorf("steady: %w", err)
	}
	b.rate("steady state", rate)
	return nil
}

func (b *benchmark) single(ctx context.Context, q load.Queue) error {
	for _, callers := range benchCallers {
		b.t.say("single: storing tasks one by one from %d callers for %s", callers, b.For)
		rate, err := b.Singles(ctx, q, callers)
		if err != nil {
			return fmt.Errorf("single: %w", err)
		}
		b.rate(fmt.Sprintf("one by one from %d", callers), rate)
	}
	return nil
}

func (b *benchmark) pickUp(ctx context.Context, q load.Queue) error {
	n := int(b.For / pickUpInterval)
	b.t.say("pickup: storing a task about every %s, %d of them", pickUpInterval, n)
	times, err := b.PickUp(ctx, q, n, pickUpInterval)
	if err != nil {
		return fmt.Errorf("pickup: %w", err)
	}
	b.times("idle pick-up", times)
	return nil
}

func (b *benchmark) delayed(ctx context.Context, q load.Queue) error {
	n := int(b.For.Seconds() * delayedRate)
	b.t.say("delayed: storing tasks that become due at %d a second, %d of them", delayedRate, n)
	rate, times, err := b.Delayed(ctx, q, n, delayedRate, min(delayedLead, b.For))
	if err != nil {
		return fmt.Errorf("delayed: %w", err)
	}
	b.rate("delayed, due", rate)
	b.times("delayed, late", times)
	return nil
}
