package benchmarks

import (
	"context"
	"database/sql"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/producer"
)

var (
	txCount = flag.Int("tx.count", 500, "BenchmarkEnqueueTx: number of transactions to measure in each condition")
	txPause = flag.Duration("tx.pause", 20*time.Millisecond, "BenchmarkEnqueueTx: mean pause between transactions")
	txLoad  = flag.Int("tx.load", 1000, "BenchmarkEnqueueTx: tasks per second of the load")
	txOpen  = flag.Int("tx.open", 200, "BenchmarkEnqueueTx: number of open transactions")
)

// BenchmarkEnqueueTx measures the time from the commit of a transaction with EnqueueTx to the start of its task, in a
// process that serves the tasks: on an idle system, beside a steady load, and beside open transactions of EnqueueTx. On
// a file only one transaction can be open.
func BenchmarkEnqueueTx(b *testing.B) {
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			env := append(os.Environ(), "HOLDFAST_DATABASE_URL=sqlite:"+filepath.Join(b.TempDir(), "holdfast.db"), "HOLDFAST_AMQP_URLS=inproc:")
			conditions := []string{"idle", "load"}
			if backend == "servers" {
				if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
					b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
				}
				env, conditions = isolatedEnv(b, 0), append(conditions, "open")
			}
			s := newTxFixture(b, append(env, "HOLDFAST_LISTEN="))
			for _, condition := range conditions {
				b.Run(condition, func(b *testing.B) {
					for b.Loop() {
						stop := s.begin(b, condition)
						starts := s.measure(b)
						stop()
						b.ReportMetric(1000*quantile(starts, 0.5), "start-p50-ms")
						b.ReportMetric(1000*quantile(starts, 0.99), "start-p99-ms")
						b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
					}
				})
			}
		})
	}
}

// txFixture is a process that serves tasks and stores them in transactions of its own.
type txFixture struct {
	backend  *app.Backend
	producer *producer.Producer
	db       *sql.DB

	mu      sync.Mutex
	started map[holdfast.TaskID]time.Time
}

// newTxFixture starts the process, after each function in changes has changed the backend.
func newTxFixture(b *testing.B, env []string, changes ...func(*app.Backend)) *txFixture {
	b.Helper()
	backend, err := open(env)
	if err != nil {
		b.Fatal(err)
	}
	for _, change := range changes {
		change(backend)
	}
	s := &txFixture{backend: backend, started: make(map[holdfast.TaskID]time.Time)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- daemon.Serve(ctx, daemon.Options{Backend: backend, Handlers: func(r *consumer.Registry) {
			for _, timed := range []string{"timed", "free", "one", "four"} {
				r.Add(timed, consumer.HandlerFunc(s.handle))
			}
			r.Add("slow", consumer.HandlerFunc(func(ctx context.Context, _ holdfast.Task) error {
				select {
				case <-time.After(2 * time.Second):
				case <-ctx.Done():
				}
				return ctx.Err()
			}))
			r.Add("noop", consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
		}})
	}()
	driver, source := "postgres", os.Getenv("DATABASE_URL")
	if path, embedded := backend.Embedded(); embedded {
		driver, source = "sqlite", path+"?_pragma=busy_timeout(20000)&_txlock=immediate"
	}
	if s.db, err = sql.Open(driver, source); err != nil {
		b.Fatal(err)
	}
	s.producer = backend.Producer(nil)
	b.Cleanup(func() {
		_ = s.producer.Close()
		_ = s.db.Close()
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		_ = backend.Close()
	})
	s.await(b, backend)
	return s
}

// await waits until the process executes tasks.
func (s *txFixture) await(b *testing.B, backend *app.Backend) {
	b.Helper()
	if _, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "noop"}); err != nil {
		b.Fatal(err)
	}
	if err := allDone(b.Context(), backend, 1); err != nil {
		b.Fatal(err)
	}
}

func (s *txFixture) handle(_ context.Context, task holdfast.Task) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started[task.ID] = now
	return nil
}

// begin begins the load or the open transactions of a condition.
func (s *txFixture) begin(b *testing.B, condition string) (end func()) {
	b.Helper()
	switch condition {
	case "load":
		ctx, stop := context.WithCancel(b.Context())
		var callers sync.WaitGroup
		callers.Go(func() { s.load(ctx, b) })
		return func() { stop(); callers.Wait() }
	case "open":
		var list []*sql.Tx
		for range *txOpen {
			tx, _ := s.enqueue(b)
			list = append(list, tx)
		}
		return func() {
			for _, tx := range list {
				_ = tx.Rollback()
			}
		}
	}
	return func() {}
}

// load stores tasks at a steady rate.
func (s *txFixture) load(ctx context.Context, b *testing.B) {
	const steps = 50 // per second
	tick := time.NewTicker(time.Second / steps)
	defer tick.Stop()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for range *txLoad / steps {
			calls.Go(func() {
				if _, err := s.producer.Enqueue(context.WithoutCancel(ctx), holdfast.NewTask{Type: "noop"}); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// enqueue stores a task in a new transaction.
func (s *txFixture) enqueue(b *testing.B) (*sql.Tx, holdfast.TaskID) {
	b.Helper()
	tx, err := s.db.BeginTx(context.Background(), nil)
	if err != nil {
		b.Fatal(err)
	}
	results, err := s.producer.EnqueueTx(b.Context(), tx, holdfast.NewTask{Type: "timed"})
	if err != nil {
		b.Fatal(err)
	}
	return tx, results[0].ID
}

// measure commits transactions one by one, and returns the seconds from each commit to the start of its task.
func (s *txFixture) measure(b *testing.B) []float64 {
	b.Helper()
	committed := make(map[holdfast.TaskID]time.Time)
	for range *txCount {
		tx, id := s.enqueue(b)
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
		committed[id] = time.Now()
		// The pause is random, so that the calls are not in step with the janitor.
		time.Sleep(*txPause/2 + rand.N(*txPause))
	}
	return s.waits(b, committed)
}

// waits returns the seconds from the given times to the starts of the tasks.
func (s *txFixture) waits(b *testing.B, from map[holdfast.TaskID]time.Time) (waits []float64) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); len(waits) < len(from); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d tasks have started", len(waits), len(from))
		}
		s.mu.Lock()
		for id, at := range from {
			if started, ok := s.started[id]; ok {
				waits = append(waits, max(0, started.Sub(at).Seconds()))
				delete(s.started, id)
			}
		}
		s.mu.Unlock()
	}
	return waits
}
