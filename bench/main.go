package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

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

func run(ctx context.Context) error {
	o := scale{Options: load.Defaults(), Backlog: 100_000, PickUps: 300, Delayed: 10_000}
	rounds := flag.Int("rounds", 3, "how often everything is measured; the tables show medians")
	only := flag.String("systems", "", "names of systems to measure, separated by commas; empty means all")
	onlySteps := flag.String("steps", "", "names of steps, separated by commas; empty means all")
	flag.DurationVar(&o.For, "for", o.For, "how long a steady state is measured")
	flag.IntVar(&o.Backlog, "backlog", o.Backlog, "tasks that are stored and then run")
	flag.StringVar(&o.Profiles, "profiles", "", "folder for CPU profiles of the measuring processes")
	inChild := flag.String("measure", "", "internal")
	inStep := flag.String("step", "", "internal")
	options := flag.String("options", "", "internal")
	flag.Parse()
	if *inChild != "" {
		return child(ctx, *inChild, *inStep, *options)
	}
	found := make(map[string]map[string][]float64) // by system and column
	for round := range *rounds {
		for _, s := range order(chosen(*only), round) {
			for _, st := range steps {
				if *onlySteps != "" && !slices.Contains(strings.Split(*onlySteps, ","), st.name) {
					continue
				}
				f, err := measure(ctx, s, st, o)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, st.name, err)
				}
				for column, value := range f {
					if found[s.name] == nil {
						found[s.name] = make(map[string][]float64)
					}
					found[s.name][column] = append(found[s.name][column], value)
					fmt.Fprintf(os.Stderr, "%d  %-22s %-30s %12.3f\n", round+1, s.name, column, value)
				}
			}
		}
	}
	return nil
}

// chosen returns the systems that are asked for and can be measured.
func chosen(names string) (list []system) {
	for _, s := range systems {
		if names != "" && !slices.Contains(strings.Split(names, ","), s.name) {
			continue
		}
		if missing := s.missing(); len(missing) > 0 {
			fmt.Fprintf(os.Stderr, "%s is left out: %s not set\n", s.name, strings.Join(missing, ", "))
			continue
		}
		list = append(list, s)
	}
	return list
}

// order turns the list around in every second round, so that no system always comes first.
func order(list []system, round int) []system {
	list = slices.Clone(list)
	if round%2 == 1 {
		slices.Reverse(list)
	}
	return list
}
