package benchmarks

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
)

var (
	silentRounds   = flag.Int("silent.rounds", 5, "BenchmarkSilentQueue: number of rounds, each without and with a silent queue")
	silentFor      = flag.Duration("silent.for", 10*time.Second, "BenchmarkSilentQueue: how long to store tasks in each condition")
	silentStarts   = flag.Int("silent.starts", 100, "BenchmarkSilentQueue: number of EnqueueTx calls to measure in each condition")
	silentPending  = flag.Int("silent.pending", 10_000, "BenchmarkSilentQueue: number of outbox entries of the silent queue")
	silentChannels = flag.Int("silent.channels", 0, "BenchmarkSilentQueue: rabbitmq.Options.PublishChannels; 0 means its default")
)

const (
	healthyQueue  = holdfast.DefaultQueue
	silentQueue   = "silent"
	silentCallers = 32 // concurrent callers of Enqueue
	silentTimeout = 5 * time.Minute
)

// BenchmarkSilentQueue measures how much a queue that confirms nothing slows another queue of the same processes. It
// starts a private RabbitMQ and suspends the process of one AMQP queue inside it, while thousands of outbox entries of
// that queue are pending. Each round measures the healthy queue without and with the silent queue. It needs
// HOLDFAST_TEST_ALL=1.
func BenchmarkSilentQueue(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	server := rabbittest.Private(b)
	for b.Loop() {
		s := newSilentFixture(b, server)
		conditions := []*condition{{name: "healthy queue only"}, {name: "with a silent queue", silent: true}}
		s.store(b, *silentFor/2) // warm-up
		for round := range *silentRounds {
			for n := range conditions {
				conditions[(n+round)%len(conditions)].measure(b, s)
			}
		}
		reportSilent(b, conditions[0], conditions[1])
	}
}

// condition is a measurement without or with the silent queue. It has one sample of each rate per round.
type condition struct {
	name          string
	silent        bool
	enqueued, ran []float64 // tasks per second
	starts        []float64 // seconds from the commit of EnqueueTx to the start of the task
}

func (c *condition) measure(b *testing.B, s *silentFixture) {
	b.Helper()
	if c.silent {
		s.suspend(b)
	}
	enqueued, ran := s.store(b, *silentFor)
	starts := s.measureStarts(b)
	c.enqueued, c.ran, c.starts = append(c.enqueued, enqueued), append(c.ran, ran), append(c.starts, starts...)
	b.Logf("%-22s enqueued %.0f/s, ran %.0f/s, EnqueueTx until start p50 %.3f s, maximum %.3f s",
		c.name, enqueued, ran, quantile(starts, 0.5), slices.Max(starts))
	if c.silent {
		s.resume(b)
	}
}

