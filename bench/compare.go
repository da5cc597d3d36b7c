package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// compareCommand is the first argument for the comparison of two builds of Holdfast.
const compareCommand = "compare"

// The builds that are compared; a column of the results has the values of one.
const (
	baseBuild = "base"
	headBuild = "head"
)

// memory is the figure of the largest resident size of the process, in MiB.
const memory = "peak memory of the process, MiB"

// serversPlace and filePlace are the places where both builds are measured.
const (
	serversPlace = "servers"
	filePlace    = "file"
)

// benchRun is a call of `holdfast bench`. Each runs in a process of its own, so that its processor time and its memory
// are those of what it measures.
type benchRun struct {
	only string
	// tasks returns the number of tasks that a call has run, by its figures and its options. It is nil if a call runs too
	// few tasks for a figure of processor time.
	tasks func(*comparing, map[string]float64) float64
}

var benchRuns = []benchRun{
	{"bulk,drain", func(c *comparing, _ map[string]float64) float64 { return float64(c.tasks) }},
	{"steady", func(c *comparing, found map[string]float64) float64 {
		return found["steady state"] * (c.time + min(load.Defaults().WarmUp, c.time)).Seconds()
	}},
	{"single", nil},
	{"pickup", nil},
}

// comparing contains the options and, of the place that is measured, the results.
type comparing struct {
	programs map[string]string // path by build
	rounds   int
	time     time.Duration // of each call that measures a rate over time
	tasks    int           // in bulk and drain
	runs     []benchRun
	// setup has the processor time of a call with one task, by build and program. It is not part of the figures: it is that
	// of the start and of the tables.
	setup map[string]map[string]time.Duration
	found results  // by build, figure and round
	names []string // the figures, in the order of their measurement
}

func runCompare(ctx context.Context, args []string) error {
	c := &comparing{programs: make(map[string]string), runs: benchRuns}
	set := flag.NewFlagSet("bench "+compareCommand, flag.ExitOnError)
	base := set.String("base", "", "`program` of the older build")
	head := set.String("head", "bin/holdfast", "`program` of the newer build")
	set.IntVar(&c.rounds, "rounds", 5, "number of `rounds`; the tables show medians")
	set.DurationVar(&c.time, "for", 6*time.Second, "duration of each measurement of a rate")
	set.IntVar(&c.tasks, "tasks", 200_000, "number of tasks in bulk and drain")
	only := set.String("only", "", "`measurements`: bulk,drain or steady or single or pickup; empty means all")
	places := set.String("places", serversPlace+","+filePlace, "`places` to measure")
	_ = set.Parse(args) // exits the program on an error
	c.programs[baseBuild], c.programs[headBuild] = *base, *head
	if *only != "" {
		c.runs = slices.DeleteFunc(slices.Clone(c.runs), func(r benchRun) bool { return r.only != *only })
	}
	switch {
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	case *base == "":
		return errors.New("no -base; run: make compare BASE=<commit>")
	case c.rounds < 1 || c.tasks < 1 || c.time < time.Second:
		return errors.New("-rounds and -tasks must be at least 1, and -for at least 1s")
	case len(c.runs) == 0:
		return fmt.Errorf("unknown measurement %q in -only; see -help", *only)
	}
	for _, place := range strings.Split(*places, ",") {
		if err := c.measure(ctx, place); err != nil {
			return err
		}
		fmt.Print(c.section(place))
	}
	return nil
}

// environment returns the environment of the calls at a place.
func environment(place string) ([]string, error) {
	env := os.Environ()
	switch place {
	case filePlace:
		return append(env, "DATABASE_URL=", "AMQP_URL="), nil
	case serversPlace:
		if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
			return nil, errors.New("DATABASE_URL and AMQP_URL are not set; run: make compare BASE=<commit>")
		}
		return env, nil
	}
	return nil, fmt.Errorf("unknown place %q; use %s or %s", place, serversPlace, filePlace)
}

