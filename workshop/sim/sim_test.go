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
	runs      = flag.Int("runs", 20, "how many seeds")
	stride    = flag.Int("stride", 1, "the difference between one seed and the next")
	without   = flag.String("without", "", "comma-separated parts of the plan to remove")
	showSteps = flag.Bool("journal", false, "print every step")
	report    = flag.String("report", "", "write a line of JSON for each seed to this file")
	stopFirst = flag.Bool("stop", false, "stop at the first seed that fails")
)

// warmUp is the number of seeds to simulate without a report before the others.
const warmUp = 4

// reportLine is the line that -report writes for a seed.
type reportLine struct {
	Seed        uint64
	Violation   string   `json:",omitempty"`
	Without     []string `json:",omitempty"` // parts that the smallest failing plan does not need
	Sum         uint64
	Steps       int
	Tasks       int
	Started     int
	Early       int
	Excused     int
	Lost        int
	Predicted   int
	Changed     int
	Operated    int
	Interrupted int
	Pauses      int
	Blocked     int
	Released    int
	Limited     int
	Permitted   int
	Tripped     int
	Probed      int
	Rated       int
	Typed       int
	Unparked    int
	Expired     int
	Turns       int
	Doomed      int
	Unblocked   int
	Slots       int
	Compared    int
	Cursors     int
	Children    int
	Saves       int
	Commits     int
	Late        int
	Exact       bool
}

// TestSeeds simulates the seeds. Package campaign runs it.
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
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 30)) // limits the memory of a simulation that does not end
	// Work that a process does only once, such as inspecting the types that it decodes, takes random numbers. The
	// warm-up does this work, so that it takes no numbers of the seeds.
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
		l := reportLine{plan.Seed, result.Violation, nil, result.Sum, result.Steps, result.Tasks, result.Started, result.Early, result.Excused, result.Lost, result.Predicted, result.Changed, result.Operated, result.Interrupted, result.Pauses, result.Blocked, result.Released, result.Limited, result.Permitted, result.Tripped, result.Probed, result.Rated, result.Typed, result.Unparked, result.Expired, result.Turns, result.Doomed, result.Unblocked, result.Slots, result.Compared, result.Cursors, result.Children, result.Saves, result.Commits, result.Late, result.Exact}
		if result.Violation != "" {
			t.Errorf("seed %d: %s", plan.Seed, result)
			if !*showSteps && !*stopFirst {
				l.Without = Shrink(t, plan, time.Now().Add(shrinkTime)).Removed
				slices.Sort(l.Without)
				t.Errorf("the smallest failing plan: make sim SEED=%d RUNS=1 WITHOUT=%s", plan.Seed, strings.Join(l.Without, ","))
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
