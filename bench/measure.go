package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// figures are what a measurement found, by the names of columns.
type figures map[string]float64

// The columns.
const (
	bulk         = "bulk enqueue/s"
	drain        = "drain/s"
	workerMemory = "worker, MiB above start"
	steady       = "steady state/s"
	cpu          = "CPU s per 1,000, steady"
	singles16    = "one by one from 16/s"
	singles256   = "one by one from 256/s"
	pickUp50     = "idle pick-up p50, ms"
	pickUp99     = "idle pick-up p99, ms"
	late99       = "delayed 2,000/s, p99 late, ms"
)

// step is a measurement that runs in a process of its own.
type step struct {
	name  string
	fresh bool // begins with nothing stored
	// goesOn means that a system takes it right after the step before; otherwise all systems take that one first.
	goesOn bool
	turns  int // that each system has of it in a round; 0 is one
	// executors is how many tasks the worker runs at once; 0 leaves it to the system.
	executors int
	// unfit says which systems do not take it; nil is none.
	unfit func(system) bool
	// run returns figures, or whatever else goes to the parent as JSON.
	run func(ctx context.Context, s system, q queue, o scale) (any, error)
}

// scale says how much is measured.
type scale struct {
	load.Options
	Backlog  int // tasks of bulk and drain
	PickUps  int
	Delayed  int
	Profiles string // folder for CPU profiles of each step, or empty
	// Lasts is how long a task runs, where a step kills something.
	Lasts time.Duration
}

// steps in their order. What is compared is measured within a minute or two: a machine can be half as fast a quarter of an
// hour later.
var steps = []step{
	{name: "steady", fresh: true, run: measureSteady},
	{name: "bulk", fresh: true, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		rate, err := o.Batches(ctx, q)
		return figures{bulk: rate.PerSecond()}, err
	}},
	{name: "singles256", fresh: true, goesOn: true, run: singles(256, singles256)},
	{name: "singles16", fresh: true, goesOn: true, run: singles(16, singles16)},
	{name: "fill", fresh: true, run: fill},
	{name: "drain", goesOn: true, run: func(ctx context.Context, s system, q queue, o scale) (any, error) {
		rate, err := o.Drain(ctx, q, o.Backlog)
		if err != nil {
			return nil, err
		}
		found := figures{drain: rate.PerSecond()}
		if !s.crowded() {
			found[workerMemory], err = memoryMiB(workerProcess(q), peak)
		}
		return found, err
	}},
	// What a task in work takes counts as often as there are such tasks, so none may have more of them.
	{name: "fill again", fresh: true, goesOn: true, unfit: comfortable, run: fill},
	{name: "memory", goesOn: true, executors: concurrency, unfit: comfortable, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		if _, err := o.Drain(ctx, q, o.Backlog); err != nil {
			return nil, err
		}
		most, err := memoryMiB(workerProcess(q), peak)
		return figures{workerMemory: most}, err
	}},
	// A machine that stands still for a moment has all of a turn's slowest tasks. Of many short turns only some.
	{name: "pickup", fresh: true, turns: 5, run: pickUp(pickUp50, pickUp99)},
	{name: "delayed", fresh: true, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		rate, times, err := o.Options.Delayed(ctx, q, o.Delayed, 2000, 2*time.Second)
		if err == nil && rate.PerSecond() < 1950 { // its lateness at another rate says nothing beside the others'
			fmt.Fprintf(os.Stderr, "no lateness: it stores only %.0f delayed tasks a second\n", rate.PerSecond())
			return figures{}, nil
		}
		return figures{late99: ms(load.Percentile(times, 99))}, err
	}},
}

// crowded reports whether the worker runs more tasks at once where speed is measured than where memory is.
func (s system) crowded() bool { return s.executors > concurrency }

func comfortable(s system) bool { return !s.crowded() }

// fill stores the backlog of a drain.
func fill(ctx context.Context, _ system, q queue, o scale) (any, error) {
	_, err := o.Bulk(ctx, q, o.Backlog)
	return figures{}, err
}

// singles stores tasks one by one from some callers, for a column.
func singles(callers int, column string) func(context.Context, system, queue, scale) (any, error) {
	return func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		rate, err := o.Singles(ctx, q, callers)
		return figures{column: rate.PerSecond()}, err
	}
}

