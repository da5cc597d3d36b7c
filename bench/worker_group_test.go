package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/load"
)

// backlogQueue is a backlog that several workers drain. A task takes the duration each.
type backlogQueue struct {
	queue
	mu   sync.Mutex
	left int
	each time.Duration
	ends error // returned by Work when no task is left; nil means that Work waits for its context
}

// take removes a task. It returns false if no task is left.
func (q *backlogQueue) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left--
	return q.left >= 0
}

func (q *backlogQueue) Work(ctx context.Context, handle func([]byte) error) error {
	for ctx.Err() == nil && q.take() {
		time.Sleep(q.each)
		if err := handle(nil); err != nil {
			return err
		}
	}
	if q.ends == nil {
		<-ctx.Done()
	}
	return q.ends
}

// writeLine writes a progress as a worker process does.
func writeLine(out io.Writer, p progress) error { return json.NewEncoder(out).Encode(p) }

// startWorkers starts n workers on a queue. Each writes the result of serveWorker and closes its output, as a worker
// process does.
func startWorkers(t *testing.T, q load.Queue, n int) (workers []worker) {
	t.Helper()
	for range n {
		in, commands := io.Pipe()
		lines, out := io.Pipe()
		workers = append(workers, worker{commands, lines})
		var ended sync.WaitGroup
		ended.Go(func() {
			last, err := serveWorker(context.Background(), q, in, out)
			if err == nil {
				err = writeLine(out, last)
			}
			if err == nil {
				err = io.EOF
			}
			_, _ = in.CloseWithError(io.ErrClosedPipe), out.CloseWithError(err)
		})
		t.Cleanup(func() {
			_, _ = commands.Close(), lines.Close()
			ended.Wait()
		})
	}
	return workers
}

func TestWorkersDrainTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Each of the four workers runs 100 tasks of a millisecond. The first task starts after 1 ms, the last after
		// 100 ms.
		rate, err := runWorkers(t.Context(), startWorkers(t, &backlogQueue{left: 400, each: time.Millisecond}, 4), 400, time.Minute)
		if want := (load.Rate{Tasks: 400, Took: 99 * time.Millisecond}); err != nil || rate != want {
			t.Errorf("%+v, %v, want %+v", rate, err, want)
		}
	})
}

func TestWorkersStartWhenAllAreReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &backlogQueue{left: 10, each: time.Millisecond}
		workers := startWorkers(t, q, 2)
		lines, late := io.Pipe()
		result := make(chan error, 1)
		go func() {
			_, err := runWorkers(t.Context(), append(workers, worker{nopCloser{io.Discard}, lines}), 10, time.Minute)
			result <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if q.left != 10 {
			t.Errorf("%d tasks are left while one worker is not ready, want 10", q.left)
		}
		if err := writeLine(late, progress{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_ = late.Close()
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

func TestErrorsOfWorkersEndADrain(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct{ left, total int }{
		"7 tasks were run of 5: some ran twice":         {7, 5},
		"5 of 6 tasks were run, and none for 30s":       {5, 6},
		"a worker ended after 5 of 6 tasks":             {-5, 6},
		"read a worker's progress: the connection died": {0, 6},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var workers []worker
				switch {
				case c.left > 0:
					workers = startWorkers(t, &backlogQueue{left: c.left}, 1)
				case c.left < 0:
					workers = []worker{{nopCloser{io.Discard}, strings.NewReader("{}\n" + `{"Done":5}` + "\n")}}
				default:
					workers = startWorkers(t, &backlogQueue{ends: errors.New("the connection died")}, 1)
				}
				if _, err := runWorkers(t.Context(), workers, c.total, 30*time.Second); err == nil || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
			})
		})
	}
}

func TestTheContextEndsADrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := runWorkers(ctx, startWorkers(t, &backlogQueue{}, 2), 5, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestErrorsOfServeWorker(t *testing.T) {
	t.Parallel()
	lost := errors.New("the connection was lost")
	for want, c := range map[string]struct {
		in string
		q  *backlogQueue
	}{
		"wait for the start: EOF": {"", &backlogQueue{}},
		lost.Error():              {"begin\n", &backlogQueue{ends: lost}},
	} {
		if _, err := serveWorker(t.Context(), c.q, strings.NewReader(c.in), &bytes.Buffer{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestADrainIsMeasuredFromTheFirstTaskToTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := scale{Options: load.Defaults(), Backlog: 100}
		got, err := drainStep.run(t.Context(), system{}, &backlogQueue{left: 100, each: time.Millisecond}, o)
		if want := (load.Rate{Tasks: 100, Took: 99 * time.Millisecond}); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
