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

// minute is one of a steady state that is held for long, or a fifth of one that lasts for less than five of them.
type minute struct {
	After     time.Duration // at its end, since the warm-up
	PerSecond float64
	MiB       float64 // that are resident at its end
}

// endureStep holds a steady state, and tells every minute of it. Unlike others it leaves all vacuuming to the database.
var endureStep = step{name: "endurance", fresh: true, run: func(ctx context.Context, _ system, q queue, o scale) (any, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := &counted{Queue: q}
	w := watch{
		every: min(time.Minute, o.For/5), done: func() int { return c.progress().Done }, memory: func() (float64, error) { return memoryMiB(os.Getpid(), resident) },
	}
	_, err := o.Steady(ctx, c, func() { w.begin(ctx) }, w.end)
	return w.minutes, errors.Join(err, w.err)
}}

// watch looks at a counter and at the memory again and again, between begin and end.
type watch struct {
	every  time.Duration
	done   func() int
	memory func() (float64, error)

	// To be read after the end.
	minutes []minute
	err     error

	began, looked time.Time
	seen          int // at the last look
	stop          context.CancelFunc
	looking       sync.WaitGroup
}

func (w *watch) begin(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.began, w.looked, w.seen = time.Now(), time.Now(), w.done()
	w.looking.Go(func() {
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				w.look()
			case <-ctx.Done():
				return
			}
		}
	})
}

func (w *watch) end() {
	w.stop()
	w.looking.Wait()
	if time.Since(w.looked) > w.every/2 { // the last tick may be due just now
		w.look()
	}
}

func (w *watch) look() {
	now, done := time.Now(), w.done()
	mib, err := w.memory()
	w.err = errors.Join(w.err, err)
	m := minute{now.Sub(w.began), float64(done-w.seen) / now.Sub(w.looked).Seconds(), mib}
	w.minutes, w.looked, w.seen = append(w.minutes, m), now, done
	fmt.Fprintf(os.Stderr, "after %-8s %12.3f/s %12.3f MiB\n", m.after(), m.PerSecond, m.MiB)
}

func (m minute) after() time.Duration { return m.After.Round(time.Second / 10) }

func (s *scaling) measureEndurance(ctx context.Context) (err error) {
	o := scale{Options: s.Options}
	o.For = s.endurance
	s.minutes, err = take[[]minute](ctx, empty, endureStep, o)
	return err
}

// held says in proportions how a steady state held. They are 1 if nothing changed.
type held struct {
	last   float64 // the last minute's rate to the median of all
	line   float64 // the end of the straight line that fits the rates best to its beginning
	memory float64 // at the end to that after the first minute
}

func holds(minutes []minute) held {
	rates := make([]float64, len(minutes))
	for i, m := range minutes {
		rates[i] = m.PerSecond
	}
	middle, _ := median(rates)
	first, last := minutes[0], minutes[len(minutes)-1]
	return held{last.PerSecond / middle, trend(rates), last.MiB / first.MiB}
}

// trend fits a straight line by least squares, and returns its end in proportion to its beginning.
func trend(values []float64) float64 {
	n := float64(len(values))
	var sum, weighted, squares float64
	for i, v := range values {
		x := float64(i) - (n-1)/2 // from the middle, so that the mean is the line's value at 0
		sum, weighted, squares = sum+v, weighted+x*v, squares+x*x
	}
	if squares == 0 {
		return 1
	}
	half := weighted / squares * (n - 1) / 2
	return (sum/n + half) / (sum/n - half)
}

func (s *scaling) enduranceSection() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "Whether the speed decays: a steady state is held for %s in a store that was empty, and that keeps all it has run. Vacuums are "+
		"left to the database. The memory is what is resident of the one process that stores and runs.\n\n", s.endurance)
	h := holds(s.minutes)
	text.WriteString(table([][]string{
		{"in proportion; 1 is no change", "ratio"},
		{"rate at the end to the median", fmt.Sprintf("%.2f", h.last)},
		{"rate at the end to the beginning, on the line that fits best", fmt.Sprintf("%.2f", h.line)},
		{"memory at the end to that after the first line below", fmt.Sprintf("%.2f", h.memory)},
	}))
	rows := [][]string{{"until", steady, "worker, MiB"}}
	for _, m := range s.minutes {
		rows = append(rows, []string{m.after().String(), human(m.PerSecond), human(m.MiB)})
	}
	fmt.Fprintf(text, "\n%s", table(rows))
	return text.String()
}
