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

// figures are the results of a measurement, by column.
type figures map[string]float64

// The names of the columns.
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

// step is a measurement that runs in a new process.
type step struct {
	name        string
	startsEmpty bool // the system is reset before the step
	// followsPrevious means that a system runs the step right after the step before it. Otherwise all systems run that
	// step first.
	followsPrevious bool
	turns           int // how many times each system runs the step in a round; 0 means once
	// executors is how many tasks the worker runs at once; 0 means the number of the system.
	executors int
	// skip reports whether a system skips the step; nil means that no system does.
	skip func(system) bool
	// run returns figures, or another value that the parent process reads as JSON.
	run func(ctx context.Context, s system, q queue, o scale) (any, error)
}

// scale configures how much to measure.
type scale struct {
	load.Options
	Backlog  int    // number of tasks that a drain runs
	PickUps  int    // number of tasks of an idle pick-up
	Delayed  int    // number of delayed tasks
	Profiles string // folder for CPU profiles of each step, or empty
	// Clean is the clean rate of the system in tasks per second; only for the cells that need it.
	Clean float64
	Bloat int // number of tasks that run before the rate of the cell bloat is measured
	// TaskDuration is how long a task runs in the steps that kill a worker or a broker.
	TaskDuration time.Duration
}

// steps lists the steps of the comparison in their order. All systems run a step within one or two minutes, because the
// speed of a machine can change by half within a quarter of an hour.
var steps = []step{
	{name: "steady", startsEmpty: true, run: measureSteady},
	{name: "bulk", startsEmpty: true, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		rate, err := o.Batches(ctx, q)
		return figures{bulk: rate.PerSecond()}, err
	}},
	{name: "singles256", startsEmpty: true, followsPrevious: true, run: singles(256, singles256)},
	{name: "singles16", startsEmpty: true, followsPrevious: true, run: singles(16, singles16)},
	{name: "fill", startsEmpty: true, run: fill},
	{name: "drain", followsPrevious: true, run: func(ctx context.Context, s system, q queue, o scale) (any, error) {
		rate, err := o.Drain(ctx, q, o.Backlog)
		if err != nil {
			return nil, err
		}
		found := figures{drain: rate.PerSecond()}
		if !s.manyExecutors() {
			found[workerMemory], err = memoryMiB(workerProcess(q), peak)
		}
		return found, err
	}},
	// Each running task needs memory. So all systems run the same number of tasks at once while memory is measured.
	{name: "fill again", startsEmpty: true, followsPrevious: true, skip: fewExecutors, run: fill},
	{name: "memory", followsPrevious: true, executors: concurrency, skip: fewExecutors, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		if _, err := o.Drain(ctx, q, o.Backlog); err != nil {
			return nil, err
		}
		most, err := memoryMiB(workerProcess(q), peak)
		return figures{workerMemory: most}, err
	}},
	// If the machine stalls, the stall determines the slowest tasks of a turn. With several short turns, a stall
	// affects only some of them.
	{name: "pickup", startsEmpty: true, turns: 5, run: pickUp(pickUp50, pickUp99)},
	{name: "delayed", startsEmpty: true, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		rate, times, err := o.Options.Delayed(ctx, q, o.Delayed, 2000, 2*time.Second)
		if err == nil && rate.PerSecond() < 1950 { // at a lower rate the delays cannot be compared
			fmt.Fprintf(os.Stderr, "delays skipped: the system stores only %.0f delayed tasks per second\n", rate.PerSecond())
			return figures{}, nil
		}
		return figures{late99: ms(load.Percentile(times, 99))}, err
	}},
}

// manyExecutors reports whether the worker runs more tasks at once while speed is measured than while memory is
// measured.
func (s system) manyExecutors() bool { return s.executors > concurrency }

func fewExecutors(s system) bool { return !s.manyExecutors() }

// fill stores the backlog of a drain.
func fill(ctx context.Context, _ system, q queue, o scale) (any, error) {
	_, err := o.Bulk(ctx, q, o.Backlog)
	return figures{}, err
}

