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

// worker is a worker process as its parent sees it. The process starts to run tasks when it reads a line from in, and
// stops at the end of in. It writes its progress to out.
type worker struct {
	in  io.WriteCloser
	out io.Reader
}

// workerEvent is one report of a worker, or the error that ended its reports.
type workerEvent struct {
	worker int
	progress
	err error
}

// readProgress sends each report of the worker to events, until the reports or ctx end. The last event has an error.
func (w worker) readProgress(ctx context.Context, number int, events chan<- workerEvent) {
	lines := json.NewDecoder(w.out)
	for {
		next := workerEvent{worker: number}
		next.err = lines.Decode(&next.progress)
		select {
		case events <- next:
		case <-ctx.Done():
			return
		}
		if next.err != nil {
			return
		}
	}
}

// runWorkers starts all workers together when all of them are ready, and stops them when they have run total tasks. It
// returns an error if a worker ends early, if the workers run more than total tasks, or if no task is run for the
// duration patience.
func runWorkers(ctx context.Context, workers []worker, total int, patience time.Duration) (load.Rate, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan workerEvent)
	for i, w := range workers {
		go w.readProgress(ctx, i, events)
	}
	g := workerGroup{workers: workers, total: total, ready: make([]bool, len(workers)), latest: make([]progress, len(workers))}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for g.ended < len(workers) {
		select {
		case event := <-events:
			done := g.done()
			if err := g.handle(event); err != nil {
				return load.Rate{}, err
			}
			if g.done() > done {
				timeout.Reset(patience)
			}
		case <-timeout.C:
			return load.Rate{}, fmt.Errorf("%d of %d tasks were run, and none for %s", g.done(), total, patience)
		case <-ctx.Done():
			return load.Rate{}, context.Cause(ctx)
		}
	}
	return g.rate(), nil
}

// workerGroup is the state of the workers that drain one backlog.
type workerGroup struct {
	workers []worker
	total   int // tasks in the backlog
	ready   []bool
	latest  []progress
	stopped bool
	ended   int // workers
}

// done returns how many tasks the workers have reported.
func (g *workerGroup) done() (sum int) {
	for _, p := range g.latest {
		sum += p.Done
	}
	return sum
}

// handle records an event. It starts the workers when all of them are ready, and stops them when all tasks are done.
func (g *workerGroup) handle(event workerEvent) error {
	switch {
	case errors.Is(event.err, io.EOF) && g.stopped:
		g.ended++
		return nil
	case errors.Is(event.err, io.EOF):
		return fmt.Errorf("a worker ended after %d of %d tasks", g.done(), g.total)
	case event.err != nil:
		return fmt.Errorf("read a worker's progress: %w", event.err)
	case !g.ready[event.worker]: // the first report means that the worker is ready
		g.ready[event.worker] = true
		if !slices.Contains(g.ready, false) {
			return g.start()
		}
		return nil
	}
	g.latest[event.worker] = event.progress
	switch done := g.done(); {
	case done > g.total:
		return fmt.Errorf("%d tasks were run of %d: some ran twice", done, g.total)
	case done == g.total && !g.stopped:
		return g.stop()
	}
	return nil
}

func (g *workerGroup) start() error {
	for _, w := range g.workers {
		if _, err := io.WriteString(w.in, "begin\n"); err != nil {
			return fmt.Errorf("start a worker: %w", err)
		}
	}
	return nil
}

func (g *workerGroup) stop() error {
	g.stopped = true
	for _, w := range g.workers {
		if err := w.in.Close(); err != nil {
			return fmt.Errorf("stop a worker: %w", err)
		}
	}
	return nil
}

// rate returns the rate from the first task of any worker to the last task of any worker.
func (g *workerGroup) rate() load.Rate {
	var first, last time.Time
	for _, p := range g.latest {
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
	return load.Rate{Tasks: g.total, Took: last.Sub(first)}
}
