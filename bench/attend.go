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

// inFlight is how many tasks a worker runs at once while something is killed.
const inFlight = 50

// attended is what a worker reports of a task: that its handler began, or ended.
type attended struct {
	Task  string // its payload
	Ended bool
}

// attendStep is a worker that reports every handler, until it is killed.
var attendStep = step{name: "attend", executors: inFlight, run: func(ctx context.Context, s system, q queue, o scale) (any, error) {
	reopen := func(ctx context.Context) (queue, error) { return s.open(ctx, inFlight) }
	return nil, attend(ctx, q, reopen, o.Lasts, os.Stdout)
}}

// reopenAfter is how long a worker waits until it tries to connect again.
const reopenAfter = 100 * time.Millisecond

// attend works until ctx ends. A worker that does not reconnect by itself gets a new connection, as a supervisor that
// restarts the process would give it one.
func attend(ctx context.Context, q queue, reopen func(context.Context) (queue, error), lasts time.Duration, out io.Writer) error {
	handle := reporter(ctx, lasts, out)
	if err := q.Work(ctx, handle); err != nil {
		_, _ = io.WriteString(os.Stderr, "the worker ended: "+err.Error()+"\n")
	}
	for ctx.Err() == nil {
		next, err := reopen(ctx)
		if err == nil {
			err = next.Work(ctx, handle)
			_ = next.Close() // its connection may be broken
		}
		if err != nil {
			select {
			case <-time.After(reopenAfter):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// reporter returns a handler that writes when it begins and ends.
func reporter(ctx context.Context, lasts time.Duration, out io.Writer) func([]byte) error {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	write := func(a attended) error {
		mu.Lock()
		defer mu.Unlock()
		return lines.Encode(a)
	}
	return func(payload []byte) error {
		if err := write(attended{Task: string(payload)}); err != nil {
			return err
		}
		select {
		case <-time.After(lasts):
			return write(attended{Task: string(payload), Ended: true})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// attendant is a process that takes attendStep.
type attendant struct {
	cmd  *exec.Cmd
	said <-chan attended // closed at its end
}

// hireAttendant starts a worker of a system, whose tasks take so long.
func hireAttendant(ctx context.Context, s system, o scale, lasts time.Duration) (*attendant, error) {
	o.Lasts = lasts
	cmd, err := process(ctx, s, attendStep, o)
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
	said := make(chan attended, 10_000)
	go func() {
		defer close(said)
		for lines := json.NewDecoder(out); ; {
			var a attended
			if lines.Decode(&a) != nil {
				return // it was killed
			}
			said <- a
		}
	}()
	return &attendant{cmd, said}, nil
}

// kill ends the process as the kernel does, and waits for its end.
func (a *attendant) kill() error {
	err := a.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	for range a.said { // the pipe is read to its end before Wait closes it
	}
	_ = a.cmd.Wait() // it says that it was killed
	return err
}
