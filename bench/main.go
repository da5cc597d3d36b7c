package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// commands are the measurements besides the comparison of systems, by the first argument.
var commands = map[string]func(context.Context, []string) error{
	scaleCommand: runScale, compareCommand: runCompare, featuresCommand: runFeatures, pressureCommand: runPressure,
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 {
		if command := commands[os.Args[1]]; command != nil {
			return command(ctx, os.Args[2:])
		}
	}
	o := scale{Options: load.Defaults(), Backlog: 100_000, PickUps: 200, Delayed: 10_000}
	rounds := flag.Int("rounds", 3, "number of `rounds`; the tables show medians")
	only := flag.String("systems", "", "`names` of the systems to measure, separated by commas; empty means all")
	onlySteps := flag.String("steps", "", "`names` of the steps, separated by commas; empty means all")
	page := flag.String("report", "", "Markdown `file` to write, with a chart in the same folder; empty prints the table")
	flag.DurationVar(&o.For, "for", o.For, "duration of each measurement of a rate")
	flag.IntVar(&o.Backlog, "backlog", o.Backlog, "number of stored tasks that a drain runs")
	flag.StringVar(&o.Profiles, "profiles", "", "`folder` for CPU profiles of the measuring processes")
	inChild := flag.String("measure", "", "internal: `name` of a system")
	inStep := flag.String("step", "", "internal: `name` of a step")
	options := flag.String("options", "", "internal: options as `JSON`")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "bench [FLAGS] compares Holdfast with other task queues:\n")
		flag.PrintDefaults()
		fmt.Fprintf(flag.CommandLine.Output(), "bench %s [FLAGS] measures how Holdfast's speed scales; -help lists the flags\n", scaleCommand)
		fmt.Fprintf(flag.CommandLine.Output(), "bench %s [FLAGS] compares two builds of Holdfast; -help lists the flags\n", compareCommand)
		fmt.Fprintf(flag.CommandLine.Output(), "bench %s [FLAGS] measures what each feature costs its tasks; -help lists the flags\n", featuresCommand)
		fmt.Fprintf(flag.CommandLine.Output(), "bench %s [FLAGS] measures the speed while PostgreSQL is under pressure; -help lists the flags\n", pressureCommand)
	}
	flag.Parse()
	if *inChild != "" {
		return runChild(ctx, *inChild, *inStep, *options)
	}
	r, err := newReport(ctx, command("make bench", flag.CommandLine), *rounds, o, selectSystems(systems, *only))
	if err != nil {
		return err
	}
	for round := range *rounds {
		if err := r.measure(ctx, round, *onlySteps); err != nil {
			return err
		}
	}
	if *page == "" {
		_, err := fmt.Print(r.medians())
		return err
	}
	return r.write(*page)
}

// newReport returns a report of the systems that has no figures.
func newReport(ctx context.Context, command string, rounds int, o scale, list []system) (r report, err error) {
	r = report{
		when: time.Now(), command: command, cores: runtime.NumCPU(), goVersion: runtime.Version(), rounds: rounds, scale: o, systems: list,
		found: make(results),
	}
	if r.versions, err = moduleVersions(); err != nil {
		return r, err
	}
	r.servers, err = serverVersions(ctx, list)
	return r, err
}

// measure runs one round: every step for every system. If names is not empty, it runs only the steps with these names.
func (r report) measure(ctx context.Context, round int, names string) error {
	for _, group := range groups(steps) {
		if names != "" {
			group = slices.DeleteFunc(group, func(st step) bool { return !slices.Contains(strings.Split(names, ","), st.name) })
		}
		turns := turnsOf(group)
		for turn := round * turns; turn < (round+1)*turns; turn++ {
			for _, s := range order(r.systems, turn) {
				if err := r.runGroup(ctx, turn, s, group); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// runGroup runs the steps of a group for one system, one after another.
func (r report) runGroup(ctx context.Context, turn int, s system, group []step) error {
	for _, st := range group {
		if st.skip != nil && st.skip(s) {
			continue
		}
		f, err := measure(ctx, s, st, r.scale)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", s.name, st.name, err)
		}
		for column, value := range f {
			r.found.add(turn, s.name, column, value)
			fmt.Fprintf(os.Stderr, "%d  %-22s %-30s %12.3f\n", turn+1, s.name, column, value)
		}
	}
	return nil
}

// groups divides the steps into groups. A system runs the steps of a group in one turn.
func groups(steps []step) (list [][]step) {
	for _, st := range steps {
		if !st.followsPrevious {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], st)
	}
	return list
}

// turnsOf returns how many times each system runs a group in one round.
func turnsOf(group []step) int {
	turns := 1
	for _, st := range group {
		turns = max(turns, st.turns)
	}
	return turns
}

// write writes the report to the file page, and a chart to a file with the same name and the extension .svg.
func (r report) write(page string) error {
	chart := strings.TrimSuffix(page, filepath.Ext(page)) + ".svg"
	if err := os.WriteFile(chart, []byte(r.chart()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(r.page(filepath.Base(chart))), 0o644)
}

// command returns the command line that repeats the measurement: a target of make with the flags that were set. It
// omits the flag -report.
func command(target string, set *flag.FlagSet) string {
	var flags []string
	set.Visit(func(f *flag.Flag) {
		value := f.Value.String()
		if strings.Contains(value, " ") {
			value = "'" + value + "'"
		}
		if f.Name != "report" {
			flags = append(flags, "-"+f.Name+" "+value)
		}
	})
	if len(flags) == 0 {
		return target
	}
	return fmt.Sprintf("%s BENCHFLAGS=%q", target, strings.Join(flags, " "))
}

// selectSystems returns the systems of the list that have the given names, which are separated by commas. If names is
// empty, it returns all. It skips systems whose environment variables are not set.
func selectSystems(list []system, names string) (found []system) {
	for _, s := range list {
		if names != "" && !slices.Contains(strings.Split(names, ","), s.name) {
			continue
		}
		if missing := s.missing(); len(missing) > 0 {
			fmt.Fprintf(os.Stderr, "%s is skipped: %s not set\n", s.name, strings.Join(missing, ", "))
			continue
		}
		found = append(found, s)
	}
	return found
}

// order returns the list, reversed in every second round, so that no item is always the first.
func order[T any](list []T, round int) []T {
	list = slices.Clone(list)
	if round%2 == 1 {
		slices.Reverse(list)
	}
	return list
}
