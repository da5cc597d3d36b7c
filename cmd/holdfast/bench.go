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
	// benchCleaning is how long deleting what was measured in may take.
	benchCleaning = time.Minute
	// Of large payloads a batch, and what waits in a steady state, are fewer.
	benchBatchBytes = 16 << 20
	benchAheadBytes = 256 << 20

	minPayload  = 32 // bytes
	minFor      = 100 * time.Millisecond
	pickUpEvery = 20 * time.Millisecond
	delayedRate = 1000 // a second
	delayedLead = 2 * time.Second
)

// benchCallers are how many callers store tasks one by one at once.
var benchCallers = []int{16, 256}

// benchCommand is the command bench.
type benchCommand struct{ *tool }

func (t benchCommand) command() *cli.Command {
	defaults := load.Defaults()
	return &cli.Command{
		Name:  "bench",
		Usage: "measure your servers, or the embedded default: how many tasks a second, and how late",
		Description: `This loads the servers: for about a minute PostgreSQL and RabbitMQ get as much as they can take, and
whatever else they serve meanwhile is slower. Your tasks are not touched: it measures in a schema and
under a prefix that it makes, holdfast_bench_… and holdfast-bench-…, and deletes at the end, also after
Ctrl-C; --schema and --prefix play no part. The user needs the right to create schemas, and queues of
that prefix.

With nothing configured it measures a file in a temporary folder, which it deletes; set TMPDIR to a
folder on the disk that matters.

  bulk     tasks stored a second, by one caller, in batches of 1,000
  drain    tasks run a second until none of them is left, by one worker, with a handler that does nothing
  steady   tasks stored and run a second, both at the same time
  single   tasks stored a second, one in each call, from 16 and from 256 callers
  pickup   from the call that stores a task to its handler, when nothing else is to do
  delayed  from the moment a delayed task is due to its handler, 1,000 of them a second or as many as
           can be stored

Everything but bulk and drain is measured for as long as --for says. Producer and worker are this one
process; figures of a machine that is busy with other things say little.

Example:
  holdfast bench
  holdfast bench --only bulk,drain --tasks 200000 --concurrency 200 -o json`,
		Flags: []cli.Flag{
			outputFlag(),
			&cli.StringFlag{Name: "only", Usage: "measure only `NAME,...`: " + strings.Join(benchNames(), ", ")},
			&cli.IntFlag{Name: "tasks", Value: 50_000, Usage: "store and run `N` tasks for bulk and drain; default 50000"},
			&cli.DurationFlag{Name: "for", Value: defaults.For, Usage: "measure everything else for a `DURATION`; default " + defaults.For.String()},
			&cli.IntFlag{Name: "payload", Value: defaults.Payload, Usage: "`BYTES` of each payload; default " + strconv.Itoa(defaults.Payload)},
			setting("concurrency", "worker.concurrency", "N"),
		},
		Action: t.do(t.run),
	}
}

// measured is one figure as it is printed.
type measured struct {
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
	t.say("measuring, under full load, in %s", place.Place())
	err = b.run(ctx, place)
	if ctx.Err() != nil {
		t.say("interrupted; deleting what was made")
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleaning)
	defer cancel()
	if left := place.Delete(cleaning); left != nil {
		t.report(left) // it must be said even if something else has ended this
		if err == nil {
			err = &failure{code: exitCode(left)}
		}
	}
	if len(b.results) == 0 {
		return err
	}
	if printing := list(t.tool, c, b.results, "",
		column[measured]{"measure", func(m measured) string { return m.Measure }},
		column[measured]{"figure", measured.figure},
		column[measured]{"unit", func(m measured) string { return m.Unit }}); err == nil {
		err = printing
	}
	return err
}

// figure has as many digits as mean something.
func (m measured) figure() string {
	if m.Figure >= 100 {
		return strconv.FormatFloat(m.Figure, 'f', 0, 64)
	}
	return strconv.FormatFloat(m.Figure, 'f', 2, 64)
}

// benchmark is one run of the command.
type benchmark struct {
	load.Options
	t       *tool
	tasks   int
	only    []string
	results []measured
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
		return nil, usageOf(commandName(c), "--payload %d must be from %d to %d bytes, which is producer.max_payload", b.Payload, minPayload, cfg.Producer.MaxPayload)
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

// measurement begins with nothing stored.
type measurement struct {
	names   []string // of --only; any of them is a reason to do it
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
		q, err := place.Fresh(ctx)
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

func (b *benchmark) found(measure string, figure float64, unit string) {
	b.results = append(b.results, measured{measure, math.Round(figure*1000) / 1000, unit})
}

func (b *benchmark) rate(measure string, r load.Rate) { b.found(measure, r.PerSecond(), "tasks/s") }

// times tells the middle and the end of a distribution.
func (b *benchmark) times(measure string, sorted []time.Duration) {
	for _, p := range []float64{50, 99} {
		b.found(fmt.Sprintf("%s p%.0f", measure, p), float64(load.Percentile(sorted, p))/float64(time.Millisecond), "ms")
	}
}

func (b *benchmark) backlog(ctx context.Context, q load.Queue) error {
	b.t.say("bulk: storing %s", several(b.tasks, "task"))
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
	b.t.say("drain: running %s", several(b.tasks, "task"))
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
	n := int(b.For / pickUpEvery)
	b.t.say("pickup: storing a task about every %s, %d of them", pickUpEvery, n)
	times, err := b.PickUp(ctx, q, n, pickUpEvery)
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
