package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// Delayed tasks start exactly once, and never early. `make recovery` measures how late they start.
func TestDelayedTasksStartOnceAndNotEarly(t *testing.T) {
	onServersFirst(t, delayedTasksStartOnceAndNotEarly)
}

func delayedTasksStartOnceAndNotEarly(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	var mu sync.Mutex
	var late []time.Duration
	starts := map[holdfast.TaskID]int{}
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{
		"timed": consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
			// In this test, the store and this process use the same clock.
			d := time.Since(task.NextRunAt)
			mu.Lock()
			defer mu.Unlock()
			late = append(late, d)
			starts[task.ID]++
			return nil
		}),
	})
	const n, over = 500, 2 * time.Second
	p := w.Producer(nil)
	defer p.Close()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "timed", Delay: time.Second + time.Duration(i)*over/n}
	}
	if _, err := p.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	w.awaitCount(t, holdfast.Done, n)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(late)
	t.Logf("lateness of %d delayed tasks: p50 %s, p99 %s, max %s", len(late), late[n/2], late[n*99/100], late[len(late)-1])
	if late[0] < 0 {
		t.Errorf("a task started %s early", -late[0])
	}
	if len(late) != n || len(starts) != n {
		t.Errorf("%d tasks started %d times in total, want %d tasks, once each", len(starts), len(late), n)
	}
}

// A delayed task can be canceled before it is due, and a task with a start time does not start early.
func TestDelaysLiveInTheStore(t *testing.T) { onAFileFirst(t, delaysLiveInTheStore) }

func delaysLiveInTheStore(t *testing.T, w *world) {
	w.runJanitor(t, w.Backend, nil)
	var executed executions
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"work": executed.handler(0)})
	cancelled := w.enqueue(t, 1, holdfast.NewTask{Type: "work", Delay: time.Hour})[0]
	at := w.enqueue(t, 1, holdfast.NewTask{Type: "work", At: time.Now().Add(time.Second)})[0]
	if _, err := w.Act(t.Context(), store.Actor{}, cancelled, store.ActionCancel); err != nil {
		t.Fatal(err)
	}
	done := w.awaitTask(t, at, "done", in(holdfast.Done))
	if early := done.NextRunAt.Sub(done.StartedAt); early > 0 {
		t.Errorf("the task started %s early", early)
	}
	if n := executed.total.Load(); n != 1 {
		t.Errorf("%d executions, want 1: the canceled task must not run", n)
	}
}
