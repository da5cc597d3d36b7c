package sim

import (
	"testing"
	"time"
)

// shrinkTime is how long Shrink tries. It is less than a campaign waits for a seed.
const shrinkTime = time.Minute

// Shrink removes parts of a failing plan as long as the rest still breaks an invariant. It returns the smallest plan
// that it finds until the given time. The latency of a message depends on the messages before it, so removing an
// unrelated part can hide a failure.
func Shrink(t *testing.T, plan Plan, until time.Time) Plan {
	for smaller := true; smaller; {
		smaller = false
		for _, part := range plan.Parts() {
			if time.Now().After(until) {
				return plan
			}
			if try := plan.Without(part); Run(t, try, false).Violation != "" {
				plan, smaller = try, true
			}
		}
	}
	return plan
}
