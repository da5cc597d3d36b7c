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
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/producer"
)

var (
	silentRounds   = flag.Int("silent.rounds", 5, "BenchmarkSilentQueue: rounds, each with the healthy queue alone and beside the silent one")
	silentFor      = flag.Duration("silent.for", 10*time.Second, "BenchmarkSilentQueue: how long tasks are stored in each condition")
	silentStarts   = flag.Int("silent.starts", 100, "BenchmarkSilentQueue: EnqueueTx calls whose tasks are timed in each condition")
	silentPending  = flag.Int("silent.pending", 10_000, "BenchmarkSilentQueue: outbox entries of the silent queue")
	silentChannels = flag.Int("silent.channels", 0, "BenchmarkSilentQueue: rabbitmq.Options.PublishChannels; 0 means its default")
)

const (
	healthyLane    = holdfast.DefaultLane
	silentLane     = "silent"
	silentCallers  = 32 // of Enqueue, at the same time
	silentPatience = 5 * time.Minute
)

// BenchmarkSilentQueue measures what a queue that confirms nothing costs another queue of the same processes. It runs a RabbitMQ
// of its own and suspends the process of the one queue inside it, while thousands of outbox entries of that queue wait. The rounds
// measure the healthy queue alone and beside the silent one in turns. It needs HOLDFAST_TEST_ALL=1.
func BenchmarkSilentQueue(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	server := rabbittest.Private(b)
	for b.Loop() {
		s := newSilentScene(b, server)
		conditions := []*condition{{name: "alone"}, {name: "beside a silent queue", silent: true}}
		s.store(b, *silentFor/2) // warms up
		for round := range *silentRounds {
			for n := range conditions {
				conditions[(n+round)%len(conditions)].measure(b, s)
			}
		}
		reportSilent(b, conditions[0], conditions[1])
	}
}

// condition is the healthy queue alone, or beside the silent one, with a sample of each rate for each round.
type condition struct {
	name          string
	silent        bool
	enqueued, ran []float64 // tasks a second
	starts        []float64 // seconds from the commit of EnqueueTx
}

func (c *condition) measure(b *testing.B, s *silentScene) {
	b.Helper()
	if c.silent {
		s.silence(b)
	}
	enqueued, ran := s.store(b, *silentFor)
	starts := s.start(b)
	c.enqueued, c.ran, c.starts = append(c.enqueued, enqueued), append(c.ran, ran), append(c.starts, starts...)
	b.Logf("%-22s enqueued %.0f/s, ran %.0f/s, EnqueueTx until start p50 %.3f s, maximum %.3f s",
		c.name, enqueued, ran, quantile(starts, 0.5), slices.Max(starts))
	if c.silent {
		s.heal(b)
	}
}

func reportSilent(b *testing.B, alone, beside *condition) {
	b.Helper()
	for _, rate := range []struct {
		name        string
		from, until []float64
	}{{"enqueue", alone.enqueued, beside.enqueued}, {"run", alone.ran, beside.ran}} {
		var ratios []float64
		for round := range rate.from {
			ratios = append(ratios, rate.until[round]/rate.from[round])
		}
		b.Logf("%s rate beside a silent queue / alone: median %.2f, %.2f to %.2f of %d rounds",
			rate.name, quantile(ratios, 0.5), slices.Min(ratios), slices.Max(ratios), len(ratios))
		b.ReportMetric(quantile(ratios, 0.5), rate.name+"-ratio")
	}
	for _, c := range []*condition{alone, beside} {
		b.Logf("EnqueueTx until start, %s: p50 %.3f s, p99 %.3f s, maximum %.3f s of %d tasks",
			c.name, quantile(c.starts, 0.5), quantile(c.starts, 0.99), slices.Max(c.starts), len(c.starts))
	}
	b.ReportMetric(1000*quantile(beside.starts, 0.99), "start-p99-ms")
	b.ReportMetric(1000*slices.Max(beside.starts), "start-max-ms")
	b.ReportMetric(0, "ns/op") // says nothing here
}

// quantile returns the smallest sample that at least a share q of all samples do not exceed.
func quantile(samples []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	for i, sample := range sorted {
		if float64(i+1) >= q*float64(len(sorted)) {
			return sample
		}
	}
	return 0
}

// silentScene is a janitor, a worker of both queues and a producer, which share their connections.
type silentScene struct {
	backend  *app.Backend
	server   *rabbittest.Server
	producer *producer.Producer
	db       *sql.DB
	stop     context.CancelFunc
	services sync.WaitGroup

	mu     sync.Mutex
	stored map[string]int // by lane
	ran    map[string]int
	begun  map[holdfast.TaskID]time.Time // only what wants says
	wants  bool
}

