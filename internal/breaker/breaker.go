// Package breaker has the rules of circuit breakers: when a breaker trips, when the next probe may start, how many
// probes may run at the same time, and when the breaker is reset. The stores read the state of a breaker in a
// transaction, call Next, and write what it returns.
//
// A breaker follows the circuit breaker of Nygard (Release It!, 2007): it is open until a time, then half-open. Instead
// of closing at once it ramps: each step in which most probes pass doubles the number of probes, and a step in which
// most fail halves it.
package breaker

import (
	"time"

	"github.com/holdfastq/holdfast/store"
)

const (
	// FirstWait is how long a breaker stays open when it trips, unless the target asks for another time. Each probe that
	// fails alone doubles the time, up to LongestWait.
	FirstWait   = time.Second
	LongestWait = time.Minute
	// RampEnd is the number of probes at the same time from which the breaker is reset, although it still blocks tasks.
	RampEnd = 1000
	// ForgottenAfter is how long after ProbeAt a breaker that blocks no task is reset.
	ForgottenAfter = 10 * time.Minute
)

// State is the stored state of a breaker.
type State struct {
	ProbeAt time.Time     // no probe starts before this time
	Wait    time.Duration // how long the breaker stays open after the next fault
	Probes  int           // the highest number of probes at the same time
	// Passed and Failed count the probes of the present step.
	Passed, Failed int
}

// Next returns the state after a report, or nil if the target has no breaker from then on. s is nil if the target has
// no breaker before. blocked is whether the breaker blocks any task. If it blocks none, a probe that passes resets it.
func Next(now time.Time, s *State, r store.TargetReport, blocked bool) *State {
	if s == nil {
		if !r.Trip && !r.Refused {
			return nil
		}
		return &State{ProbeAt: now.Add(pause(FirstWait, r)), Wait: FirstWait, Probes: 1}
	}
	next := *s
	if s.ProbeAt.After(now) {
		// These attempts began before the breaker tripped. They say nothing new, except how long to wait.
		if asked := now.Add(r.Pause); asked.After(next.ProbeAt) {
			next.ProbeAt = asked
		}
		return &next
	}
	next.Passed += r.Passed
	next.Failed += r.Failed
	failed := next.Failed > 0 && next.Failed*2 >= max(next.Probes, next.Passed+next.Failed)
	switch {
	case failed || r.Refused && r.Pause > 0: // without a time, one probe of many that is refused is a fault like others
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
