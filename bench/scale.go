package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// scaleCommand is the first argument for the measurement of how Holdfast's speed scales.
const scaleCommand = "scale"

// cleanupTimeout is the time limit for deleting the test data.
const cleanupTimeout = 2 * time.Minute

// The places that are measured, and the systems in them. fullPlace keeps its finished tasks from round to round.
var (
	emptyPlace, fullPlace = place{"bench_scale", "bench-scale"}, place{"bench_scale_full", "bench-scale-full"}
	empty, full           = emptyPlace.system("Holdfast, empty"), fullPlace.system("Holdfast, full")
	places                = []system{empty, full}
)

// scaleSteps are the steps that the comparison does not have.
var scaleSteps = []step{drainStep, workerStep, enduranceStep}

// part is one part of the measurement. Only one part at a time uses the places.
type part struct {
	name, title string
	measure     func(*scaleBench, context.Context) error
	section     func(*scaleBench) string // returns its section of the page in Markdown
}

var parts = []part{
	{"finished", "Many finished tasks", (*scaleBench).measureFinished, (*scaleBench).finishedSection},
	{"backlog", "A large backlog", (*scaleBench).measureBacklog, (*scaleBench).backlogSection},
	{"workers", "More workers", (*scaleBench).measureWorkers, (*scaleBench).workersSection},
	{"endurance", "Time", (*scaleBench).measureEndurance, (*scaleBench).enduranceSection},
}

// scaleBench contains the options and the results of one execution of the command.
type scaleBench struct {
	load.Options
	rounds       int
	finished     int // tasks that the full store keeps
	small, large int // backlogs
	drains       int // drains of the small backlog in a round
	tasks        int // in the backlog that several workers drain
	endurance    time.Duration

	found   results // by condition
	samples []sample
	failed  []string // names of parts
}

func runScale(ctx context.Context, args []string) error {
	s := &scaleBench{Options: load.Defaults(), found: make(results)}
	s.For = 30 * time.Second // so that a vacuum, which runs once a minute, has less effect
	set := flag.NewFlagSet("bench "+scaleCommand, flag.ExitOnError)
	names := set.String("only", "", "`parts` to measure, separated by commas: "+strings.Join(partNames(), ", ")+"; empty means all")
	path := set.String("report", "", "Markdown `file` to write; empty prints the page")
	set.IntVar(&s.rounds, "rounds", 3, "number of `rounds`; each measures every condition once, and the tables show medians")
	set.IntVar(&s.finished, "finished", 5_000_000, "finished: number of finished tasks in the store")
	set.DurationVar(&s.For, "for", s.For, "finished: duration of a steady state")
	set.IntVar(&s.small, "small", 50_000, "backlog: number of tasks in the small backlog")
	set.IntVar(&s.large, "large", 1_000_000, "backlog: number of tasks in the large backlog")
	set.IntVar(&s.drains, "drains", 5, "backlog: number of small backlogs that are drained in a round; their times are added")
	set.IntVar(&s.tasks, "tasks", 500_000, "workers: number of tasks in the backlog")
	set.DurationVar(&s.endurance, "endurance", 10*time.Minute, "endurance: duration of the steady state")
	_ = set.Parse(args) // exits the program on an error
	selected, err := s.check(set.Args(), *names)
	if err != nil {
		return err
	}
	if missing := empty.missing(); len(missing) > 0 {
		return fmt.Errorf("%s not set; run: make bench-scale", strings.Join(missing, ", "))
	}
	p := scalePage{
		when: time.Now(), command: command("make bench-scale", set), cores: runtime.NumCPU(), versions: []string{runtime.Version()}, scaleBench: s, parts: selected,
	}
	versions, err := serverVersions(ctx, places)
	if err != nil {
		return err
	}
	p.versions = append(p.versions, versions...)
	err = s.measure(ctx, selected, clean)
	if ctx.Err() != nil {
		return err // do not overwrite a complete page with an interrupted one
	}
	return errors.Join(err, writePage(*path, p.page()))
}

// check checks the options. It returns the parts with the given names; no names mean all.
func (s *scaleBench) check(rest []string, names string) (selected []part, err error) {
	if len(rest) > 0 {
		return nil, fmt.Errorf("unexpected argument %q", rest[0])
	}
	for _, n := range []int{s.rounds, s.finished, s.small, s.large, s.drains, s.tasks} {
		if n < 1 {
			return nil, fmt.Errorf("%d: every number must be at least 1", n)
		}
	}
	if s.For <= 0 || s.endurance <= 0 {
		return nil, errors.New("every duration must be longer than 0s")
	}
	if names == "" {
		return parts, nil
	}
	for _, name := range strings.Split(names, ",") {
		i := slices.Index(partNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("unknown part %q; use %s", name, strings.Join(partNames(), ", "))
		}
		selected = append(selected, parts[i])
	}
	return selected, nil
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// measure runs the parts one after another, and deletes the test data after each. If a part fails, measure continues
// with the next one.
func (s *scaleBench) measure(ctx context.Context, selected []part, clean func(context.Context) error) error {
	var failures []error
	fail := func(p part, err error) {
		err = fmt.Errorf("%s: %w", p.name, err)
		failures = append(failures, err)
		fmt.Fprintln(os.Stderr, "bench:", err) // measure may return this error much later
	}
	for _, p := range selected {
		if err := p.measure(s, ctx); err != nil {
			fail(p, err)
			s.failed = append(s.failed, p.name)
		}
		if err := clean(ctx); err != nil {
			fail(p, fmt.Errorf("clean up: %w", err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

// clean deletes all test data, even if ctx is done.
func clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	return errors.Join(emptyPlace.delete(ctx), fullPlace.delete(ctx))
}

// record stores a figure and prints it.
func (s *scaleBench) record(round int, condition, measure string, value float64) {
	s.found.add(round, condition, measure, value)
	fmt.Fprintf(os.Stderr, "%d  %-28s %-30s %12.3f\n", round+1, condition, measure, value)
}

// runStep runs a step in a new process and returns its result.
func runStep[T any](ctx context.Context, where system, st step, o scale) (found T, err error) {
	if err = prepare(ctx, where, st); err == nil {
		err = runInProcess(ctx, where, st, o, &found)
	}
	if err != nil {
		err = fmt.Errorf("%s, %s: %w", where.name, st.name, err)
	}
	return found, err
}

// prepare prepares the system for a step. Then it runs a checkpoint, so that the step does not pay for the writes of
// earlier steps.
func prepare(ctx context.Context, where system, st step) error {
	if err := where.prepare(ctx, st); err != nil {
		return err
	}
	if err := execute(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("%w; grant pg_checkpoint to the user, or be a superuser", err)
	}
	return nil
}
