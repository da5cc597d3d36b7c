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
	trip, pass, fail := store.TargetReport{Trip: true}, store.TargetReport{Passed: 1}, store.TargetReport{Failed: 1}
	const s = time.Second
	for name, steps := range map[string][]step{
		"a report without a fault trips nothing": {{0, pass, false, 0, 0}},
		"failing probes double the wait": {
			{0, trip, true, 1 * s, 1}, {1 * s, fail, true, 3 * s, 1}, {3 * s, fail, true, 7 * s, 1}, {7 * s, fail, true, 15 * s, 1},
			{15 * s, fail, true, 31 * s, 1}, {31 * s, fail, true, 63 * s, 1}, {63 * s, fail, true, 123 * s, 1}, {123 * s, fail, true, 183 * s, 1},
		},
		"passing probes double their number": {
			{0, trip, true, 1 * s, 1}, {1 * s, pass, true, 1 * s, 2}, {2 * s, pass, true, 1 * s, 2}, {2 * s, pass, true, 1 * s, 4},
			{3 * s, store.TargetReport{Passed: 4}, true, 1 * s, 8},
		},
		"a step that fails halves it": {
			{0, trip, true, 1 * s, 1}, {1 * s, pass, true, 1 * s, 2}, {2 * s, store.TargetReport{Passed: 2}, true, 1 * s, 4},
			{3 * s, fail, true, 1 * s, 4}, {3 * s, fail, true, 4 * s, 2},
		},
		"a passing probe resets a breaker that blocks nothing": {{0, trip, false, 1 * s, 1}, {1 * s, pass, false, 0, 0}},
		"the target asks for a pause":                          {{0, store.TargetReport{Refused: true, Pause: 40 * s}, true, 40 * s, 1}, {40 * s, fail, true, 42 * s, 1}},
		"the target does not say how long":                     {{0, store.TargetReport{Refused: true}, true, 1 * s, 1}},
		"attempts from before the trip": {
			{0, trip, true, 1 * s, 1}, {0, fail, true, 1 * s, 1}, {0, pass, false, 1 * s, 1},
			{0, store.TargetReport{Refused: true, Pause: 5 * s}, true, 5 * s, 1}, {0, store.TargetReport{Refused: true, Pause: 2 * s}, true, 5 * s, 1},
		},
		"one of many probes is refused": {
			{0, trip, true, 1 * s, 1}, {1 * s, pass, true, 1 * s, 2}, {2 * s, store.TargetReport{Passed: 2}, true, 1 * s, 4},
			{3 * s, store.TargetReport{Passed: 3, Failed: 1, Refused: true}, true, 1 * s, 8},
			{4 * s, store.TargetReport{Failed: 1, Refused: true, Pause: 9 * s}, true, 13 * s, 4},
		},
		"a probe is refused": {{0, trip, true, 1 * s, 1}, {1 * s, store.TargetReport{Refused: true, Failed: 1, Pause: 9 * s}, true, 10 * s, 1}},
	} {
		var state *breaker.State
		for i, step := range steps {
			state = breaker.Next(begin.Add(step.at), state, step.report, step.blocked)
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

// After any reports, a breaker allows at least one probe. It waits at most a minute, or the longest pause that the
// target has requested. Enough passing probes reset it.
func TestReportsEndABreaker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now, state, longest := begin, (*breaker.State)(nil), breaker.LongestWait
		for range rapid.IntRange(1, 40).Draw(t, "reports") {
			r := store.TargetReport{
				Trip: rapid.Bool().Draw(t, "trip"), Refused: rapid.Bool().Draw(t, "refused"), Passed: rapid.IntRange(0, 3).Draw(t, "passed"),
				Failed: rapid.IntRange(0, 3).Draw(t, "failed"), Pause: time.Duration(rapid.IntRange(0, 300).Draw(t, "pause")) * time.Second,
			}
			longest = max(longest, r.Pause)
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "after")) * time.Second)
			state = breaker.Next(now, state, r, rapid.Bool().Draw(t, "blocked"))
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
			state = breaker.Next(now, state, store.TargetReport{Passed: 1}, true)
		}
	})
}