func reportSilent(b *testing.B, baseline, withSilent *condition) {
	b.Helper()
	for _, rate := range []struct {
		name                 string
		baseline, withSilent []float64
	}{{"enqueue", baseline.enqueued, withSilent.enqueued}, {"run", baseline.ran, withSilent.ran}} {
		var ratios []float64
		for round := range rate.baseline {
			ratios = append(ratios, rate.withSilent[round]/rate.baseline[round])
		}
		b.Logf("%s rate with a silent queue / without: median %.2f, %.2f to %.2f in %d rounds",
			rate.name, quantile(ratios, 0.5), slices.Min(ratios), slices.Max(ratios), len(ratios))
		b.ReportMetric(quantile(ratios, 0.5), rate.name+"-ratio")
	}
	for _, c := range []*condition{baseline, withSilent} {
		b.Logf("EnqueueTx until start, %s: p50 %.3f s, p99 %.3f s, maximum %.3f s of %d tasks",
			c.name, quantile(c.starts, 0.5), quantile(c.starts, 0.99), slices.Max(c.starts), len(c.starts))
	}
	b.ReportMetric(1000*quantile(withSilent.starts, 0.99), "start-p99-ms")
	b.ReportMetric(1000*slices.Max(withSilent.starts), "start-max-ms")
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// quantile returns the smallest sample that is not less than a share q of all samples.
func quantile(samples []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	for i, sample := range sorted {
		if float64(i+1) >= q*float64(len(sorted)) {
			return sample
		}
	}
	return 0
}

// silentFixture has a janitor, a worker for both queues and a producer, which share their connections.
type silentFixture struct {
	backend  *app.Backend
	server   *rabbittest.Server
	producer *producer.Producer
	db       *sql.DB
	stop     context.CancelFunc
	services sync.WaitGroup

	mu           sync.Mutex
	stored       map[string]int // by queue
	ran          map[string]int
	startedAt    map[holdfast.TaskID]time.Time // only while recordStarts is set
	recordStarts bool
}

func newSilentFixture(b *testing.B, server *rabbittest.Server) *silentFixture {
	b.Helper()
	id := fmt.Sprintf("bench_silent_%x", rand.Uint32())
	backend, err := open(append(os.Environ(), "HOLDFAST_DATABASE_SCHEMA="+id, "HOLDFAST_AMQP_PREFIX="+id, "HOLDFAST_AMQP_URLS="+server.URL))
	if err != nil {
		b.Fatal(err)
	}
	// Replace the broker by one with another number of channels.
	_ = backend.Broker.Close()
	cfg := backend.Config
	connected, err := rabbitmq.Open(b.Context(), rabbitmq.Options{
		URLs: cfg.AMQP.URLs, ConfirmTimeout: cfg.Producer.ConfirmTimeout, Heartbeat: max(time.Second, cfg.Worker.Lease*3/5),
		PublishChannels: *silentChannels, Log: backend.Log,
	})
	if err != nil {
		b.Fatal(err)
	}
	backend.Broker = connected
	s := &silentFixture{
		backend: backend, server: server, producer: backend.Producer(nil),
		stored: make(map[string]int), ran: make(map[string]int), startedAt: make(map[holdfast.TaskID]time.Time),
	}
	if s.db, err = sql.Open("postgres", os.Getenv("DATABASE_URL")); err != nil {
		b.Fatal(err)
	}
	var handlers consumer.Registry
	handlers.Add("noop", consumer.HandlerFunc(s.handle))
	worker, err := consumer.New(consumer.Options{
		Store: backend.Store, Broker: backend.Broker, Topology: backend.Topology, Settings: cfg.Settings(), Handlers: &handlers,
		Queues: []string{healthyQueue, silentQueue}, Concurrency: 100, Log: backend.Log,
	})
	if err != nil {
		b.Fatal(err)
	}
	jan, err := newJanitor(backend)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	b.Cleanup(func() { s.close(b) })
	for _, run := range []func(context.Context) error{worker.Run, jan.Run} {
		s.services.Go(func() {
			if err := run(ctx); err != nil {
				b.Errorf("a service ended: %v", err)
			}
		})
	}
	for _, queue := range []string{healthyQueue, silentQueue} {
		if _, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "noop", Queue: queue}); err != nil {
			b.Fatal(err)
		}
		s.count(queue, 1)
		s.waitExecuted(b, queue)
	}
	return s
}

func (s *silentFixture) close(b *testing.B) {
	b.Helper()
	_ = s.producer.Close()
	s.stop()
	s.services.Wait()
	if schema, ok := s.backend.Store.(interface{ DropSchema(context.Context) error }); ok {
		if err := schema.DropSchema(context.Background()); err != nil {
			b.Error(err)
		}
	}
	_ = s.backend.Close()
	_ = s.db.Close()
}

func (s *silentFixture) handle(_ context.Context, task holdfast.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[task.Queue]++
	if s.recordStarts {
		s.startedAt[task.ID] = time.Now()
	}
	return nil
}

func (s *silentFixture) count(queue string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[queue] += n
}

// waitExecuted waits until all tasks of a queue have run.
func (s *silentFixture) waitExecuted(b *testing.B, queue string) {
	b.Helper()
	for deadline := time.Now().Add(silentTimeout); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		stored, ran := s.stored[queue], s.ran[queue]
		s.mu.Unlock()
		switch {
		case ran >= stored:
			return
		case time.Now().After(deadline):
			b.Fatalf("%d of %d tasks in queue %s have run", ran, stored, queue)
		}
	}
}

