// Package breaker has the rules of circuit breakers. They decide when a breaker trips and is reset, when the next probe
// may start, and how many probes may run at the same time. A store reads the state of a breaker in a transaction, calls
// Next, and writes the new state.
//
// The rules follow the circuit breaker of Nygard (Release It!, 2007): a breaker is open until a given time, then
// half-open. Then it does not close at once, but ramps: after each step, it raises or halves the number of probes.
//
// A fault accuses either the target or only the message of its task. A step fails if half of its probes accuse the
// target, or if hardly any probe passes. So a target that works is not cut off by messages that it cannot process: each
// probe that passes proves that it works.
package breaker

import (
	"time"

	"github.com/holdfastq/holdfast/store"
)

const (
	// FirstWait is how long a tripped breaker stays open, unless the target requests another time. If the probes of a
	// half-open breaker fail, the time doubles, up to LongestWait. If none of them accuses the target, the time is at
	// most LongestMessageWait.
	FirstWait          = time.Second
	LongestWait        = 15 * time.Second
	LongestMessageWait = 4 * time.Second
	// RampEnd is a number of simultaneous probes. Beyond it the breaker is reset, although it still blocks tasks.
	RampEnd = 1000
	// ForgottenAfter is how long after ProbeAt a breaker is reset if it blocks no task.
	ForgottenAfter = 10 * time.Minute
)

// State is the stored state of a breaker.
type State struct {
	ProbeAt time.Time     // no probe starts before this time
	Wait    time.Duration // how long the breaker stays open after the next fault
	Probes  int           // maximum number of simultaneous probes
	// Passed, Failed and Rejected count the probes of the present step, as in store.TargetReport.
	Passed, Failed, Rejected int
}

// leastPassed is the divisor of the least number of probes of a step that must pass: one in leastPassed, if the other
// probes accuse only their messages.
const leastPassed = 10

// Next returns the state of a breaker after a report, or nil if the target needs no breaker. s is nil if the target has
// no breaker yet. blocked reports whether the breaker blocks a task. If it blocks none, one passing probe resets it,
// unless another probe of the step accuses the target. executors is the number of executors of all live workers. No
// more probes than that can run at the same time. So a step ends after so many probes, and the next step has at most so
// many more. Otherwise hundreds of probes would have to fail before a long ramp stops.
func Next(now time.Time, s *State, r store.TargetReport, blocked bool, executors int) *State {
	if s == nil {
		if !r.Trip && !r.Refused {
			return nil
		}
		return &State{ProbeAt: now.Add(pause(FirstWait, r)), Wait: FirstWait, Probes: store.HalfOpenProbes}
	}
	next := *s
	if s.ProbeAt.After(now) {
		// These attempts began before the breaker tripped, so only the pause that the target requests is news.
		if asked := now.Add(r.Pause); asked.After(next.ProbeAt) {
			next.ProbeAt = asked
		}
		return &next
	}
	next.Passed += r.Passed
	next.Failed += r.Failed
	next.Rejected += r.Rejected
	ended := next.Passed + next.Failed + next.Rejected
	size := min(s.Probes, max(executors, store.HalfOpenProbes))
	accused := next.Failed > 0 && next.Failed*2 >= max(size, ended)
	complete := ended >= size
	switch {
	case accused, complete && next.Passed*leastPassed < ended, r.Refused && r.Pause > 0: // without a pause, a refusal is a failure like others
		if s.Probes <= store.HalfOpenProbes {
			longest := LongestWait
			if next.Failed == 0 {
				longest = LongestMessageWait
			}
			next.Wait = min(2*next.Wait, longest)
		}
		next.Probes, next.Passed, next.Failed, next.Rejected = max(store.HalfOpenProbes, size/2), 0, 0, 0
		next.ProbeAt = now.Add(pause(next.Wait, r))
	case next.Passed > 0 && next.Failed == 0 && !blocked:
		return nil
	case complete:
		next.Wait, next.Probes, next.Passed, next.Failed, next.Rejected = FirstWait, next.Probes+size, 0, 0, 0
		if next.Probes > RampEnd {
			return nil
		}
	}
	return &next
}

// pause returns how long a breaker stays open after a report.
func pause(wait time.Duration, r store.TargetReport) time.Duration {
	if r.Refused && r.Pause > 0 {
		return r.Pause
	}
	return wait
}
