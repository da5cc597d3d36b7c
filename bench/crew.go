package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// worker is a process that obeys: it begins at a line, stops at the end of in, and writes its progress to out.
type worker struct {
	in  io.WriteCloser
	out io.Reader
}

// said is what a worker wrote, or that it writes no more.
type said struct {
	by int
	progress
	err error
}

func (w worker) listen(ctx context.Context, number int, heard chan<- said) {
	lines := json.NewDecoder(w.out)
	for {
		next := said{by: number}
		next.err = lines.Decode(&next.progress)
		select {
		case heard <- next:
		case <-ctx.Done():
			return
		}
		if next.err != nil {
			return
		}
	}
}

// conduct lets the workers begin together when all are ready, and stop when they have run so many tasks. It is an error if
// one of them ends before, if they run more, or if for a while nothing comes.
func conduct(ctx context.Context, workers []worker, total int, patience time.Duration) (load.Rate, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan said)
	for i, w := range workers {
		go w.listen(ctx, i, heard)
	}
	c := crew{workers: workers, total: total, ready: make([]bool, len(workers)), latest: make([]progress, len(workers))}
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for c.ended < len(workers) {
		select {
		case s := <-heard:
			done := c.done()
			if err := c.hear(s); err != nil {
				return load.Rate{}, err
			}
			if c.done() > done {
				quiet.Reset(patience)
			}
		case <-quiet.C:
			return load.Rate{}, fmt.Errorf("%d of %d tasks were run, and none for %s", c.done(), total, patience)
		case <-ctx.Done():
			return load.Rate{}, context.Cause(ctx)
		}
	}
	return c.rate(), nil
}

// crew is what is known of the workers.
type crew struct {
	workers []worker
	total   int
	ready   []bool
	latest  []progress
	stopped bool
	ended   int
}

func (c *crew) done() (sum int) {
	for _, p := range c.latest {
		sum += p.Done
	}
	return sum
}

func (c *crew) hear(s said) error {
	switch {
	case errors.Is(s.err, io.EOF) && c.stopped:
		c.ended++
		return nil
	case errors.Is(s.err, io.EOF):
		return fmt.Errorf("a worker ended when %d of %d tasks were run", c.done(), c.total)
	case s.err != nil:
		return fmt.Errorf("read a worker's progress: %w", s.err)
	case !c.ready[s.by]:
		c.ready[s.by] = true
		if !slices.Contains(c.ready, false) {
			return c.begin()
		}
		return nil
	}
	c.latest[s.by] = s.progress
	switch done := c.done(); {
	case done > c.total:
		return fmt.Errorf("%d tasks were run of %d: some ran twice", done, c.total)
	case done == c.total && !c.stopped:
		return c.stop()
	}
	return nil
}

func (c *crew) begin() error {
	for _, w := range c.workers {
		if _, err := io.WriteString(w.in, "begin\n"); err != nil {
			return fmt.Errorf("start a worker: %w", err)
		}
	}
	return nil
}

func (c *crew) stop() error {
	c.stopped = true
	for _, w := range c.workers {
		if err := w.in.Close(); err != nil {
			return fmt.Errorf("stop a worker: %w", err)
		}
	}
	return nil
}

// rate is from the first task of any worker to the last.
func (c *crew) rate() load.Rate {
	var first, last time.Time
	for _, p := range c.latest {
		if p.Done == 0 {
			continue
		}
		if first.IsZero() || p.First.Before(first) {
			first = p.First
		}
		if p.Last.After(last) {
			last = p.Last
		}
	}
	return load.Rate{Tasks: c.total, Took: last.Sub(first)}
}
