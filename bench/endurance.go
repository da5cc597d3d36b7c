package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// sample contains the figures of one interval of a steady state. An interval is a minute, or a fifth of the duration if
// the steady state is shorter than five minutes.
type sample struct {
	After     time.Duration // time from the end of the warm-up to the end of the interval
	PerSecond float64       // rate of tasks in the interval
	MiB       float64       // resident memory at the end of the interval
}

// enduranceStep runs a long steady state and takes a sample of each interval. Unlike in other steps, only
// autovacuum vacuums the tables.
var enduranceStep = step{name: "endurance", startsEmpty: true, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	counting := &countingQueue{Queue: q}
	s := sampler{
		every:  min(time.Minute, o.For/5),
		done:   func() int { return counting.progress().Done },
		memory: func() (float64, error) { return memoryMiB(os.Getpid(), resident) },
	}
	_, err := o.Steady(ctx, counting, func() { s.start(ctx) }, s.stop)
	return s.samples, errors.Join(err, s.err)
}}

// sampler reads a counter and the memory at a fixed interval, from start to stop.
type sampler struct {
	every  time.Duration
	done   func() int
	memory func() (float64, error)

	samples []sample
	err     error

	startedAt, sampledAt time.Time
	sampledDone          int // the counter at sampledAt
	cancel               context.CancelFunc
	sampling             sync.WaitGroup
}

func (s *sampler) start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.startedAt, s.sampledAt, s.sampledDone = time.Now(), time.Now(), s.done()
	s.sampling.Go(func() {
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.take()
			case <-ctx.Done():
				return
			}
		}
	})
}

// stop ends the sampling. It takes a last sample if at least half an interval has passed since the previous sample.
func (s *sampler) stop() {
	s.cancel()
	s.sampling.Wait()
	if time.Since(s.sampledAt) > s.every/2 { // the last tick may be due at this instant
		s.take()
	}
}

func (s *sampler) take() {
	now, done := time.Now(), s.done()
	mib, err := s.memory()
	s.err = errors.Join(s.err, err)
	next := sample{now.Sub(s.startedAt), float64(done-s.sampledDone) / now.Sub(s.sampledAt).Seconds(), mib}
	s.samples, s.sampledAt, s.sampledDone = append(s.samples, next), now, done
	fmt.Fprintf(os.Stderr, "after %-8s %12.3f/s %12.3f MiB\n", next.after(), next.PerSecond, next.MiB)
}

func (s sample) after() time.Duration { return s.After.Round(time.Second / 10) }

func (s *scaleBench) measureEndurance(ctx context.Context) (err error) {
	o := scale{Options: s.Options}
	o.For = s.endurance
	s.samples, err = runStep[[]sample](ctx, empty, enduranceStep, o)
	return err
}

// stability contains ratios that describe how constant a steady state was. Each ratio is 1 if nothing changed.
type stability struct {
	last   float64 // rate of the last sample, divided by the median rate
	line   float64 // best-fitting straight line through the rates: its end, divided by its beginning
	memory float64 // memory of the last sample, divided by that of the first
}

// stabilityOf returns the stability of a steady state. There must be a sample.
func stabilityOf(samples []sample) stability {
	rates := make([]float64, len(samples))
	for i, s := range samples {
		rates[i] = s.PerSecond
	}
	middle, _ := median(rates)
	first, last := samples[0], samples[len(samples)-1]
	return stability{last.PerSecond / middle, trend(rates), last.MiB / first.MiB}
}

// trend fits a straight line by least squares. It returns the ratio of the line's end to its beginning.
func trend(values []float64) float64 {
	n := float64(len(values))
	var sum, weighted, squares float64
	for i, v := range values {
		x := float64(i) - (n-1)/2 // distance from the middle, so that the line has the mean value at 0
		sum, weighted, squares = sum+v, weighted+x*v, squares+x*x
	}
	if squares == 0 {
		return 1
	}
	half := weighted / squares * (n - 1) / 2
	return (sum/n + half) / (sum/n - half)
}

func (s *scaleBench) enduranceSection() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "Whether the speed decays over time. A steady state is measured for %s in a store that was empty and that keeps all finished tasks. "+
		"Only autovacuum vacuums the tables. One process stores and runs the tasks. The memory is its resident memory at the end of each interval.\n\n", s.endurance)
	found := stabilityOf(s.samples)
	text.WriteString(table([][]string{
		{"1 means no change", "ratio"},
		{"rate at the end, divided by the median rate", fmt.Sprintf("%.2f", found.last)},
		{"best-fitting straight line through the rates: its end, divided by its beginning", fmt.Sprintf("%.2f", found.line)},
		{"memory at the end, divided by the memory in the first row below", fmt.Sprintf("%.2f", found.memory)},
	}))
	rows := [][]string{{"until", steady, "worker, MiB"}}
	for _, s := range s.samples {
		rows = append(rows, []string{s.after().String(), formatNumber(s.PerSecond), formatNumber(s.MiB)})
	}
	fmt.Fprintf(text, "\n%s", table(rows))
	return text.String()
}
