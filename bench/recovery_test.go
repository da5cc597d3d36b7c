package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// flaky is a queue whose worker ends by itself after its first task.
type flaky struct {
	queue
	err error
}

func (q flaky) Work(_ context.Context, handle func([]byte) error) error {
	return errors.Join(handle([]byte(`"a"`)), q.err)
}

func (q flaky) Close() error { return nil }

// idle is a queue without a task.
type idle struct{ queue }

func (idle) Work(ctx context.Context, _ func([]byte) error) error {
	<-ctx.Done()
	return nil
}

func (idle) Close() error { return nil }

func TestAnAttendantGetsANewConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		refused := false
		reopen := func(context.Context) (queue, error) {
			if !refused {
				refused = true
				return nil, errors.New("nobody listens")
			}
			return idle{}, nil
		}
		lines, out := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- attend(ctx, flaky{err: io.ErrUnexpectedEOF}, reopen, time.Second, out)
			_ = out.Close()
		}()
		text := make(chan string)
		go func() {
			all, _ := io.ReadAll(lines)
			text <- string(all)
		}()
		time.Sleep(time.Minute) // the second worker has no task and waits
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got, want := <-text, "{\"Task\":\"\\\"a\\\"\",\"Ended\":false}\n{\"Task\":\"\\\"a\\\"\",\"Ended\":true}\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !refused {
			t.Error("there was no new connection")
		}
	})
}

func TestTallyCountsTasksNotHandlers(t *testing.T) {
	t.Parallel()
	seen := tally{}
	for _, a := range []attended{{Task: "a"}, {Task: "b"}, {Task: "a"}, {Task: "a", Ended: true}, {Task: "a", Ended: true}, {Task: "a"}} {
		seen.add(a)
	}
	if len(seen) != 2 || seen.ended() != 1 || seen.twice() != 1 {
		t.Errorf("%d tasks, %d ended, %d ran twice: %v", len(seen), seen.ended(), seen.twice(), seen)
	}
}

func TestWhatEndsAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := func(t tally) bool { return len(t) == 2 }
		said := make(chan attended, 2)
		go func() {
			for _, task := range []string{"a", "b"} {
				time.Sleep(50 * time.Second)
				said <- attended{Task: task}
			}
		}()
		if err := watchUntil(t.Context(), said, time.Minute, tally{}, two); err != nil {
			t.Errorf("two tasks within a minute of each other: %v", err)
		}
		began := time.Now()
		if err := watchUntil(t.Context(), said, time.Minute, tally{}, two); !errors.Is(err, errPatience) || time.Since(began) != time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
		close(said)
		if err := watchUntil(t.Context(), said, time.Minute, tally{}, two); err == nil || errors.Is(err, errPatience) {
			t.Errorf("after the worker's end: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := watchUntil(ctx, make(chan attended), time.Minute, tally{}, two); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}

func TestThePageOfRecoveryHasTheKillsThatWereMade(t *testing.T) {
	t.Parallel()
	p := recoveryPage{
		when: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), command: "make bench-recovery", cores: 2, servers: []string{"PostgreSQL 15.18"},
		versions: map[string]string{"example.com/other": "v1.2.3"}, systems: []system{{name: "other", module: "example.com/other"}},
		recovering: &recovering{patience: 3 * time.Minute, tasks: 1000, lasts: 200 * time.Millisecond},
	}
	p.workers = []killedWorkers{
		{system: "quick", trials: 2, took: []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}},
		{system: "partly", trials: 1, took: []time.Duration{time.Second, 90 * time.Second}, missing: 1},
		{system: "never", trials: 1, missing: 3},
	}
	text := p.text()
	for _, want := range []string{
		"Written by `make bench-recovery` on 2026-03-01;", "PostgreSQL 15.18, other v1.2.3.",
		"| quick | 2 | 0.2 s | 2 s | 4 of 4 |\n", "| partly | 1 | 90 s | more than 3m0s | 2 of 3 |\n", "| never | 1 | more than 3m0s | more than 3m0s | 0 of 3 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "The broker is killed") {
		t.Error("the page tells of brokers that were not killed")
	}
	p.workers, p.brokers = nil, []killedBrokers{{"safe", []int{0, 0, 0}, []int{0, 0, 0}}, {"other", []int{451, 401, 420}, []int{0, 1, 0}}}
	text = p.text()
	for _, want := range []string{"1,000 tasks of 200ms", "| safe | 3 | 0 | 0 |\n", "| other | 3 | 420 (401–451) | 0 (0–1) |\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "A worker is killed") {
		t.Error("the page tells of workers that were not killed")
	}
}
