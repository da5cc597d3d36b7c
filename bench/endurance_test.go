package main

import (
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSamplerTakesASampleEveryMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		startedAt := time.Now()
		s := sampler{
			every:  time.Minute,
			done:   func() int { n := int(time.Since(startedAt).Seconds()); return 100 + n*n }, // the rate grows
			memory: func() (float64, error) { return 10 + time.Since(startedAt).Minutes(), nil },
		}
		s.start(t.Context())
		time.Sleep(2*time.Minute + 45*time.Second)
		s.stop()
		want := []sample{{time.Minute, 60, 11}, {2 * time.Minute, 180, 12}, {2*time.Minute + 45*time.Second, 285, 12.75}}
		if s.err != nil || !slices.Equal(s.samples, want) {
			t.Errorf("%+v, %v, want %+v", s.samples, s.err, want)
		}
	})
}

// The rate of a short interval is not precise, so stop takes no sample of it.
func TestSamplerIgnoresAShortLastInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sampler{every: time.Minute, done: func() int { return 0 }, memory: func() (float64, error) { return 0, nil }}
		s.start(t.Context())
		time.Sleep(time.Minute + time.Second)
		s.stop()
		if len(s.samples) != 1 {
			t.Errorf("got the samples %+v, want only that of the first minute", s.samples)
		}
	})
}

func TestSamplerReportsErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		missing := errors.New("no such file")
		s := sampler{every: time.Minute, done: func() int { return 0 }, memory: func() (float64, error) { return 0, missing }}
		s.start(t.Context())
		time.Sleep(time.Minute)
		s.stop()
		if !errors.Is(s.err, missing) {
			t.Errorf("got %v, want %v", s.err, missing)
		}
	})
}

func TestStabilityIsOneIfNothingChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rates []float64
		want  stability
	}{
		{[]float64{100, 100, 100}, stability{1, 1, 1}},
		{[]float64{100}, stability{1, 1, 1}},
		{[]float64{100, 90, 80, 70, 60}, stability{0.75, 0.6, 1}},
		{[]float64{100, 110, 120}, stability{120.0 / 110, 1.2, 1}},
		{[]float64{100, 100, 100, 50}, stability{0.5, 65.0 / 110, 1}},
	} {
		var samples []sample
		for _, rate := range c.rates {
			samples = append(samples, sample{PerSecond: rate, MiB: 50})
		}
		got := stabilityOf(samples)
		for _, d := range []float64{got.last - c.want.last, got.line - c.want.line, got.memory - c.want.memory} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("%v: %+v, want %+v", c.rates, got, c.want)
				break
			}
		}
	}
	if got := stabilityOf([]sample{{MiB: 40, PerSecond: 1}, {MiB: 90, PerSecond: 1}, {MiB: 60, PerSecond: 1}}); got.memory != 1.5 {
		t.Errorf("memory: %v", got.memory)
	}
}
