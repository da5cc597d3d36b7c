package sim

import "testing"

// Shrink takes parts of a failing plan away for as long as what is left still breaks an invariant, and returns
// the smallest plan found. How long messages take depends on what was sent before them, so a part can matter
// by its mere presence.
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
