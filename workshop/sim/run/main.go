// Command simulate runs the simulator for a range of seeds; see package sim. "make sim" calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/workshop/sim/campaign"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := campaign.Options{Root: ".", Work: ".sim"}
	flag.Uint64Var(&o.Seed, "seed", 1, "the first seed")
	flag.IntVar(&o.Seeds, "runs", 1, "the number of seeds")
	flag.IntVar(&o.Processes, "processes", runtime.NumCPU(), "the number of processes to run at once")
	flag.BoolVar(&o.Journal, "journal", false, "print every step")
	without := flag.String("without", "", "comma-separated parts to remove from the plans")
	flag.Parse()
	if *without != "" {
		o.Without = strings.Split(*without, ",")
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o campaign.Options) error {
	fmt.Fprintln(os.Stderr, "simulate: building with a runtime that replays exactly; the first build takes a minute")
	if err := campaign.Build(o); err != nil {
		return err
	}
	var pauses, paused, blocked, released, limited, permitted, tripped, probed, rated, expired, turns, doomed, unblocked, slots, compared, cursors int
	var seeds, tasks, started, early, excused, lost, predicted, changed, operated, operating, interrupted, steps int
	var children, saves, commits, late, typed, unparked int
	var broken []campaign.Seed
	began := time.Now()
	o.Seen = func(s campaign.Seed) {
		seeds, tasks, started, steps = seeds+1, tasks+s.Tasks, started+s.Started, steps+s.Steps
		early, excused = early+s.Early, excused+s.Excused
		lost += s.Lost
		predicted, changed = predicted+s.Predicted, changed+s.Changed
		if operated += s.Operated; s.Operated > 0 {
			operating++
			if s.Interrupted > 0 {
				interrupted++
			}
		}
		if pauses += s.Pauses; s.Pauses > 0 {
			paused++
		}
		blocked, released, expired = blocked+s.Blocked, released+s.Released, expired+s.Expired
		limited, permitted = limited+s.Limited, permitted+s.Permitted
		tripped, probed, rated = tripped+s.Tripped, probed+s.Probed, rated+s.Rated
		turns, doomed, unblocked = turns+s.Turns, doomed+s.Doomed, unblocked+s.Unblocked
		slots, compared, cursors = slots+s.Slots, compared+s.Compared, cursors+s.Cursors
		typed, unparked = typed+s.Typed, unparked+s.Unparked
		children, saves, commits, late = children+s.Children, saves+s.Saves, commits+s.Commits, late+s.Late
		if s.Violation != "" {
			broken = append(broken, s)
			fmt.Printf("seed %d: %s\n  replay: %s\n", s.Seed, s.Violation, s.Replay())
		}
		if o.Seeds == 1 {
			fmt.Printf("seed %d: sum %016x, exact: %t\n", s.Seed, s.Sum, s.Exact)
		}
		if seeds%1000 == 0 {
			fmt.Fprintf(os.Stderr, "simulate: %d of %d seeds after %.0f s\n", seeds, o.Seeds, time.Since(began).Seconds())
		}
	}
	err := campaign.Run(ctx, o)
	fmt.Printf("%d seeds in %.1f s: %d tasks accepted, %d executions, %d workers fenced early (%d of live processes), %d tickets found lost, %d predictions came true and %d were replaced, %d changes by operations in %d seeds (in %d of them a janitor was killed meanwhile), %d pauses in %d seeds (%d tasks blocked and %d released, %d dead by their deadline), %d limits (%d tasks got permits), %d breakers (%d probes, and %d times a rate of faults was reached), %d ordered tasks that waited for their turns (%d were doomed, and a person retried, archived or deleted %d that were dead), %d tasks got slots of their topics (%d comparisons of two topics, and %d of cursors with the tasks), %d next tasks, %d checkpoints and %d successes of CompleteTx (%d late ones were refused), %d tickets entered type queues and %d waits for a handler ended, %d steps; %d seeds broke an invariant\n",
		seeds, time.Since(began).Seconds(), tasks, started, early, excused, lost, predicted, changed, operated, operating, interrupted, pauses, paused, blocked, released, expired, limited, permitted, tripped, probed, rated, turns, doomed, unblocked, slots, compared, cursors, children, saves, commits, late, typed, unparked, steps, len(broken))
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(broken) > 0:
		return fmt.Errorf("%d of %d seeds broke an invariant", len(broken), seeds)
	}
	return nil
}
