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

// scaleCommand is the first argument that asks how Holdfast's own speed holds, instead of the comparison.
const scaleCommand = "scale"

// cleaning is how long deleting what was measured may take.
const cleaning = 2 * time.Minute

// The places that are measured, and the systems in them. A full one is kept from round to round.
var (
	emptyPlace, fullPlace = place{"bench_scale", "bench-scale"}, place{"bench_scale_full", "bench-scale-full"}
	empty, full           = emptyPlace.system("Holdfast, empty"), fullPlace.system("Holdfast, full")
	places                = []system{empty, full}
)

// scaleSteps are taken beside those of the comparison.
var scaleSteps = []step{drainStep, workerStep, endureStep}

// part is one answer to whether the speed holds. It has the places for itself.
type part struct {
	name, title string
	measure     func(*scaling, context.Context) error
	section     func(*scaling) string // of the page, in Markdown
}

var parts = []part{
	{"finished", "Many finished tasks", (*scaling).measureFinished, (*scaling).finishedSection},
	{"backlog", "A large backlog", (*scaling).measureBacklog, (*scaling).backlogSection},
	{"workers", "More workers", (*scaling).measureWorkers, (*scaling).workersSection},
	{"endurance", "Time", (*scaling).measureEndurance, (*scaling).enduranceSection},
}

// scaling is one run: what is measured, and what was found.
type scaling struct {
	load.Options
	rounds       int
	finished     int // tasks that are kept
	small, large int // backlogs
	drains       int // of the small one, in a round
	tasks        int // that several workers drain
	endurance    time.Duration

	found   results // by condition
	minutes []minute
	failed  []string // names of parts
}

func runScale(ctx context.Context, args []string) error {
	s := &scaling{Options: load.Defaults(), found: make(results)}
	s.For = 30 * time.Second // so that vacuums, which come once a minute, weigh less
	set := flag.NewFlagSet("bench "+scaleCommand, flag.ExitOnError)
	names := set.String("only", "", "parts to measure, separated by commas: "+strings.Join(partNames(), ", ")+"; empty means all")
	path := set.String("report", "", "the Markdown file to write; empty means that the page goes to stdout")
	set.IntVar(&s.rounds, "rounds", 3, "how often each condition is measured, in turns; the tables show medians")
	set.IntVar(&s.finished, "finished", 5_000_000, "finished: tasks that are kept")
	set.DurationVar(&s.For, "for", s.For, "finished: how long a steady state is measured")
	set.IntVar(&s.small, "small", 50_000, "backlog: tasks of the small one")
	set.IntVar(&s.large, "large", 1_000_000, "backlog: tasks of the large one")
	set.IntVar(&s.drains, "drains", 5, "backlog: how many small ones are drained in a round, whose times are added")
	set.IntVar(&s.tasks, "tasks", 500_000, "workers: tasks that they drain")
	set.DurationVar(&s.endurance, "endurance", 10*time.Minute, "endurance: how long the steady state is held")
	_ = set.Parse(args) // it exits
	chosen, err := s.check(set.Args(), *names)
	if err != nil {
		return err
	}
	if missing := empty.missing(); len(missing) > 0 {
		return fmt.Errorf("%s not set; run: make bench-scale", strings.Join(missing, ", "))
	}
	p := scalePage{
		when: time.Now(), command: command("make bench-scale", set), cores: runtime.NumCPU(), versions: []string{runtime.Version()}, scaling: s, parts: chosen,
	}
	versions, err := serverVersions(ctx, places)
	if err != nil {
		return err
	}
	p.versions = append(p.versions, versions...)
	err = s.measure(ctx, chosen, clean)
	if ctx.Err() != nil {
		return err // a page of what was broken off is worth less than the one that may be there
	}
	return errors.Join(err, p.write(*path))
}

// check looks at what was asked for.
func (s *scaling) check(rest []string, names string) (chosen []part, err error) {
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
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// measure takes the parts one after the other, and cleans up behind each. One that fails leaves the others their figures.
func (s *scaling) measure(ctx context.Context, chosen []part, clean func(context.Context) error) error {
	var failures []error
	fail := func(p part, err error) {
		err = fmt.Errorf("%s: %w", p.name, err)
		failures = append(failures, err)
		fmt.Fprintln(os.Stderr, "bench:", err) // the end may be far away
	}
	for _, p := range chosen {
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

// clean deletes all that was measured in, also after an interrupt.
func clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleaning)
	defer cancel()
	return errors.Join(emptyPlace.delete(ctx), fullPlace.delete(ctx))
}

// see keeps a figure, and tells it.
func (s *scaling) see(round int, condition, measure string, value float64) {
	s.found.add(round, condition, measure, value)
	fmt.Fprintf(os.Stderr, "%d  %-28s %-30s %12.3f\n", round+1, condition, measure, value)
}

// take takes a step, and returns what it found.
func take[T any](ctx context.Context, where system, st step, o scale) (found T, err error) {
	if err = prepare(ctx, where, st); err == nil {
		err = ask(ctx, where, st, o, &found)
	}
	if err != nil {
		err = fmt.Errorf("%s, %s: %w", where.name, st.name, err)
	}
	return found, err
}

// prepare also has all of it written to the disk that the steps before have left to be written, so that none pays for
// another.
func prepare(ctx context.Context, where system, st step) error {
	if err := where.prepare(ctx, st); err != nil {
		return err
	}
	if err := execute(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("%w; grant pg_checkpoint to the user, or be a superuser", err)
	}
	return nil
}
