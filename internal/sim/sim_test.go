package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed")
	runs      = flag.Int("runs", 100, "how many seeds, one after the other")
	stride    = flag.Int("stride", 1, "from one seed to the next")
	without   = flag.String("without", "", "parts of the plan to leave out, with commas between")
	showSteps = flag.Bool("journal", false, "print what happens, step by step")
	report    = flag.String("report", "", "a file for a line of JSON for each seed")
	stopFirst = flag.Bool("stop", false, "end at the first seed that fails")
)

// warmUp is how many seeds are run for nothing, before others are run for the record.
const warmUp = 4

// line is what -report writes for a seed.
type line struct {
	Seed      uint64
	Violation string   `json:",omitempty"`
	Without   []string `json:",omitempty"` // that which the smallest failing plan does without
	Sum       uint64
	Steps     int
	Tasks     int
	Started   int
	Early     int
	Excused   int
	Lost      int
	Exact     bool
}

// TestSeeds is the simulation.
func TestSeeds(t *testing.T) {
	var out *os.File
	if *report != "" {
		var err error
		if out, err = os.Create(*report); err != nil {
			t.Fatal(err)
		}
		defer out.Close()
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30)) // of a run that does not end
	// What a process does only once, such as looking at types it decodes, takes random numbers: not from a seed's.
	for seed := range uint64(warmUp) {
		Run(t, NewPlan(seed), false)
	}
	began, steps := time.Now(), 0
	for i := range *runs {
		plan := NewPlan(*firstSeed + uint64(i**stride))
		if *without != "" {
			plan = plan.Without(strings.Split(*without, ",")...)
		}
		if *showSteps {
			fmt.Print(plan)
		}
		result := Run(t, plan, *showSteps)
		steps += result.Steps
		if *showSteps {
			fmt.Println(strings.Join(result.Journal, "\n"))
		}
		l := line{plan.Seed, result.Violation, nil, result.Sum, result.Steps, result.Tasks, result.Started, result.Early, result.Excused, result.Lost, result.Exact}
		if result.Violation != "" {
			t.Errorf("seed %d: %s", plan.Seed, result)
			if !*showSteps && !*stopFirst {
				l.Without = Shrink(t, plan).Removed
				slices.Sort(l.Without)
				t.Errorf("the same, smaller: make sim SEED=%d RUNS=1 WITHOUT=%s", plan.Seed, strings.Join(l.Without, ","))
			}
		}
		if out != nil {
			if err := json.NewEncoder(out).Encode(l); err != nil {
				t.Fatal(err)
			}
		}
		if t.Failed() && *stopFirst {
			break
		}
	}
	t.Logf("%d seeds, %d steps, %.1f s", *runs, steps, time.Since(began).Seconds())
}
