package breaker_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast/internal/breaker"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	const s = time.Second
	type ended struct {
		at    time.Duration
		n     int
		fault bool
	}
	for name, test := range map[string]struct {
		ended            []ended
		now              time.Duration
		attempts, faults int
	}{
		"nothing":                {nil, 0, 0, 0},
		"at once":                {[]ended{{0, 3, true}, {0, 2, false}}, 0, 5, 3},
		"the whole window":       {[]ended{{0, 3, true}, {29 * s, 2, false}}, 29 * s, 5, 3},
		"the oldest part":        {[]ended{{0, 3, true}, {29 * s, 2, false}}, 30 * s, 2, 0},
		"a part that is reused":  {[]ended{{0, 3, true}, {31 * s, 2, false}}, 31 * s, 2, 0},
		"a long time afterwards": {[]ended{{0, 3, true}}, 1000 * s, 0, 0},
	} {
		var w breaker.Window
		for _, e := range test.ended {
			for range e.n {
				w.Add(e.at, 30*s, e.fault)
			}
		}
		if attempts, faults := w.Counts(test.now); attempts != test.attempts || faults != test.faults {
			t.Errorf("%s: %d attempts and %d faults, want %d and %d", name, attempts, faults, test.attempts, test.faults)
		}
	}
	var w breaker.Window
	w.Add(0, 30*s, true)
	w.Add(0, 20*s, false)
	if attempts, faults := w.Counts(0); attempts != 1 || faults != 0 {
		t.Errorf("after a change of its length, a window has %d attempts and %d faults", attempts, faults)
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		attempts, faults int
		want             bool
	}{{19, 19, false}, {20, 13, false}, {20, 14, true}, {20, 20, true}, {0, 0, false}} {
		if breaker.TooMany(test.attempts, test.faults, 70, 20) != test.want {
			t.Errorf("%d faults of %d attempts: want %v", test.faults, test.attempts, test.want)
		}
	}
}

// A window never counts an attempt that is older than its length, and counts each that is younger than nine tenths.
func TestAWindowCountsRecentAttempts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const length = 30 * time.Second
		var w breaker.Window
		var at []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "attempts") {
			now += time.Duration(rapid.IntRange(0, 9000).Draw(t, "after")) * time.Millisecond
			w.Add(now, length, true)
			at = append(at, now)
			young, old := 0, 0
			for _, before := range at {
				if now-before < length*9/10 {
					young++
				}
				if now-before < length {
					old++
				}
			}
			if n, faults := w.Counts(now); n < young || n > old || n != faults {
				t.Fatalf("at %s there are %d attempts and %d faults, want %d to %d", now, n, faults, young, old)
			}
		}
	})
}