// measure runs all rounds at a place. Both builds make each measurement one after the other, in turns, so that a change
// of the machine concerns both.
func (c *comparing) measure(ctx context.Context, place string) error {
	env, err := environment(place)
	if err != nil {
		return err
	}
	c.found, c.names, c.setup = make(results), nil, make(map[string]map[string]time.Duration)
	for build := range c.programs {
		_, used, err := c.call(ctx, build, benchRuns[0].only, 1, env)
		if err != nil {
			return fmt.Errorf("%s: %w", build, err)
		}
		c.setup[build] = used.processor
	}
	for round := range c.rounds {
		for _, r := range c.runs {
			for _, build := range order([]string{baseBuild, headBuild}, round) {
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s, %s\n", round+1, c.rounds, place, r.only, build)
				measures, used, err := c.call(ctx, build, r.only, c.tasks, env)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", r.only, build, err)
				}
				c.record(place, r, round, build, measures, used)
			}
		}
	}
	return nil
}

// usage is what a call used.
type usage struct {
	processor map[string]time.Duration // by program: ownTime and the servers
	peak      float64                  // MiB
}

// call runs `holdfast bench` once.
func (c *comparing) call(ctx context.Context, build, only string, tasks int, env []string) ([]measured, usage, error) {
	cmd := exec.CommandContext(ctx, c.programs[build], "bench", "--only", only, "--for", c.time.String(), "--tasks", strconv.Itoa(tasks),
		"--concurrency", strconv.Itoa(concurrency), "-o", "json")
	cmd.Env = env
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it deletes its tables
	before, err := processorTimes()
	if err != nil {
		return nil, usage{}, err
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, usage{}, fmt.Errorf("%w: %s", err, exit.Stderr)
	} else if err != nil {
		return nil, usage{}, err
	}
	used, err := processorTimes()
	if err != nil {
		return nil, usage{}, err
	}
	for name := range used {
		used[name] -= before[name]
	}
	used[ownTime] = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	measures, err := readMeasures(out)
	if err != nil {
		return nil, usage{}, fmt.Errorf("output of bench: %w", err)
	}
	return measures, usage{used, float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024}, nil
}

// record adds the figures of a call.
func (c *comparing) record(place string, r benchRun, round int, build string, measures []measured, used usage) {
	figures := make(map[string]float64)
	for _, m := range measures {
		figures[m.Measure] = m.Figure
		c.add(round, build, m.Measure+", "+m.Unit, m.Figure)
	}
	if r.tasks == nil {
		return
	}
	thousands := r.tasks(c, figures) / 1000
	for _, name := range slices.Sorted(maps.Keys(used.processor)) {
		if place == serversPlace || name == ownTime {
			took := used.processor[name] - c.setup[build][name]
			c.add(round, build, fmt.Sprintf("%s, CPU ms per 1,000, %s", r.only, name), ms(max(took, tick))/thousands)
		}
	}
	c.add(round, build, r.only+", "+memory, used.peak)
}

// measured is a figure in the output of `holdfast bench -o json`.
type measured struct {
	Measure string
	Figure  float64
	Unit    string
}

// readMeasures reads the output of any build. The first builds printed only the list.
func readMeasures(out []byte) (list []measured, err error) {
	if bytes.HasPrefix(bytes.TrimSpace(out), []byte("[")) {
		err = json.Unmarshal(out, &list)
		return list, err
	}
	var answer struct{ Measures []measured }
	err = json.Unmarshal(out, &answer)
	return answer.Measures, err
}

func (c *comparing) add(round int, build, name string, value float64) {
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	c.found.add(round, build, name, value)
}

// better returns how many times better head is in each round, in ascending order: more for a rate, less for a time or a
// size.
func (c *comparing) better(name string) []float64 {
	over, under := baseBuild, headBuild
	if strings.HasSuffix(name, "/s") {
		over, under = headBuild, baseBuild
	}
	return slices.Sorted(slices.Values(c.found.turns(over, under, name)))
}

// section returns the table of a place in Markdown.
func (c *comparing) section(place string) string {
	rows := [][]string{{place, baseBuild, headBuild, "times better", "least", "most"}}
	for _, name := range c.names {
		ratios := c.better(name)
		ratio, ok := median(ratios)
		if !ok {
			continue
		}
		of := func(build string) string { m, _ := c.found.median(build, name); return formatNumber(m) }
		rows = append(rows, []string{name, of(baseBuild), of(headBuild), formatRatio(ratio), formatRatio(ratios[0]), formatRatio(ratios[len(ratios)-1])})
	}
	return fmt.Sprintf("%d rounds on %d cores; medians. *Times better* is the median of the ratios of the rounds: less than 1 is worse.\n\n%s\n",
		c.rounds, runtime.NumCPU(), table(rows))
}

func formatRatio(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
