package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/load"
)

// pressureCommand is the first argument for the measurement of speed while PostgreSQL is under pressure.
const pressureCommand = "pressure"

// burstTime is how long a burst takes at the clean rate, and idleTime the pause before it.
const burstTime, idleTime = 2 * time.Second, 2 * time.Second

// growth is the figure of the tasks that the cell backlog stores per second beyond those that run.
const growth = "growth of the backlog"

// cell is a condition under which the rate of every system is measured.
type cell struct {
	name, title, text string // text explains the cell, in Markdown
	run               func(ctx context.Context, s system, q queue, o scale) (any, error)
}

// cells lists the cells in the order of the measurements and of the tables. The first is clean. The last one takes so
// long that the speed of the machine may change, which concerns no other cell.
func cells(o scale) []cell {
	return []cell{
		{"clean", "clean", "the steady state without pressure.", steadyUnder(noPressure)},
		{"snapshot", "pinned snapshot", "a transaction with the isolation level *repeatable read* is open for the whole measurement. Vacuum cannot " +
			"remove rows that died after it began.", steadyUnder(pinSnapshot)},
		{"backlog", "growing backlog", "another producer also stores half of the clean rate. The figure is the rate at which tasks run.", steadyUnder(growBacklog)},
		{"bursts", "bursts", fmt.Sprintf("no task waits for %s, then a burst arrives that takes %s at the clean rate, and so on. The figure is the "+
			"rate from the call that stores the first task of a burst to the last handler; pauses do not count.", idleTime, burstTime), measureBursts},
		{"autovacuum", "no autovacuum", "autovacuum is off for the tables of the system.", steadyUnder(stopAutovacuum)},
		{"bloat", "bloat", fmt.Sprintf("the steady state after %s tasks have run, with no vacuum but autovacuum.", formatNumber(float64(o.Bloat))),
			steadyUnder(runThrough)},
	}
}

// pressureSteps returns a step for each cell.
func pressureSteps() (list []step) {
	for _, c := range cells(scale{}) {
		list = append(list, c.step())
	}
	return list
}

func (c cell) step() step {
	return step{name: pressureCommand + " " + c.name, startsEmpty: true, run: c.run}
}

// pressure puts PostgreSQL under pressure when the measurement of a rate starts. The function end ends the pressure when
// the measurement ends, and may add figures. It is nil if there is nothing to end.
type pressure func(ctx context.Context, s system, q *countingQueue, o scale) (end func(figures) error, err error)

// steadyUnder returns the function of a step that measures a steady state under pressure. Before the pressure starts,
// the tables are vacuumed, so that all cells start in the same state.
func steadyUnder(press pressure) func(context.Context, system, queue, scale) (any, error) {
	return func(ctx context.Context, s system, q queue, o scale) (any, error) {
		ctx, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		counting, found := &countingQueue{Queue: q}, figures{}
		var end func(figures) error
		rate, err := o.Steady(ctx, counting, func() {
			err := s.analyze(ctx)
			if err == nil {
				end, err = press(ctx, s, counting, o)
			}
			if err != nil {
				fail(err)
			}
		}, func() {
			if end == nil {
				return
			}
			if err := end(found); err != nil {
				fail(err)
			}
		})
		if err := cmp.Or(context.Cause(ctx), err); err != nil {
			return nil, err
		}
		found[steady] = rate.PerSecond()
		return found, nil
	}
}

func noPressure(context.Context, system, *countingQueue, scale) (func(figures) error, error) {
	return nil, nil
}

