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

// shared is a backlog that workers take from, each a task in a while.
type shared struct {
	queue
	mu   sync.Mutex
	left int
	each time.Duration
	ends error // of a worker that finds nothing; nil has it wait for its context
}

func (q *shared) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left--
	return q.left >= 0
}

func (q *shared) Work(ctx context.Context, handle func([]byte) error) error {
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

// writeLine writes what a process writes at its end.
func writeLine(out io.Writer, p progress) error { return json.NewEncoder(out).Encode(p) }

// hire starts workers on a queue, as processes do: what obey returns is written, and then out ends.
func hire(t *testing.T, q load.Queue, n int) (workers []worker) {
	t.Helper()
	for range n {
		in, orders := io.Pipe()
		lines, out := io.Pipe()
		workers = append(workers, worker{orders, lines})
		var ended sync.WaitGroup
		ended.Go(func() {
			last, err := obey(context.Background(), q, in, out)
			if err == nil {
				err = writeLine(out, last)
			}
			if err == nil {
				err = io.EOF
			}
			_, _ = in.CloseWithError(io.ErrClosedPipe), out.CloseWithError(err)
		})
		t.Cleanup(func() {
			_, _ = orders.Close(), lines.Close()
			ended.Wait()
		})
	}
	return workers
}

func TestWorkersDrainTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Each runs a task in a millisecond, so the last of four begins when 100 times it is over, and the first after one.
		rate, err := conduct(t.Context(), hire(t, &shared{left: 400, each: time.Millisecond}, 4), 400, time.Minute)
		if want := (load.Rate{Tasks: 400, Took: 99 * time.Millisecond}); err != nil || rate != want {
			t.Errorf("%+v, %v, want %+v", rate, err, want)
		}
	})
}

func TestWorkersBeginWhenAllAreReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &shared{left: 10, each: time.Millisecond}
		workers := hire(t, q, 2)
		lines, late := io.Pipe()
		went := make(chan error, 1)
		go func() {
			_, err := conduct(t.Context(), append(workers, worker{nopCloser{io.Discard}, lines}), 10, time.Minute)
			went <- err
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if q.left != 10 {
			t.Errorf("%d tasks are left when one worker is not ready", q.left)
		}
		if err := writeLine(late, progress{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_ = late.Close()
		if err := <-went; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatEndsADrainByWorkers(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct{ left, total int }{
		"7 tasks were run of 5: some ran twice":         {7, 5},
		"5 of 6 tasks were run, and none for 30s":       {5, 6},
		"a worker ended when 5 of 6 tasks were run":     {-5, 6},
		"read a worker's progress: the connection died": {0, 6},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var workers []worker
				switch {
				case c.left > 0:
					workers = hire(t, &shared{left: c.left}, 1)
				case c.left < 0:
					workers = []worker{{nopCloser{io.Discard}, strings.NewReader("{}\n" + `{"Done":5}` + "\n")}}
				default:
					workers = hire(t, &shared{ends: errors.New("the connection died")}, 1)
				}
				if _, err := conduct(t.Context(), workers, c.total, 30*time.Second); err == nil || err.Error() != want {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestTheEndOfTheContextEndsADrainByWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := conduct(ctx, hire(t, &shared{}, 2), 5, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAWorkerWithoutAStartOrWithAnEndIsAnError(t *testing.T) {
	t.Parallel()
	lost := errors.New("the connection was lost")
	for want, c := range map[string]struct {
		in string
		q  *shared
	}{
		"wait for the start: EOF": {"", &shared{}},
		lost.Error():              {"begin\n", &shared{ends: lost}},
	} {
		if _, err := obey(t.Context(), c.q, strings.NewReader(c.in), &bytes.Buffer{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestADrainIsFromTheFirstTaskToTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := scale{Options: load.Defaults(), Backlog: 100}
		got, err := drainStep.run(t.Context(), system{}, &shared{left: 100, each: time.Millisecond}, o)
		if want := (load.Rate{Tasks: 100, Took: 99 * time.Millisecond}); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
