package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
)

// Tasks of one large call share messages, and are shared among workers all the same: no task waits behind a busy
// worker while another one has been idle for a second.
func TestTasksThatShareMessagesAreSharedFairly(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		w.runJanitor(t, w.Backend, nil)
		for _, workers := range []int{2, 4} {
			atBest(t, time.Second, func() time.Duration { return sharedFairly(t, w, workers) })
		}
	})
}

// sharedFairly returns how long a worker was idle at most while a task waited.
func sharedFairly(t *testing.T, w *world, workers int) time.Duration {
	const executors, tasks, slowOnes = 8, 600, 10 // one in slowOnes
	kind := fmt.Sprintf("mixed%d", workers)
	idle := newIdleness(workers)
	for i := range workers {
		worker, stop := w.runWorker(t, w.Backend, func(o *consumer.Options) { o.Concurrency, o.Name = executors, fmt.Sprint(t.Name(), i) },
			map[string]consumer.Handler{kind: consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
				defer idle.begins(i)()
				d := 5 * time.Millisecond
				if task.ID%slowOnes == 0 {
					d = 800 * time.Millisecond
				}
				time.Sleep(d) // the work
				return nil
			})})
		defer stop()
		poll(t, 30*time.Second, func() string { return fmt.Sprintf("worker %d takes nothing: %+v", i, worker.Status()) }, func(context.Context) bool {
			return len(worker.Status().Consuming) >= 2 // a worker that is not up yet is not idle
		})
	}
	before, err := w.Store.Count(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	w.enqueue(t, tasks, holdfast.NewTask{Type: kind})
	idle.reset() // nothing waited before it was stored
	w.awaitCount(t, 60*time.Second, holdfast.Done, before[holdfast.Done]+tasks)
	t.Logf("%d workers: the longest idleness while a task waited was %s", workers, idle.longest().Round(time.Millisecond))
	return idle.longest()
}

// idleness measures how long workers had nothing to do when a task began, which had waited until then.
type idleness struct {
	mu      sync.Mutex
	running []int
	since   []time.Time
	most    time.Duration
}

func newIdleness(workers int) *idleness {
	i := &idleness{running: make([]int, workers), since: make([]time.Time, workers)}
	i.reset()
	return i
}

// reset lets the idleness of all workers begin now.
func (i *idleness) reset() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for worker := range i.since {
		i.since[worker] = time.Now()
	}
	i.most = 0
}

// begins notes that a worker begins a task; the returned function, that it has ended it.
func (i *idleness) begins(worker int) (ends func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for other, n := range i.running {
		if n == 0 {
			i.most = max(i.most, time.Since(i.since[other]))
		}
	}
	i.running[worker]++
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.running[worker]--; i.running[worker] == 0 {
			i.since[worker] = time.Now()
		}
	}
}

func (i *idleness) longest() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.most
}