// pinSnapshot opens a transaction that needs the rows of the instant at which it began.
func pinSnapshot(ctx context.Context, _ system, _ *countingQueue, _ scale) (func(figures) error, error) {
	conn, err := pgx.Connect(ctx, os.Getenv(databaseURL))
	if err != nil {
		return nil, err
	}
	for _, statement := range []string{"begin isolation level repeatable read", "select 1 from pg_class limit 1"} { // the first query takes the snapshot
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	return func(figures) error {
		_, err := conn.Exec(ctx, "commit") // fails if the transaction has ended early
		return errors.Join(err, conn.Close(ctx))
	}, nil
}

// growBacklog stores tasks in addition to those of the steady state, which stores one task for each task that runs.
func growBacklog(ctx context.Context, _ system, q *countingQueue, o scale) (func(figures) error, error) {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	stored, began := 0, time.Now()
	go func() {
		var err error
		for due := began; err == nil && backoff.Sleep(ctx, time.Until(due)) == nil; {
			_, err = o.Bulk(context.WithoutCancel(ctx), q, o.Batch)
			stored += o.Batch
			due = due.Add(time.Duration(float64(o.Batch) / (o.Clean / 2) * float64(time.Second)))
		}
		ended <- err
	}()
	return func(found figures) error {
		stop()
		err := <-ended
		found[growth] = load.Rate{Tasks: stored, Took: time.Since(began)}.PerSecond()
		return err
	}, nil
}

// stopAutovacuum turns autovacuum off for the tables of the system, and not of the server, which may have other users.
// If the process is killed, it stays off until the next reset of the system, which creates new tables.
func stopAutovacuum(ctx context.Context, s system, _ *countingQueue, _ scale) (func(figures) error, error) {
	const alter = `do $$ declare t regclass; begin
		for t in select oid from pg_class where relkind = 'r' and relnamespace = '%s'::regnamespace loop
			execute format('alter table %%s %s (autovacuum_enabled%s)', t);
		end loop;
	end $$`
	return func(figures) error { return execute(ctx, fmt.Sprintf(alter, s.schema, "reset", "")) },
		execute(ctx, fmt.Sprintf(alter, s.schema, "set", " = false"))
}

// runThrough waits until many tasks have run.
func runThrough(ctx context.Context, _ system, q *countingQueue, o scale) (func(figures) error, error) {
	for done := q.progress(); done.Done < o.Bloat; done = q.progress() {
		if time.Since(done.Last) > o.Patience {
			return nil, fmt.Errorf("%d of %d tasks were run, and none for %s", done.Done, o.Bloat, o.Patience)
		}
		if err := backoff.Sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func measureBursts(ctx context.Context, s system, q queue, o scale) (any, error) {
	var analyzed error
	rate, err := o.Bursts(ctx, q, int(o.Clean*burstTime.Seconds()), idleTime, func() { analyzed = s.analyze(ctx) })
	return figures{steady: rate.PerSecond()}, errors.Join(err, analyzed)
}

// pressureBench contains the options and the results of one execution of the command. The keys of found are the cell
// and then the system, because a ratio compares two cells of one system.
type pressureBench struct {
	report
	cells  []cell
	failed []string // measurements
}

func runPressure(ctx context.Context, args []string) (err error) {
	o := scale{Options: load.Defaults()}
	set := flag.NewFlagSet("bench "+pressureCommand, flag.ExitOnError)
	rounds := set.Int("rounds", 3, "number of `rounds`; the tables show medians")
	set.DurationVar(&o.For, "for", 2*time.Minute, "duration of each measurement of a rate")
	set.IntVar(&o.Bloat, "bloat", 10_000_000, "number of tasks that run before the rate of the cell bloat is measured")
	names := set.String("systems", "", "`names` of the systems to measure, separated by commas; empty means all")
	only := set.String("only", "", "`cells` to measure in addition to clean, separated by commas: snapshot, backlog, bursts, autovacuum, bloat; empty means all")
	path := set.String("report", "", "Markdown `file` to write; empty prints the page")
	_ = set.Parse(args) // exits the program on an error
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if *rounds < 1 || o.For <= 0 || o.Bloat < 1 {
		return errors.New("-rounds and -bloat must be at least 1, and -for longer than 0s")
	}
	b := pressureBench{}
	if b.cells, err = selectCells(cells(o), *only); err != nil {
		return err
	}
	list := selectSystems(slices.DeleteFunc(slices.Clone(systems), func(s system) bool { return s.schema == "" }), *names)
	if len(list) == 0 {
		return errors.New("no system to measure; run: make bench-pressure")
	}
	if b.report, err = newReport(ctx, command("make bench-pressure", set), *rounds, o, list); err != nil {
		return err
	}
	err = b.measure(ctx)
	if ctx.Err() != nil {
		return err // do not overwrite a complete page with an interrupted one
	}
	if *path == "" {
		fmt.Print(b.page())
		return err
	}
	return errors.Join(err, os.WriteFile(*path, []byte(b.page()), 0o644))
}

// selectCells returns the first of the cells and those with the given names, which are separated by commas; no names mean
// all.
func selectCells(all []cell, names string) (selected []cell, err error) {
	if names == "" {
		return all, nil
	}
	wanted := strings.Split(names, ",")
	for i, c := range all {
		if i == 0 || slices.Contains(wanted, c.name) {
			selected = append(selected, c)
		}
		wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == c.name })
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("unknown cell %q; see -help", wanted[0])
	}
	return selected, nil
}

// measure runs all rounds. A system measures all cells one after another, so that little time passes between the clean
// rate and the others. If a measurement fails, measure continues with the next one.
func (b *pressureBench) measure(ctx context.Context) error {
	var failures []error
	for round := range b.rounds {
		for _, s := range order(b.systems, round) {
			o := b.scale
			for _, c := range b.cells {
				f, err := runStep[figures](ctx, s, c.step(), o)
				if err != nil {
					b.failed = append(b.failed, fmt.Sprintf("%s, %s, round %d", s.name, c.title, round+1))
					failures = append(failures, err)
					fmt.Fprintln(os.Stderr, "bench:", err) // measure returns this error much later
				}
				if c.name == b.cells[0].name {
					o.Clean = f[steady]
				}
				if ctx.Err() != nil || o.Clean == 0 {
					break
				}
				if err == nil {
					b.record(round, s, c, f)
				}
			}
			// The tables can have many gigabytes.
			cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
			failures = append(failures, s.reset(cleaning))
			cancel()
			if ctx.Err() != nil {
				return errors.Join(append(failures, ctx.Err())...)
			}
		}
	}
	return errors.Join(failures...)
}

// record stores the figures of a cell and prints them.
func (b *pressureBench) record(round int, s system, c cell, f figures) {
	for name, value := range f {
		if name == steady {
			name = c.name
		}
		b.found.add(round, name, s.name, value)
		fmt.Fprintf(os.Stderr, "%d  %-22s %-22s %12.3f\n", round+1, s.name, name, value)
	}
}

// page returns the page in Markdown.
func (b *pressureBench) page() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "# Speed under pressure\n\nWritten by `%s` on %s; run it to get your own figures.\n\n%s ", b.command, b.when.Format(time.DateOnly), b.conditions())
	fmt.Fprintf(text, "A rate is that of a steady state of %s, with about %s stored tasks waiting. After a warm-up the tables are vacuumed. Then the "+
		"pressure of the cell starts. The cells with an open snapshot, a backlog and bursts follow scenarios of "+
		"[postgresql-job-queue-benchmarking](https://github.com/hardbyte/postgresql-job-queue-benchmarking).\n\n", b.scale.For, formatNumber(float64(b.scale.Ahead)))
	for _, c := range b.cells {
		fmt.Fprintf(text, "- **%s**: %s\n", c.title, c.text)
	}
	fmt.Fprintf(text, "\n## Share of the clean rate\n\nThe rate in a cell, divided by the clean rate of the same round: the median of the rounds, "+
		"with the least and the most in parentheses. 1 means that the pressure costs nothing. —: not measured.\n\n%s", b.table(b.cells[1:], b.shares, formatRatio))
	fmt.Fprintf(text, "\n## Rates\n\nTasks per second: the median of the rounds, with the least and the most in parentheses.\n\n%s",
		b.table(append(slices.Clip(b.cells), cell{name: growth, title: growth}), b.found.values, formatNumber))
	if len(b.failed) > 0 {
		fmt.Fprintf(text, "\nThese measurements failed and have no figures:\n\n- %s\n", strings.Join(b.failed, "\n- "))
	}
	fmt.Fprintf(text, "\n## Settings of each system\n\n%s", b.settings())
	return text.String()
}

// shares returns, for each round, the rate in a cell divided by the clean rate of the round.
func (b *pressureBench) shares(cell, system string) []float64 {
	return b.found.turns(cell, b.cells[0].name, system)
}

// table returns a table with a row for each cell that has figures and a column for each system.
func (b *pressureBench) table(list []cell, values func(cell, system string) []float64, format func(float64) string) string {
	rows := [][]string{{""}}
	for _, s := range b.systems {
		rows[0] = append(rows[0], s.title())
	}
	for _, c := range list {
		if len(b.found[c.name]) == 0 {
			continue
		}
		row := []string{c.title}
		for _, s := range b.systems {
			text, all := "—", values(c.name, s.name)
			if middle, ok := median(all); ok {
				text = fmt.Sprintf("%s (%s to %s)", format(middle), format(slices.Min(all)), format(slices.Max(all)))
			}
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	return table(rows)
}
