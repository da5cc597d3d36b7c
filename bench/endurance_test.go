package main

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchTellsEveryMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := watch{
			every:  time.Minute,
			done:   func() int { s := int(time.Since(began).Seconds()); return 100 + s*s }, // ever faster
			memory: func() (float64, error) { return 10 + time.Since(began).Minutes(), nil },
		}
		w.begin(t.Context())
		time.Sleep(2*time.Minute + 45*time.Second)
		w.end()
		want := []minute{{time.Minute, 60, 11}, {2 * time.Minute, 180, 12}, {2*time.Minute + 45*time.Second, 285, 12.75}}
		if w.err != nil || !slices.Equal(w.minutes, want) {
			t.Errorf("%+v, %v, want %+v", w.minutes, w.err, want)
		}
	})
}

// A rate of a moment says little.
func TestWatchLeavesAShortRestOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch{every: time.Minute, done: func() int { return 0 }, memory: func() (float64, error) { return 0, nil }}
		w.begin(t.Context())
		time.Sleep(time.Minute + time.Second)
		w.end()
		if len(w.minutes) != 1 {
			t.Errorf("%+v", w.minutes)
		}
	})
}

func TestWatchTellsThatItCouldNotLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("no such file")
		w := watch{every: time.Minute, done: func() int { return 0 }, memory: func() (float64, error) { return 0, gone }}
		w.begin(t.Context())
		time.Sleep(time.Minute)
		w.end()
		if !errors.Is(w.err, gone) {
			t.Errorf("got %v", w.err)
		}
	})
}

func TestHoldsIsOneWhereNothingChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rates []float64
		want  held
	}{
		{[]float64{100, 100, 100}, held{1, 1, 1}},
		{[]float64{100}, held{1, 1, 1}},
		{[]float64{100, 90, 80, 70, 60}, held{0.75, 0.6, 1}},
		{[]float64{100, 110, 120}, held{120.0 / 110, 1.2, 1}},
		{[]float64{100, 100, 100, 50}, held{0.5, 65.0 / 110, 1}},
	} {
		var minutes []minute
		for _, rate := range c.rates {
			minutes = append(minutes, minute{PerSecond: rate, MiB: 50})
		}
		got := holds(minutes)
		for _, d := range []float64{got.last - c.want.last, got.line - c.want.line, got.memory - c.want.memory} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("%v: %+v, want %+v", c.rates, got, c.want)
				break
			}
		}
	}
	if got := holds([]minute{{MiB: 40, PerSecond: 1}, {MiB: 90, PerSecond: 1}, {MiB: 60, PerSecond: 1}}); got.memory != 1.5 {
		t.Errorf("memory: %v", got.memory)
	}
}
