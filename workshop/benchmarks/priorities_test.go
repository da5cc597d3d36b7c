package benchmarks

import (
	"flag"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var (
	priorityBacklog = flag.Int("priority.backlog", 1_000_000, "BenchmarkPriority: number of low tasks that do nothing")
	priorityStarts  = flag.Int("priority.starts", 400, "BenchmarkPriority: highest number of starts to measure in each condition")
	priorityPause   = flag.Duration("priority.pause", 20*time.Millisecond, "BenchmarkPriority: pause between two starts")
)

// BenchmarkPriority measures the time from Enqueue to the start of single tasks of high priority: on an idle system,
// and while a backlog of low tasks in the same queue runs. It also reports the rate of the low tasks.
func BenchmarkPriority(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			s := fixtures(b, backend, 1)[0]
			for b.Loop() {
				s.high(b, func() bool { return false }) // declares the queues, and warms up
				idle := s.high(b, func() bool { return false })
				s.storeBacklog(b, *priorityBacklog)
				began := time.Now()
				busy := s.high(b, func() bool { return s.low(b) == 0 })
				took, left := time.Since(began), s.low(b)
				if left == 0 && len(busy) < *priorityStarts/2 {
					b.Logf("the backlog has ended after %d starts", len(busy))
				}
				b.ReportMetric(1000*quantile(idle, 0.5), "idle-p50-ms")
				b.ReportMetric(1000*quantile(idle, 0.99), "idle-p99-ms")
				b.ReportMetric(1000*quantile(busy, 0.5), "behind-p50-ms")
				b.ReportMetric(1000*quantile(busy, 0.99), "behind-p99-ms")
				b.ReportMetric(float64(int64(*priorityBacklog)-left)/took.Seconds(), "low-tasks/s")
				b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
				for s.low(b) > 0 {
					time.Sleep(100 * time.Millisecond)
				}
			}
		})
	}
}

// storeBacklog stores low tasks while their queue is paused, so that all their tickets wait in the broker.
func (s *txFixture) storeBacklog(b *testing.B, n int) {
	b.Helper()
	queue := store.Subject{Queue: holdfast.DefaultQueue}
	if _, err := s.backend.Store.Pause(b.Context(), benchmarker, store.PauseFor(queue, 0)); err != nil {
		b.Fatal(err)
	}
	time.Sleep(2 * time.Second) // until the worker has ended its subscriptions
	tasks := slices.Repeat([]holdfast.NewTask{{Type: "noop", Priority: holdfast.PriorityLow}}, 1000)
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for range n / len(tasks) / 2 {
				if _, err := s.producer.EnqueueMany(b.Context(), tasks); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	time.Sleep(2 * time.Second) // until the last tickets are published
	if _, err := s.backend.Store.Resume(b.Context(), benchmarker, queue); err != nil {
		b.Fatal(err)
	}
	for s.low(b) == int64(n) {
		time.Sleep(10 * time.Millisecond)
	}
}

// low returns the number of low tasks that are not done.
func (s *txFixture) low(b *testing.B) (n int64) {
	b.Helper()
	found, err := s.backend.Store.CountGroups(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, g := range found {
		if g.Priority == holdfast.PriorityLow && g.State != holdfast.Done {
			n += g.Tasks
		}
	}
	return n
}

// high returns the seconds from Enqueue to the start of single tasks of high priority, until ended returns true.
func (s *txFixture) high(b *testing.B, ended func() bool) (starts []float64) {
	b.Helper()
	for i := 0; i < *priorityStarts && (i%10 > 0 || !ended()); i++ {
		began := time.Now()
		result, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "timed", Priority: holdfast.PriorityHigh})
		if err != nil {
			b.Fatal(err)
		}
		starts = append(starts, s.awaitStart(b, result.ID).Sub(began).Seconds())
		time.Sleep(*priorityPause)
	}
	return starts
}

// awaitStart waits until a task has started, and returns the time of its start.
func (s *txFixture) awaitStart(b *testing.B, id holdfast.TaskID) time.Time {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Microsecond) {
		s.mu.Lock()
		at, started := s.started[id]
		s.mu.Unlock()
		if started {
			return at
		}
		if time.Now().After(deadline) {
			b.Fatalf("task %s has not started", id)
		}
	}
}
