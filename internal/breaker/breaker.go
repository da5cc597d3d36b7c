// Package breaker has the rules of circuit breakers. They decide when a breaker trips and is reset, when the next probe
// may start, and how many probes may run at the same time. A store reads the state of a breaker in a transaction, calls
// Next, and writes the new state.
//
// The rules follow the circuit breaker of Nygard (Release It!, 2007): a breaker is open until a given time, then
// half-open. Then it does not close at once, but ramps. If most probes of a step pass, the breaker doubles the number
// of probes. If most fail, it halves the number.
package breaker

import (
	"time"

	"github.com/holdfastq/holdfast/store"
)

const (
	// FirstWait is how long a tripped breaker stays open, unless the target requests another time. If a single probe
	// runs and fails, the time doubles, up to LongestWait.
	FirstWait   = time.Second
	LongestWait = time.Minute
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
	// Passed and Failed count the probes of the present step.
	Passed, Failed int
}

// Next returns the state of a breaker after a report, or nil if the target needs no breaker. s is nil if the target has
// no breaker yet. blocked reports whether the breaker blocks a task. If it blocks none, one passing probe resets it.
func Next(now time.Time, s *State, r store.TargetReport, blocked bool) *State {
	if s == nil {
		if !r.Trip && !r.Refused {
			return nil
		}
		return &State{ProbeAt: now.Add(pause(FirstWait, r)), Wait: FirstWait, Probes: 1}
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
	failed := next.Failed > 0 && next.Failed*2 >= max(next.Probes, next.Passed+next.Failed)
	switch {
	case failed || r.Refused && r.Pause > 0: // without a pause, a refusal is a failure like others
		if s.Probes == 1 {
			next.Wait = min(2*next.Wait, LongestWait)
		}
		next.Probes, next.Passed, next.Failed = max(1, next.Probes/2), 0, 0
		next.ProbeAt = now.Add(pause(next.Wait, r))
	case next.Passed > 0 && next.Failed == 0 && !blocked:
		return nil
	case next.Passed+next.Failed >= next.Probes:
		next.Wait, next.Probes, next.Passed, next.Failed = FirstWait, 2*next.Probes, 0, 0
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