// store stores tasks in the healthy queue for d, with concurrent callers. It returns the rates, in tasks per second, at
// which they were stored and at which they ran.
func (s *silentFixture) store(b *testing.B, d time.Duration) (enqueued, ran float64) {
	b.Helper()
	start, before := time.Now(), s.stored[healthyQueue]
	var callers sync.WaitGroup
	for range silentCallers {
		callers.Go(func() {
			for time.Since(start) < d {
				if _, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "noop", Queue: healthyQueue}); err != nil {
					b.Errorf("enqueue: %v", err)
					return
				}
				s.count(healthyQueue, 1)
			}
		})
	}
	callers.Wait()
	took, n := time.Since(start), float64(s.stored[healthyQueue]-before)
	s.waitExecuted(b, healthyQueue)
	return n / took.Seconds(), n / time.Since(start).Seconds()
}

// measureStarts stores tasks in the healthy queue with EnqueueTx, one by one. It returns the seconds from the commit to
// the start of each task.
func (s *silentFixture) measureStarts(b *testing.B) (waits []float64) {
	b.Helper()
	s.mu.Lock()
	s.recordStarts = true
	s.mu.Unlock()
	committed := make(map[holdfast.TaskID]time.Time)
	for range *silentStarts {
		id := s.enqueueTx(b, healthyQueue, 1)
		committed[id] = time.Now()
		// The pause is random, so that the calls are not in step with the janitor.
		time.Sleep(20*time.Millisecond + rand.N(60*time.Millisecond))
	}
	s.waitExecuted(b, healthyQueue)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range committed {
		waits = append(waits, max(0, s.startedAt[id].Sub(at).Seconds()))
	}
	s.recordStarts = false
	clear(s.startedAt)
	return waits
}

// enqueueTx stores n tasks in one transaction, with one outbox entry per task. It returns the ID of the last task.
func (s *silentFixture) enqueueTx(b *testing.B, queue string, n int) (last holdfast.TaskID) {
	b.Helper()
	tx, err := s.db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		results, err := s.producer.EnqueueTx(b.Context(), tx, holdfast.NewTask{Type: "noop", Queue: queue})
		if err != nil {
			b.Fatal(err)
		}
		last = results[0].ID
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	s.count(queue, n)
	return last
}

// suspend makes the silent queue confirm nothing, and stores outbox entries that wait for it.
func (s *silentFixture) suspend(b *testing.B) {
	b.Helper()
	s.control("suspend")
	for left := *silentPending; left > 0; left -= 100 {
		s.enqueueTx(b, silentQueue, min(100, left))
	}
	s.checkPending(b)
}

// resume makes the silent queue confirm again, and waits until its tasks have run.
func (s *silentFixture) resume(b *testing.B) {
	b.Helper()
	s.checkPending(b)
	s.control("resume")
	s.waitExecuted(b, silentQueue)
}

// control suspends or resumes the RabbitMQ process of the queue. Each queue has its own process.
func (s *silentFixture) control(action string) {
	s.server.Ctl("eval", strings.NewReplacer("QUEUE", s.backend.Topology.Main(silentQueue), "ACTION", action).Replace(
		`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"QUEUE">>)), {Name, _} = amqqueue:get_pid(Q), sys:ACTION(Name).`))
}

// checkPending fails the benchmark unless all outbox entries of the silent queue are pending.
func (s *silentFixture) checkPending(b *testing.B) {
	b.Helper()
	var n int
	err := s.db.QueryRowContext(b.Context(), "select count(*) from "+s.backend.Config.Database.Schema+".outbox where queue = $1", silentQueue).Scan(&n)
	if err != nil || n < *silentPending {
		b.Fatalf("%d of %d outbox entries of the silent queue are pending: %v", n, *silentPending, err)
	}
}
