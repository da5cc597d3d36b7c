package sim

import "testing"

// Shrink removes parts of a failing plan as long as the rest still breaks an invariant. It returns the smallest plan
// that it finds. The latency of a message depends on the messages before it, so removing an unrelated part can hide a
// failure.
func Shrink(t *testing.T, plan Plan) Plan {
	for smaller := true; smaller; {
		smaller = false
		for _, part := range plan.Parts() {
			if try := plan.Without(part); Run(t, try, false).Violation != "" {
				plan, smaller = try, true
			}
		}
	}
	return plan
}
