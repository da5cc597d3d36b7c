package breaker_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/store"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step is a report and the expected state after it. Times are relative to begin.
type step struct {
	at      time.Duration
	report  store.TargetReport
	blocked bool
	probeAt time.Duration
	probes  int // 0 means that the target has no breaker
}

func TestNext(t *testing.T) {
	t.Parallel()
	trip, pass, fail, reject := store.TargetReport{Trip: true}, store.TargetReport{Passed: 1}, store.TargetReport{Failed: 1}, store.TargetReport{Rejected: 1}
	const s = time.Second
	for name, steps := range map[string][]step{
		"a report without a fault trips nothing": {{0, pass, false, 0, 0}},
		"probes that fail double the wait": {
			{0, trip, true, 1 * s, 3}, {1 * s, fail, true, 1 * s, 3}, {1 * s, fail, true, 3 * s, 3}, {1 * s, fail, true, 3 * s, 3},
			{3 * s, store.TargetReport{Failed: 3}, true, 7 * s, 3}, {7 * s, store.TargetReport{Failed: 2}, true, 15 * s, 3},
			{15 * s, store.TargetReport{Failed: 3}, true, 30 * s, 3}, {30 * s, store.TargetReport{Failed: 3}, true, 45 * s, 3},
		},
		"probes that accuse their messages double the wait up to four seconds": {
			{0, trip, true, 1 * s, 3}, {1 * s, reject, true, 1 * s, 3}, {1 * s, reject, true, 1 * s, 3}, {1 * s, reject, true, 3 * s, 3},
			{3 * s, store.TargetReport{Rejected: 3}, true, 7 * s, 3}, {7 * s, store.TargetReport{Rejected: 3}, true, 11 * s, 3},
		},
		"a target that answers again waits like one that only rejects": {
			{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Failed: 3}, true, 3 * s, 3}, {3 * s, store.TargetReport{Failed: 3}, true, 7 * s, 3},
			{7 * s, store.TargetReport{Failed: 3}, true, 15 * s, 3}, {15 * s, store.TargetReport{Rejected: 3}, true, 19 * s, 3},
		},
		"one probe of three passes, and the others accuse their messages": {
			{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Rejected: 2}, true, 1 * s, 3}, {1 * s, pass, true, 1 * s, 6},
		},
		"one probe of three passes, and the others accuse the target": {
			{0, trip, true, 1 * s, 3}, {1 * s, pass, true, 1 * s, 3}, {1 * s, store.TargetReport{Failed: 2}, true, 3 * s, 3},
		},
		"passing probes double their number": {
			{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Passed: 3}, true, 1 * s, 6}, {2 * s, pass, true, 1 * s, 6},
			{2 * s, store.TargetReport{Passed: 5}, true, 1 * s, 12}, {3 * s, store.TargetReport{Passed: 12}, true, 1 * s, 24},
		},
		"a step that fails halves it": {
			{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Passed: 3}, true, 1 * s, 6}, {2 * s, store.TargetReport{Passed: 6}, true, 1 * s, 12},
			{3 * s, store.TargetReport{Failed: 5}, true, 1 * s, 12}, {3 * s, fail, true, 4 * s, 6},
		},
		"a step in which one in ten passes": {
			{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Passed: 3}, true, 1 * s, 6}, {2 * s, store.TargetReport{Passed: 1, Rejected: 5}, true, 1 * s, 12},
			{3 * s, store.TargetReport{Passed: 1, Rejected: 9}, true, 1 * s, 12}, {3 * s, store.TargetReport{Rejected: 2}, true, 4 * s, 6},
		},
		"a passing probe resets a breaker that blocks nothing":       {{0, trip, false, 1 * s, 3}, {1 * s, reject, false, 1 * s, 3}, {1 * s, pass, false, 0, 0}},
		"a passing probe resets no breaker whose target has a fault": {{0, trip, false, 1 * s, 3}, {1 * s, fail, false, 1 * s, 3}, {1 * s, pass, false, 1 * s, 3}},
		"the target asks for a pause":                                {{0, store.TargetReport{Refused: true, Pause: 40 * s}, true, 40 * s, 3}, {40 * s, store.TargetReport{Failed: 3}, true, 42 * s, 3}},
		"the target does not say how long":                           {{0, store.TargetReport{Refused: true}, true, 1 * s, 3}},
		"attempts from before the trip": {
			{0, trip, true, 1 * s, 3}, {0, store.TargetReport{Failed: 3}, true, 1 * s, 3}, {0, pass, false, 1 * s, 3},
			{0, store.TargetReport{Refused: true, Pause: 5 * s}, true, 5 * s, 3}, {0, store.TargetReport{Refused: true, Pause: 2 * s}, true, 5 * s, 3},
		},
		"one of many probes is refused": {
			{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Passed: 3}, true, 1 * s, 6}, {2 * s, store.TargetReport{Passed: 6}, true, 1 * s, 12},
			{3 * s, store.TargetReport{Passed: 11, Failed: 1, Refused: true}, true, 1 * s, 24},
			{4 * s, store.TargetReport{Failed: 1, Refused: true, Pause: 9 * s}, true, 13 * s, 12},
		},
		"a probe is refused": {{0, trip, true, 1 * s, 3}, {1 * s, store.TargetReport{Refused: true, Failed: 1, Pause: 9 * s}, true, 10 * s, 3}},
	} {
		var state *breaker.State
		for i, step := range steps {
			state = breaker.Next(begin.Add(step.at), state, step.report, step.blocked, 1000)
			switch {
			case state == nil && step.probes != 0:
				t.Fatalf("%s: step %d: no breaker", name, i)
			case state == nil:
			case state.Probes != step.probes || state.ProbeAt.Sub(begin) != step.probeAt:
				t.Fatalf("%s: step %d: %d probes at %s, want %d at %s", name, i, state.Probes, state.ProbeAt.Sub(begin), step.probes, step.probeAt)
			}
		}
	}
}

