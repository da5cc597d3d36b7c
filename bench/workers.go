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

// processCounts are the numbers of worker processes that drain the same queue.
var processCounts = []int{1, 2, 4}

// reportEvery is the time between two progress reports of a worker.
const reportEvery = 50 * time.Millisecond

// measureWorkers measures how fast one, two and four processes drain the same backlog.
func (s *scaleBench) measureWorkers(ctx context.Context) error {
	o := scale{Options: s.Options, Backlog: s.tasks}
	for round := range s.rounds {
		for _, n := range order(processCounts, round) {
			if _, err := runStep[figures](ctx, empty, stepOf("fill"), o); err != nil {
				return err
			}
			if err := prepare(ctx, empty, workerStep); err != nil {
				return err
			}
			rate, err := drainBy(ctx, empty, o, n)
			if err != nil {
				return fmt.Errorf("%s: %w", processesCondition(n), err)
			}
			s.record(round, processesCondition(n), drain, rate.PerSecond())
		}
	}
	return nil
}

// processesCondition returns the name of the condition with that many processes.
func processesCondition(processes int) string {
	if processes == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", processes)
}

// drainBy drains the backlog with n processes. It returns the rate from the first task of any process to the last.
func drainBy(ctx context.Context, where system, o scale, n int) (rate load.Rate, err error) {
	ctx, kill := context.WithCancel(ctx)
	var running []*exec.Cmd
	defer func() {
		if err != nil {
			kill()
		}
		for _, cmd := range running {
			if ended := cmd.Wait(); err == nil { // otherwise the process was killed
				err = ended
			}
		}
		kill()
	}()
	var workers []worker
	for range n {
		cmd, err := stepCommand(ctx, where, workerStep, o)
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
	return runWorkers(ctx, workers, o.Backlog, o.Patience)
}

// workerStep is a worker that its parent process starts and stops.
var workerStep = step{name: "worker", run: func(ctx context.Context, _ system, q queue, _ scale) (any, error) {
	return serveWorker(ctx, q, os.Stdin, os.Stdout)
}}

// serveWorker runs a worker from the first line of in to the end of in. It writes a first progress to out when all
// connections are open, before it reads that line. Then it writes its progress every reportEvery. It returns the last
// progress, which the caller writes.
func serveWorker(ctx context.Context, q load.Queue, in io.Reader, out io.Writer) (progress, error) {
	encoder, input := json.NewEncoder(out), bufio.NewReader(in)
	if err := encoder.Encode(progress{}); err != nil {
		return progress{}, err
	}
	if _, err := input.ReadString('\n'); err != nil {
		return progress{}, fmt.Errorf("wait for the start: %w", err)
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, input) // an error means that the parent has ended
		stop()
	}()
	c := &countingQueue{Queue: q}
	ended := make(chan error, 1)
	go func() { ended <- c.Work(working, func([]byte) error { return nil }) }()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := encoder.Encode(c.progress()); err != nil {
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

func (s *scaleBench) workersSection() string {
	var conditions []string
	for _, n := range processCounts {
		conditions = append(conditions, processesCondition(n))
	}
	c := comparison{"drained by", conditions, []goal{{measure: drain, least: 0.95}}}
	return fmt.Sprintf("How fast several worker processes drain %s of one queue. They share the cores of the machine with the servers. The workers "+
		"start together when all of them have opened their connections. The time is from the first task of any worker to the last. "+
		"If a task runs twice, the measurement fails.\n\n%s", backlogCondition(s.tasks), c.table(s.found))
}
