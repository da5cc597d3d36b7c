package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// The tasks of one large call share messages, but all workers get their share of the tasks. If there are as many tasks
// as executors, all of them run at the same time. So no task waits for a busy worker while another worker has a free
// executor. `make recovery` measures how long a worker is idle while tasks wait.
func TestTasksThatShareMessagesAreSharedFairly(t *testing.T) {
	onServersFirst(t, func(t *testing.T, w *world) {
		w.runJanitor(t, w.Backend, nil)
		for _, workers := range []int{2, 4} {
			sharedFairly(t, w, workers)
		}
	})
}

func sharedFairly(t *testing.T, w *world, workers int) {
	const executors = 8
	kind, tasks := fmt.Sprintf("mixed%d", workers), executors*workers
	started, release := make(chan int, 10*tasks), make(chan struct{})
	for i := range workers {
		worker, stop := w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency, o.Name = executors, fmt.Sprint(t.Name(), i) },
			map[string]consumer.Handler{kind: consumer.HandlerFunc(func(ctx context.Context, _ holdfast.Task) error {
				started <- i
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})})
		defer stop()
		poll(t, func() string { return fmt.Sprintf("worker %d does not consume: %+v", i, worker.Status()) }, func(context.Context) bool {
			return len(worker.Status().Consuming) >= 2
		})
	}
	ids := w.enqueue(t, tasks, holdfast.NewTask{Type: kind})
	startedBy, timeout := make([]int, workers), time.After(slow.Patience())
	for n := range tasks { // no task ends before all have started
		select {
		case worker := <-started:
			startedBy[worker]++
		case <-timeout:
			close(release)
			t.Fatalf("only %d of %d tasks have started; tasks by worker: %v", n, tasks, startedBy)
		}
	}
	close(release)
	for _, id := range ids {
		w.awaitTask(t, id, "done", in(holdfast.Done))
	}
	for i, n := range startedBy {
		if n != executors {
			t.Errorf("worker %d ran %d tasks at the same time, want %d", i, n, executors)
		}
	}
}
