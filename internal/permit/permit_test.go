package permit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
)

var only = permit.Ref{Gate: 1}

// decide decides about n tasks that need a permit of the only bucket, and returns how many get it.
func decide(b *permit.Bucket, now time.Time, n int) (admitted int) {
	candidates := make([]permit.Candidate, n)
	for i := range candidates {
		candidates[i] = permit.Candidate{At: only, Needs: []permit.Ref{only}}
	}
	for _, outcome := range permit.Decide(now, map[permit.Ref]*permit.Bucket{only: b}, candidates, n) {
		if outcome.Admitted {
			admitted++
		}
	}
	b.Behind = admitted < n
	return admitted
}

// However late and irregular the decisions are, any time has at most the permits of that time and of one second more. If
// tasks always wait and the decisions are never more than a second late, no permit is lost.
func TestARateIsKept(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := &permit.Bucket{Rate: store.Rate{Count: 1 + r.IntN(1000), Per: time.Second}}
		latest := []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}[seed%3]
		backlog := seed%2 == 0
		now := begin
		given := decide(b, now, 1100)
		for range 100 {
			now = now.Add(rand.N(latest))
			n := 1100 // more than a decision allows
			if !backlog {
				n = r.IntN(50)
			}
			given += decide(b, now, n)
			if most := 1 + int(now.Sub(begin)/b.Rate.Interval()) + int(time.Second/b.Rate.Interval()); given > most {
				t.Fatalf("seed %d: %d permits in %s at %s", seed, given, now.Sub(begin), b.Rate)
			}
		}
		if least := int(now.Sub(begin) / b.Rate.Interval()); backlog && latest <= time.Second && given < least {
			t.Errorf("seed %d: %d permits in %s at %s, want at least %d", seed, given, now.Sub(begin), b.Rate, least)
		}
	}
}

// The time of the next start is corrected if it lies far ahead: the clock was set back, or the rate was lower. A
// decision that is made a little earlier than the one before corrects nothing.
func TestANextStartFarAheadIsCorrected(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ allowed, want time.Duration }{
		"far ahead":                       {2 * time.Hour, time.Second},
		"one interval ahead":              {time.Second, time.Second},
		"by a decision with a later time": {time.Second + 300*time.Millisecond, time.Second + 300*time.Millisecond},
	} {
		b := &permit.Bucket{Rate: store.Rate{Count: 1, Per: time.Second}, Allowed: now.Add(test.allowed)}
		if n := decide(b, now, 3); n > 0 {
			t.Errorf("%s: %d tasks get permits", name, n)
		}
		if got := b.Next(now).Sub(now); got != test.want {
			t.Errorf("%s: the next start is allowed after %s, want %s", name, got, test.want)
		}
	}
}
