package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
)

// within checks that a pause is d, within the jitter.
func within(t *testing.T, n int, got, d time.Duration) {
	t.Helper()
	if got < d/2 || got > d*3/2 {
		t.Errorf("pause %d is %s, not about %s", n, got, d)
	}
}

func TestPausesGrowAndRestart(t *testing.T) {
	t.Parallel()
	p := backoff.New(10*time.Millisecond, 50*time.Millisecond)
	for range 2 {
		for n, d := range []int{10, 20, 40, 50, 50, 50} {
			within(t, n, p.Next(), time.Duration(d)*time.Millisecond)
		}
		p.Reset()
	}
}

func TestPausesDiffer(t *testing.T) {
	t.Parallel()
	seen := make(map[time.Duration]bool)
	for range 100 {
		seen[backoff.New(time.Second, time.Minute).Next()] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 loops have only %d different pauses", len(seen))
	}
}

func TestWaitLastsForThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := backoff.New(time.Minute, time.Hour)
		for n, d := range []time.Duration{time.Minute, 2 * time.Minute} {
			began := time.Now()
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			within(t, n, time.Since(began), d)
		}
	})
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		began := time.Now()
		if err := backoff.New(time.Hour, time.Hour).Wait(ctx); !errors.Is(err, why) {
			t.Errorf("the wait ended with %v", err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("the wait ended after %s", took)
		}
	})
}
