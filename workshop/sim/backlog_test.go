package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// leastInRange is the smallest share of starts that must be in their predicted ranges.
const leastInRange = 0.9

// TestBacklogRanges lets many tasks wait behind others, and compares the predicted ranges of their starts with the real
// starts. The load differs from seed to seed: a burst or a stream, short or long tasks, one to three workers, and one
// or two queues.
func TestBacklogRanges(t *testing.T) {
	ranges, inRange := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0x1f83d9abfb41bd6b))
		plan := Plan{Seed: seed, Net: NetPlan{Usual: 5 * time.Millisecond}}
		for range 1 + r.IntN(3) {
			plan.Roles = append(plan.Roles, Serve)
		}
		plan.Roles = append(plan.Roles, Produce)
		longest := between(r, 100*time.Millisecond, 2*time.Second)
		spread := between(r, time.Millisecond, 20*time.Second)
		for i := range 50 + r.IntN(150) {
			task := TaskPlan{Name: fmt.Sprint("t", i), At: between(r, 0, spread), By: len(plan.Roles) - 1, Queue: "a", Takes: between(r, longest/4, longest)}
			if seed%4 == 0 && i%3 == 0 {
				task.Queue = "b"
			}
			plan.Tasks = append(plan.Tasks, task)
		}
		result := Run(t, plan, false)
		if result.Violation != "" {
			t.Errorf("seed %d: %s", seed, result)
		}
		t.Logf("seed %d: %d of %d starts in the range, %d tasks of up to %s on %d workers", seed, result.InRange, result.Ranges, len(plan.Tasks), longest, len(plan.Roles)-1)
		ranges, inRange = ranges+result.Ranges, inRange+result.InRange
	}
	if share := float64(inRange) / float64(max(ranges, 1)); ranges < 200 || share < leastInRange {
		t.Errorf("%d of %d starts (%.0f %%) were in the predicted range, want at least %.0f %% of 200", inRange, ranges, 100*share, 100*leastInRange)
	} else {
		t.Logf("%d of %d starts (%.0f %%) were in the predicted range", inRange, ranges, 100*share)
	}
}