// pickUp stores tasks that come alone, for two columns.
func pickUp(half, most string) func(context.Context, system, queue, scale) (any, error) {
	return func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		times, err := o.PickUp(ctx, q, o.PickUps, 20*time.Millisecond)
		return figures{half: ms(load.Percentile(times, 50)), most: ms(load.Percentile(times, 99))}, err
	}
}

// stepOf is the step of the comparison that has a name.
func stepOf(name string) step {
	return steps[slices.IndexFunc(steps, func(st step) bool { return st.name == name })]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func measureSteady(ctx context.Context, s system, q queue, o scale) (any, error) {
	var used time.Duration
	var problems []error
	clock := func() time.Duration {
		now, err := processorTime(workerProcess(q))
		problems = append(problems, err)
		return now
	}
	rate, err := o.Steady(ctx, q, func() {
		if s.analyze != nil {
			problems = append(problems, s.analyze(ctx))
		}
		used = -clock()
	}, func() { used += clock() })
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	return figures{steady: rate.PerSecond(), cpu: used.Seconds() * 1000 / float64(rate.Tasks)}, nil
}

// measure runs one step in a process of its own.
func measure(ctx context.Context, s system, st step, o scale) (f figures, err error) {
	if err := s.prepare(ctx, st); err != nil {
		return nil, err
	}
	err = ask(ctx, s, st, o, &f)
	return f, err
}

// prepare makes the system ready for a step.
func (s system) prepare(ctx context.Context, st step) error {
	switch {
	case st.fresh:
		if err := s.fresh(ctx); err != nil {
			return fmt.Errorf("make it empty: %w", err)
		}
	case s.analyze != nil:
		return s.analyze(ctx)
	}
	return nil
}

// ask has a process of its own take a step, and reads what it found.
func ask(ctx context.Context, s system, st step, o scale, found any) error {
	cmd, err := process(ctx, s, st, o)
	if err != nil {
		return err
	}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, found)
}

// process is one that takes a step. It ends with ctx.
func process(ctx context.Context, s system, st step, o scale) (*exec.Cmd, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-measure", s.name, "-step", st.name, "-options", string(options))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// child is the process that takes one step.
func child(ctx context.Context, name, stepName, options string) error {
	var o scale
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	s, st, err := find(name, stepName)
	if err != nil {
		return err
	}
	// All systems are linked into this program. The memory which that takes is not the worker's.
	start, err := memoryMiB(os.Getpid(), peak)
	if err != nil {
		return err
	}
	q, err := s.open(ctx, s.executorsIn(st))
	if err != nil {
		return err
	}
	if worker := workerProcess(q); worker != os.Getpid() { // nor is that of another program, before it begins
		if start, err = memoryMiB(worker, peak); err != nil {
			return errors.Join(err, q.Close())
		}
	}
	stop, err := o.profile(s, st)
	if err != nil {
		return err
	}
	found, err := st.run(ctx, s, q, o)
	if err := errors.Join(err, stop(), q.Close()); errors.Is(err, errUnfit) {
		found = figures{}
	} else if err != nil {
		return err
	}
	if f, ok := found.(figures); ok && f[workerMemory] > 0 {
		f[workerMemory] -= start
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// find knows all steps: those of the comparison and those of a look at how speed holds.
func find(name, stepName string) (system, step, error) {
	allSystems, allSteps := slices.Concat(systems, places), slices.Concat(steps, scaleSteps, []step{attendStep})
	s := slices.IndexFunc(allSystems, func(s system) bool { return s.name == name })
	st := slices.IndexFunc(allSteps, func(st step) bool { return st.name == stepName })
	if s < 0 || st < 0 {
		return system{}, step{}, fmt.Errorf("there is no step %q of %q", stepName, name)
	}
	return allSystems[s], allSteps[st], nil
}

// profile begins a CPU profile, if profiles are asked for.
func (o scale) profile(s system, st step) (stop func() error, err error) {
	if o.Profiles == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(filepath.Join(o.Profiles, strings.ReplaceAll(s.name+"-"+st.name, " ", "-")+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
