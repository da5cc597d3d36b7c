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

// endingQueue is a queue whose worker ends after its first task.
type endingQueue struct {
	queue
	err error
}

func (q endingQueue) Work(_ context.Context, handle func([]byte) error) error {
	return errors.Join(handle([]byte(`"a"`)), q.err)
}

func (q endingQueue) Close() error { return nil }

// emptyQueue is a queue without tasks.
type emptyQueue struct{ queue }

func (emptyQueue) Work(ctx context.Context, _ func([]byte) error) error {
	<-ctx.Done()
	return nil
}

func (emptyQueue) Close() error { return nil }

func TestAWorkerThatEndsGetsANewConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		refused := false
		reopen := func(context.Context) (queue, error) {
			if !refused {
				refused = true
				return nil, errors.New("connection refused")
			}
			return emptyQueue{}, nil
		}
		lines, out := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- workUntilDone(ctx, endingQueue{err: io.ErrUnexpectedEOF}, reopen, time.Second, out)
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
			t.Error("no new connection was opened")
		}
	})
}

func TestTallyCountsTasksNotHandlers(t *testing.T) {
	t.Parallel()
	seen := tally{}
	for _, a := range []handlerEvent{{Task: "a"}, {Task: "b"}, {Task: "a"}, {Task: "a", Ended: true}, {Task: "a", Ended: true}, {Task: "a"}} {
		seen.add(a)
	}
	if len(seen) != 2 || seen.ended() != 1 || seen.twice() != 1 {
		t.Errorf("%d tasks, %d ended, %d ran twice, want 2, 1, 1: %v", len(seen), seen.ended(), seen.twice(), seen)
	}
}

func TestWatchUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		two := func(t tally) bool { return len(t) == 2 }
		events := make(chan handlerEvent, 2)
		go func() {
			for _, task := range []string{"a", "b"} {
				time.Sleep(50 * time.Second)
				events <- handlerEvent{Task: task}
			}
		}()
		if err := watchUntil(t.Context(), events, time.Minute, tally{}, two); err != nil {
			t.Errorf("two tasks, each within a minute: %v", err)
		}
		startedAt := time.Now()
		if err := watchUntil(t.Context(), events, time.Minute, tally{}, two); !errors.Is(err, errTimeout) || time.Since(startedAt) != time.Minute {
			t.Errorf("got %v after %s", err, time.Since(startedAt))
		}
		close(events)
		if err := watchUntil(t.Context(), events, time.Minute, tally{}, two); err == nil || errors.Is(err, errTimeout) {
			t.Errorf("after the worker's end: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := watchUntil(ctx, make(chan handlerEvent), time.Minute, tally{}, two); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
	})
}

func TestTheRecoveryPageContainsOnlyMeasuredParts(t *testing.T) {
	t.Parallel()
	p := recoveryPage{
		when: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), command: "make bench-recovery", cores: 2, servers: []string{"PostgreSQL 15.18"},
		versions: map[string]string{"example.com/other": "v1.2.3"}, systems: []system{{name: "other", module: "example.com/other"}},
		recoveryBench: &recoveryBench{giveUpAfter: 3 * time.Minute, tasks: 1000, taskDuration: 200 * time.Millisecond},
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
		t.Error("the page has a section about brokers, but none was killed")
	}
	p.workers, p.brokers = nil, []killedBrokers{{"safe", []int{0, 0, 0}, []int{0, 0, 0}}, {"other", []int{451, 401, 420}, []int{0, 1, 0}}}
	text = p.text()
	for _, want := range []string{"1,000 tasks of 200ms each", "| safe | 3 | 0 | 0 |\n", "| other | 3 | 420 (401–451) | 0 (0–1) |\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "A worker is killed") {
		t.Error("the page has a section about workers, but none was killed")
	}
}