// singles returns the function of a step that stores tasks one by one from several callers. Its result is the given
// column.
func singles(callers int, column string) func(context.Context, system, queue, scale) (any, error) {
	return func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		rate, err := o.Singles(ctx, q, callers)
		return figures{column: rate.PerSecond()}, err
	}
}

// pickUp returns the function of a step that stores one task at a time. Its results are the median and the 99th
// percentile of the pick-up time, in the given columns.
func pickUp(p50, p99 string) func(context.Context, system, queue, scale) (any, error) {
	return func(ctx context.Context, _ system, q queue, o scale) (any, error) {
		times, err := o.PickUp(ctx, q, o.PickUps, 20*time.Millisecond)
		return figures{p50: ms(load.Percentile(times, 50)), p99: ms(load.Percentile(times, 99))}, err
	}
}

// stepOf returns the step of the comparison with the given name.
func stepOf(name string) step {
	return steps[slices.IndexFunc(steps, func(st step) bool { return st.name == name })]
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measureSteady runs a steady state. It returns the rate and the processor time per 1,000 tasks.
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

// measure runs one step in a new process.
func measure(ctx context.Context, s system, st step, o scale) (f figures, err error) {
	if err := s.prepare(ctx, st); err != nil {
		return nil, err
	}
	err = runInProcess(ctx, s, st, o, &f)
	return f, err
}

// prepare resets the system if the step starts empty. Otherwise it refreshes the statistics of the tables.
func (s system) prepare(ctx context.Context, st step) error {
	switch {
	case st.startsEmpty:
		if err := s.reset(ctx); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	case s.analyze != nil:
		return s.analyze(ctx)
	}
	return nil
}

// runInProcess runs a step in a new process and decodes its result into found.
func runInProcess(ctx context.Context, s system, st step, o scale, found any) error {
	cmd, err := stepCommand(ctx, s, st, o)
	if err != nil {
		return err
	}
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	return json.Unmarshal(out, found)
}

// stepCommand returns the command that runs a step in a new process. The process is killed when ctx is done.
func stepCommand(ctx context.Context, s system, st step, o scale) (*exec.Cmd, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-measure", s.name, "-step", st.name, "-options", string(options))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// runChild is the main function of the process that runs a step. It writes the result of the step to standard output.
func runChild(ctx context.Context, name, stepName, options string) error {
	var o scale
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	s, st, err := find(name, stepName)
	if err != nil {
		return err
	}
	// This program links the code of all systems. So the memory that it needs at the start does not count.
	start, err := memoryMiB(os.Getpid(), peak)
	if err != nil {
		return err
	}
	q, err := s.open(ctx, s.executorsFor(st))
	if err != nil {
		return err
	}
	if worker := workerProcess(q); worker != os.Getpid() { // the memory that the worker process needs at its start does not count either
		if start, err = memoryMiB(worker, peak); err != nil {
			return errors.Join(err, q.Close())
		}
	}
	stop, err := o.profile(s, st)
	if err != nil {
		return err
	}
	found, err := st.run(ctx, s, q, o)
	if err := errors.Join(err, stop(), q.Close()); errors.Is(err, errUnsupported) {
		found = figures{}
	} else if err != nil {
		return err
	}
	if f, ok := found.(figures); ok && f[workerMemory] > 0 {
		f[workerMemory] -= start
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// find returns the system and the step with the given names. It searches the systems and steps of all commands.
func find(name, stepName string) (system, step, error) {
	allSystems, allSteps := slices.Concat(systems, places, featurePlaces), slices.Concat(steps, scaleSteps, featureSteps, pressureSteps())
	s := slices.IndexFunc(allSystems, func(s system) bool { return s.name == name })
	st := slices.IndexFunc(allSteps, func(st step) bool { return st.name == stepName })
	if s < 0 || st < 0 {
		return system{}, step{}, fmt.Errorf("no step %q of system %q", stepName, name)
	}
	return allSystems[s], allSteps[st], nil
}

// profile starts a CPU profile if Profiles is set. The caller must call stop, which writes the profile.
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
