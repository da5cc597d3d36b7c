package benchmarks

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/consumer"
)

var (
	mixedTasks  = flag.Int("mixed.tasks", 100_000, "BenchmarkMixedWorkers: number of tasks of two types in the backlog")
	mixedStarts = flag.Int("mixed.starts", 400, "BenchmarkMixedWorkers: number of single tasks")
	mixedTakes  = flag.Duration("mixed.takes", 20*time.Millisecond, "BenchmarkMixedWorkers: duration of a task of the backlog")
)

// BenchmarkMixedWorkers measures workers of one queue that handle different types: the start of single tasks of one
// type, and the rate of that type in a backlog of both types. It compares a worker that is alone with one that has
// workers of the other type beside it. passed-on is the number of tickets that were passed on for each task of both types.
func BenchmarkMixedWorkers(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	for _, c := range []struct{ own, others int }{{1, 0}, {1, 1}, {1, 5}, {5, 0}, {5, 1}} {
		b.Run(fmt.Sprintf("%d+%d", c.own, c.others), func(b *testing.B) {
			for b.Loop() {
				m := &mixed{env: isolatedEnv(b, 0)}
				m.start(b, c.own, c.others)
				m.measure(b, c.others > 0)
			}
		})
	}
}

// mixed is a set of workers. Those that handle the type "own" record when its tasks start.
type mixed struct {
	env    []string
	passed atomic.Int64 // tickets that were passed on
	takes  atomic.Int64 // duration of a task

	mu          sync.Mutex
	starts      map[holdfast.TaskID]time.Time
	first, last time.Time
}

// start starts a janitor and the workers, each with connections of its own. They end with the benchmark.
func (m *mixed) start(b *testing.B, own, others int) {
	b.Helper()
	m.starts = make(map[holdfast.TaskID]time.Time)
	j, err := newJanitor(m.open(b))
	if err != nil {
		b.Fatal(err)
	}
	m.run(b, j.Run)
	for range own {
		m.work(b, "own", m.note)
	}
	for range others {
		m.work(b, "other", func(holdfast.TaskID) {})
	}
}

func (m *mixed) open(b *testing.B) *app.Backend {
	b.Helper()
	backend, err := open(m.env)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = backend.Close() })
	return backend
}

func (m *mixed) run(b *testing.B, service func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
}

// work starts a worker for one type, which calls started when a task starts.
func (m *mixed) work(b *testing.B, taskType string, started func(holdfast.TaskID)) {
	b.Helper()
	backend := m.open(b)
	var handlers consumer.Registry
	handlers.Add(taskType, consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
		started(task.ID)
		time.Sleep(time.Duration(m.takes.Load()))
		return nil
	}))
	c, err := consumer.New(consumer.Options{
		Store: backend.Store, Broker: backend.Broker, Topology: backend.Topology, Handlers: &handlers, Concurrency: 10, Log: backend.Log,
		Observer: observer(func(o holdfast.Observation) {
			if o.Kind == holdfast.ObservedPassedOn {
				m.passed.Add(int64(o.Count))
			}
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	m.run(b, c.Run)
}

// note records the start of a task.
func (m *mixed) note(id holdfast.TaskID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if len(m.starts) == 0 {
		m.first = now
	}
	m.starts[id], m.last = now, now
}

// started returns the number of tasks that have started, and when a task has started.
func (m *mixed) started(id holdfast.TaskID) (n int, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.starts), m.starts[id]
}

func (m *mixed) measure(b *testing.B, both bool) {
	b.Helper()
	p := m.open(b).Producer(nil)
	defer p.Close()
	var waits []float64
	for i := range 20 + *mixedStarts { // the first ones wait for type queues
		began := time.Now()
		result, err := p.Enqueue(b.Context(), holdfast.NewTask{Type: "own"})
		if err != nil {
			b.Fatal(err)
		}
		at := time.Time{}
		for ; at.IsZero(); _, at = m.started(result.ID) {
			time.Sleep(100 * time.Microsecond)
		}
		if i >= 20 {
			waits = append(waits, at.Sub(began).Seconds())
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.ReportMetric(1000*quantile(waits, 0.5), "start-p50-ms")
	b.ReportMetric(1000*quantile(waits, 0.99), "start-p99-ms")

	m.takes.Store(int64(*mixedTakes))
	m.mu.Lock()
	clear(m.starts)
	m.mu.Unlock()
	m.passed.Store(0)
	types := []string{"own"}
	if both {
		types = []string{"own", "other"}
	}
	own := *mixedTasks / 2
	tasks := make([]holdfast.NewTask, 0, 1000)
	for range 1000 / len(types) {
		for _, taskType := range types {
			tasks = append(tasks, holdfast.NewTask{Type: taskType})
		}
	}
	for range own * len(types) / 1000 {
		if _, err := p.EnqueueMany(b.Context(), tasks); err != nil {
			b.Fatal(err)
		}
	}
	for n := 0; n < own; n, _ = m.started(0) {
		time.Sleep(10 * time.Millisecond)
	}
	m.mu.Lock()
	took := m.last.Sub(m.first)
	m.mu.Unlock()
	b.ReportMetric(float64(own)/took.Seconds(), "own-tasks/s")
	b.ReportMetric(float64(m.passed.Load())/float64(own*len(types)), "passed-on")
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}
