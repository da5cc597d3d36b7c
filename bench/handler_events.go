package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// inFlight is how many tasks a worker runs at once when it or its broker is killed.
const inFlight = 50

// handlerEvent reports the start or the end of a handler in a worker process.
type handlerEvent struct {
	Task  string // payload of the task
	Ended bool
}

// handlerEventsStep is a worker that reports each start and each end of a handler, until the process is killed.
var handlerEventsStep = step{name: "handler events", executors: inFlight, run: func(ctx context.Context, s system, q queue, o scale) (any, error) {
	reopen := func(ctx context.Context) (queue, error) { return s.open(ctx, inFlight) }
	return nil, workUntilDone(ctx, q, reopen, o.TaskDuration, os.Stdout)
}}

// reopenPause is the pause between two attempts of a worker to connect.
const reopenPause = 100 * time.Millisecond

// workUntilDone runs tasks until ctx is done. If the worker ends because it lost its connection, workUntilDone opens a
// new one, as a supervisor that restarts the process would do.
func workUntilDone(ctx context.Context, q queue, reopen func(context.Context) (queue, error), taskDuration time.Duration, out io.Writer) error {
	handle := reporter(ctx, taskDuration, out)
	if err := q.Work(ctx, handle); err != nil {
		_, _ = io.WriteString(os.Stderr, "the worker ended: "+err.Error()+"\n")
	}
	for ctx.Err() == nil {
		next, err := reopen(ctx)
		if err == nil {
			err = next.Work(ctx, handle)
			_ = next.Close() // its error does not matter: the connection may be broken
		}
		if err != nil {
			select {
			case <-time.After(reopenPause):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// reporter returns a handler that takes taskDuration and writes a handlerEvent at its start and at its end.
func reporter(ctx context.Context, taskDuration time.Duration, out io.Writer) func([]byte) error {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	write := func(event handlerEvent) error {
		mu.Lock()
		defer mu.Unlock()
		return lines.Encode(event)
	}
	return func(payload []byte) error {
		if err := write(handlerEvent{Task: string(payload)}); err != nil {
			return err
		}
		select {
		case <-time.After(taskDuration):
			return write(handlerEvent{Task: string(payload), Ended: true})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eventWorker is a process that runs handlerEventsStep.
type eventWorker struct {
	cmd    *exec.Cmd
	events <-chan handlerEvent // closed when the process has ended
}

// startEventWorker starts a worker process of a system. Each of its tasks takes taskDuration.
func startEventWorker(ctx context.Context, s system, o scale, taskDuration time.Duration) (*eventWorker, error) {
	o.TaskDuration = taskDuration
	cmd, err := stepCommand(ctx, s, handlerEventsStep, o)
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	events := make(chan handlerEvent, 10_000)
	go func() {
		defer close(events)
		for lines := json.NewDecoder(out); ; {
			var event handlerEvent
			if lines.Decode(&event) != nil {
				return // the process was killed
			}
			events <- event
		}
	}()
	return &eventWorker{cmd, events}, nil
}

// kill kills the process with SIGKILL and waits until it has ended.
func (w *eventWorker) kill() error {
	err := w.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	for range w.events { // read the pipe to its end before Wait closes it
	}
	_ = w.cmd.Wait() // the error is that the process was killed
	return err
}
