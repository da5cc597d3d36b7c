package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// processCounts are of workers that drain the same lane.
var processCounts = []int{1, 2, 4}

// tellEvery is how often a worker tells how far it has come.
const tellEvery = 50 * time.Millisecond

// measureWorkers has one, two and four processes drain the same backlog.
func (s *scaling) measureWorkers(ctx context.Context) error {
	o := scale{Options: s.Options, Backlog: s.tasks}
	for round := range s.rounds {
		for _, n := range order(processCounts, round) {
			if _, err := take[figures](ctx, empty, stepOf("fill"), o); err != nil {
				return err
			}
			if err := prepare(ctx, empty, workerStep); err != nil {
				return err
			}
			rate, err := drainBy(ctx, empty, o, n)
			if err != nil {
				return fmt.Errorf("%s: %w", several(n), err)
			}
			s.see(round, several(n), drain, rate.PerSecond())
		}
	}
	return nil
}

// several names a condition.
func several(processes int) string {
	if processes == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", processes)
}

// drainBy has n processes drain what waits.
func drainBy(ctx context.Context, where system, o scale, n int) (rate load.Rate, err error) {
	ctx, kill := context.WithCancel(ctx)
	var running []*exec.Cmd
	defer func() {
		if err != nil {
			kill()
		}
		for _, cmd := range running {
			if ended := cmd.Wait(); err == nil { // else it was killed
				err = ended
			}
		}
		kill()
	}()
	var workers []worker
	for range n {
		cmd, err := process(ctx, where, workerStep, o)
		if err != nil {
			return rate, err
		}
		in, err := cmd.StdinPipe()
		if err != nil {
			return rate, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return rate, err
		}
		if err := cmd.Start(); err != nil {
			return rate, err
		}
		running, workers = append(running, cmd), append(workers, worker{in, out})
	}
	return conduct(ctx, workers, o.Backlog, o.Patience)
}

// workerStep is a worker that another process starts and stops.
var workerStep = step{name: "worker", run: func(ctx context.Context, _ system, q queue, _ scale) (any, error) {
	return obey(ctx, q, os.Stdin, os.Stdout)
}}

// obey runs a worker from the first line of in to its end, and writes progress to out: once before that line, which tells
// that everything is open, and then again and again. What it returns is left to the caller to write.
func obey(ctx context.Context, q load.Queue, in io.Reader, out io.Writer) (progress, error) {
	tell, told := json.NewEncoder(out), bufio.NewReader(in)
	if err := tell.Encode(progress{}); err != nil {
		return progress{}, err
	}
	if _, err := told.ReadString('\n'); err != nil {
		return progress{}, fmt.Errorf("wait for the start: %w", err)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, told) // whatever ends it, there is nobody left to work for
		stop()
	}()
	c := &counted{Queue: q}
	ended := make(chan error, 1)
	go func() { ended <- c.Work(working, func([]byte) error { return nil }) }()
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := tell.Encode(c.progress()); err != nil {
				stop()
				return progress{}, errors.Join(err, <-ended)
			}
		case err := <-ended:
			if err == nil && working.Err() == nil {
				err = errors.New("the worker ended by itself")
			}
			return c.progress(), err
		}
	}
}

func (s *scaling) workersSection() string {
	var conditions []string
	for _, n := range processCounts {
		conditions = append(conditions, several(n))
	}
	c := contrast{"drained by", conditions, []goal{{measure: drain, least: 0.95}}}
	return fmt.Sprintf("How fast several worker processes on this machine, which share its cores with the servers, drain %s of one lane. All open "+
		"their connections before they are told together to begin; the time is from the first task that any of them runs to the last. "+
		"A task that ran twice would have ended it.\n\n%s", waiting(s.tasks), c.table(s.found))
}