func newSilentScene(b *testing.B, server *rabbittest.Server) *silentScene {
	b.Helper()
	id := fmt.Sprintf("bench_silent_%x", rand.Uint32())
	backend, err := open(append(os.Environ(), "HOLDFAST_DATABASE_SCHEMA="+id, "HOLDFAST_AMQP_PREFIX="+id, "HOLDFAST_AMQP_URLS="+server.URL))
	if err != nil {
		b.Fatal(err)
	}
	// The same broker with another number of channels.
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
	s := &silentScene{
		backend: backend, server: server, producer: backend.Producer(nil),
		stored: make(map[string]int), ran: make(map[string]int), begun: make(map[holdfast.TaskID]time.Time),
	}
	if s.db, err = sql.Open("postgres", os.Getenv("DATABASE_URL")); err != nil {
		b.Fatal(err)
	}
	var handlers consumer.Registry
	handlers.Add("noop", consumer.HandlerFunc(s.handle))
	worker, err := consumer.New(consumer.Options{
		Store: backend.Store, Broker: backend.Broker, Topology: backend.Topology, Settings: cfg.Settings(), Handlers: &handlers,
		Lanes: []string{healthyLane, silentLane}, Concurrency: 100, Log: backend.Log,
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
	b.Cleanup(func() { s.end(b) })
	for _, run := range []func(context.Context) error{worker.Run, jan.Run} {
		s.services.Go(func() {
			if err := run(ctx); err != nil {
				b.Errorf("a service ended: %v", err)
			}
		})
	}
	for _, lane := range []string{healthyLane, silentLane} {
		if _, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "noop", Lane: lane}); err != nil {
			b.Fatal(err)
		}
		s.count(lane, 1)
		s.await(b, lane)
	}
	return s
}

func (s *silentScene) end(b *testing.B) {
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

func (s *silentScene) handle(_ context.Context, task holdfast.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[task.Lane]++
	if s.wants {
		s.begun[task.ID] = time.Now()
	}
	return nil
}

func (s *silentScene) count(lane string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[lane] += n
}

// await waits until all tasks of a lane have run.
func (s *silentScene) await(b *testing.B, lane string) {
	b.Helper()
	for deadline := time.Now().Add(silentPatience); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		stored, ran := s.stored[lane], s.ran[lane]
		s.mu.Unlock()
		switch {
		case ran >= stored:
			return
		case time.Now().After(deadline):
			b.Fatalf("%d of %d tasks in lane %s have run", ran, stored, lane)
		}
	}
}

// store stores tasks in the healthy lane, as fast as some callers can, and returns how many a second were stored, and how many a
// second had run when the last of them had.
func (s *silentScene) store(b *testing.B, d time.Duration) (enqueued, ran float64) {
	b.Helper()
	began, before := time.Now(), s.stored[healthyLane]
	var callers sync.WaitGroup
	for range silentCallers {
		callers.Go(func() {
			for time.Since(began) < d {
				if _, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "noop", Lane: healthyLane}); err != nil {
					b.Errorf("enqueue: %v", err)
					return
				}
				s.count(healthyLane, 1)
			}
		})
	}
	callers.Wait()
	took, n := time.Since(began), float64(s.stored[healthyLane]-before)
	s.await(b, healthyLane)
	return n / took.Seconds(), n / time.Since(began).Seconds()
}

// start stores tasks in the healthy lane by EnqueueTx, one by one, and returns how long after the commit each has begun.
func (s *silentScene) start(b *testing.B) (waits []float64) {
	b.Helper()
	s.mu.Lock()
	s.wants = true
	s.mu.Unlock()
	committed := make(map[holdfast.TaskID]time.Time)
	for range *silentStarts {
		id := s.enqueueTx(b, healthyLane, 1)
		committed[id] = time.Now()
		time.Sleep(20*time.Millisecond + rand.N(60*time.Millisecond)) // not in step with the janitor
	}
	s.await(b, healthyLane)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range committed {
		waits = append(waits, max(0, s.begun[id].Sub(at).Seconds()))
	}
	s.wants = false
	clear(s.begun)
	return waits
}

// enqueueTx stores tasks in one transaction, with an outbox entry for each, and returns the id of the last.
func (s *silentScene) enqueueTx(b *testing.B, lane string, n int) (last holdfast.TaskID) {
	b.Helper()
	tx, err := s.db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	for range n {
		results, err := s.producer.EnqueueTx(b.Context(), tx, holdfast.NewTask{Type: "noop", Lane: lane})
		if err != nil {
			b.Fatal(err)
		}
		last = results[0].ID
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	s.count(lane, n)
	return last
}

// silence makes one queue confirm nothing, and stores the outbox entries that wait for it.
func (s *silentScene) silence(b *testing.B) {
	b.Helper()
	s.control("suspend")
	for left := *silentPending; left > 0; left -= 100 {
		s.enqueueTx(b, silentLane, min(100, left))
	}
	s.pending(b)
}

// heal has the queue confirm again and waits until its tasks have run.
func (s *silentScene) heal(b *testing.B) {
	b.Helper()
	s.pending(b)
	s.control("resume")
	s.await(b, silentLane)
}

// control suspends or resumes the process inside RabbitMQ that is the queue. Other queues have processes of their own.
func (s *silentScene) control(action string) {
	s.server.Ctl("eval", strings.NewReplacer("QUEUE", s.backend.Topology.Main(silentLane), "ACTION", action).Replace(
		`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"QUEUE">>)), {Name, _} = amqqueue:get_pid(Q), sys:ACTION(Name).`))
}

// pending insists that all outbox entries of the silent queue wait.
func (s *silentScene) pending(b *testing.B) {
	b.Helper()
	var n int
	err := s.db.QueryRowContext(b.Context(), "select count(*) from "+s.backend.Config.Database.Schema+".outbox where lane = $1", silentLane).Scan(&n)
	if err != nil || n < *silentPending {
		b.Fatalf("%d of %d outbox entries of the silent queue wait: %v", n, *silentPending, err)
	}
}