// After any reports, a breaker allows at least one probe. It waits at most LongestWait, or the longest pause that
// the target has requested. Enough passing probes reset it.
func TestReportsEndABreaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, state, longest := begin, (*breaker.State)(nil), breaker.LongestWait
		executors := rapid.IntRange(0, 2*breaker.RampEnd).Draw(t, "executors")
		for range rapid.IntRange(1, 40).Draw(t, "reports") {
			r := store.TargetReport{
				Trip: rapid.Bool().Draw(t, "trip"), Refused: rapid.Bool().Draw(t, "refused"), Passed: rapid.IntRange(0, 3).Draw(t, "passed"),
				Failed: rapid.IntRange(0, 3).Draw(t, "failed"), Rejected: rapid.IntRange(0, 3).Draw(t, "rejected"), Pause: time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Second,
			}
			longest = max(longest, r.Pause)
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "after")) * time.Second)
			state = breaker.Next(now, state, r, rapid.Bool().Draw(t, "blocked"), executors)
			if state == nil {
				continue
			}
			if state.Probes < 1 || state.Wait < breaker.FirstWait || state.Wait > breaker.LongestWait || state.ProbeAt.Sub(now) > longest {
				t.Fatalf("the state is %+v at %s", state, now)
			}
		}
		if state == nil {
			return
		}
		if now = now.Add(longest); state.ProbeAt.After(now) {
			t.Fatalf("the next probe is at %s, more than %s after %s", state.ProbeAt, longest, now)
		}
		for n := 0; state != nil; n++ {
			if n > 2*breaker.RampEnd+10 {
				t.Fatalf("after %d passing probes the state is %+v", n, state)
			}
			state = breaker.Next(now, state, store.TargetReport{Passed: 1}, true, executors)
		}
	})
}

// A target that fails again at the end of a ramp is noticed after as many probes as can run at the same time, whatever
// the number that the ramp allows.
func TestALongRampStops(t *testing.T) {
	t.Parallel()
	const executors = 10
	state := &breaker.State{ProbeAt: begin, Wait: breaker.FirstWait, Probes: store.HalfOpenProbes}
	for state.Probes < 500 {
		if state = breaker.Next(begin, state, store.TargetReport{Passed: 1}, true, executors); state == nil {
			t.Fatal("the ramp has ended")
		}
	}
	for n := 1; ; n++ {
		if state = breaker.Next(begin, state, store.TargetReport{Failed: 1}, true, executors); state.ProbeAt.After(begin) {
			return
		}
		if n == executors {
			t.Fatalf("after %d probes have failed, the breaker allows %d", n, state.Probes)
		}
	}
}
