package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/rig"
)

// Handlers that ignore their timeouts occupy all executors of a worker. The worker reports them as stuck. Then it gives
// up their attempts, runs other tasks in their place, and refuses their late results.
func TestHandlersThatIgnoreTheirTimeoutAreReplaced(t *testing.T) {
	onAFileFirst(t, handlersThatIgnoreTheirTimeoutAreReplaced)
}

func handlersThatIgnoreTheirTimeoutAreReplaced(t *testing.T, w *world) {
	const executors = 3
	seen := &rig.Tally{}
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release()
	var late sync.WaitGroup
	late.Add(executors)
	w.Config.Defaults.Timeout, w.Config.Defaults.AbandonAfter = 50*time.Millisecond, 5*time.Second
	w.runJanitor(t, w.Backend, nil)
	w.runWorker(t, w.Backend, func(o *consumer.Options) {
		o.Concurrency, o.Lease, o.Settings, o.Observer = executors, shortLease(), w.Config.Settings(), seen
	}, map[string]consumer.Handler{
		"hangs": consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
			if task.Attempt == 1 {
				defer late.Done()
				<-hang
			}
			return nil
		}),
		"quick": consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }),
	})
	ids := w.enqueue(t, executors, holdfast.NewTask{Type: "hangs", MaxAttempts: 3})
	poll(t, func() string { return "want a worker that reports all tasks as stuck" }, func(ctx context.Context) bool {
		workers, err := w.Store.Workers(ctx, false)
		return err == nil && len(workers) == 1 && len(workers[0].Report.Stuck) == executors
	})

	e, err := w.Explain(t.Context(), ids[0])
	if err != nil || len(e.Causes) != 1 || e.Causes[0].Code != explain.Stuck && e.Causes[0].Code != explain.Waiting {
		t.Errorf("the explanation of a stuck task is %+v, %v", e, err)
	}
	// All tasks end although no handler has returned: the attempts were given up, and the executors were replaced.
	others := w.enqueue(t, 2*executors, holdfast.NewTask{Type: "quick"})
	for _, id := range slices.Concat(ids, others) {
		w.awaitTask(t, id, "done", in(holdfast.Done))
	}
	release()
	late.Wait()
	for _, id := range ids {
		attempts, err := w.Store.Attempts(t.Context(), id)
		if err != nil || len(attempts) < 2 || attempts[0].Event != holdfast.EventRetry || attempts[0].Class != "timeout" || attempts[len(attempts)-1].Event != holdfast.EventComplete {
			t.Errorf("the attempts of task %s are %+v, %v", id, attempts, err)
		}
		if task := w.task(t, id); task.Failures != 1 || task.Attempt == 1 {
			t.Errorf("the task is %+v", task)
		}
	}
	poll(t, func() string { return "want a worker that reports nothing any more" }, func(ctx context.Context) bool {
		workers, err := w.Store.Workers(ctx, false)
		return err == nil && len(workers) == 1 && len(workers[0].Report.Stuck) == 0 && workers[0].Report.Abandoned == 0
	})

	if stuck, abandoned := seen.Of(holdfast.ObservedStuck), seen.Of(holdfast.ObservedAbandoned); stuck != executors || abandoned != executors {
		t.Errorf("observed %d stuck and %d abandoned handlers, want %d", stuck, abandoned, executors)
	}
	if done, err := w.Store.Count(t.Context(), store.Filter{}); err != nil || done.By[holdfast.Done] != 3*executors {
		t.Errorf("the tasks are %v, %v", done, err)
	}
}

// As soon as a worker has reported how long tasks take, the explanation of a task that waits behind others has a range
// for its start.
func TestWaitingTasksHaveARange(t *testing.T) { onAFileFirst(t, waitingTasksHaveARange) }

func waitingTasksHaveARange(t *testing.T, w *world) {
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release()
	var ran atomic.Int32
	w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency, o.Lease = 1, shortLease() }, map[string]consumer.Handler{
		"work": consumer.HandlerFunc(func(ctx context.Context, _ holdfast.Task) error {
			if ran.Add(1) > 2 {
				<-hang
			}
			return nil
		}),
	})
	w.runJanitor(t, w.Backend, nil)
	ids := w.enqueue(t, 2, holdfast.NewTask{Type: "work"})
	for _, id := range ids {
		w.awaitTask(t, id, "done", in(holdfast.Done))
	}
	w.enqueue(t, 1, holdfast.NewTask{Type: "work"})
	ids = w.enqueue(t, 20, holdfast.NewTask{Type: "work"})
	var e explain.Explanation
	poll(t, func() string { return fmt.Sprintf("want a range for a start: %+v", e) }, func(ctx context.Context) bool {
		var err error
		for _, id := range ids {
			if e, err = w.Explain(ctx, id); err == nil && e.Backlog != nil {
				return e.Backlog.Due > 1 && e.Backlog.Rate > 0 && !e.Backlog.Earliest.Before(e.NextStart) && e.Backlog.Latest.After(e.Backlog.Earliest)
			}
		}
		return false
	})

	release()
	for _, id := range ids {
		w.awaitTask(t, id, "done", in(holdfast.Done))
	}
}
