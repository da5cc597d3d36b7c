package benchmarks

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/app/daemon"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
)

var (
	pickUpTasks = flag.Int("pickup.tasks", 500, "BenchmarkPickUp: number of tasks to measure")
	pickUpPause = flag.Duration("pickup.pause", 20*time.Millisecond, "BenchmarkPickUp: mean pause between two tasks")
)

// BenchmarkPickUp measures the steps from Enqueue to the start of a task on an idle system. It also measures the
// shortest possible time of each step on these servers: the commit of an update of one row, a statement that reads
// nothing, and a confirmed message of one byte in a quorum queue. The steps and these measurements take turns.
func BenchmarkPickUp(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	h := new(hops)
	s := newPickUps(b, h)
	floor := newFloor(b, s)
	steps := []string{"enqueue", "insert", "publish", "deliver", "claim", "start", "all"}
	for b.Loop() {
		times := map[string][]float64{}
		for range *pickUpTasks {
			floor.measure(b, times)
			time.Sleep(*pickUpPause/2 + rand.N(*pickUpPause)) // random, so that the tasks are not in step with the janitor
			h.reset()
			began := time.Now()
			result, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "timed"})
			if err != nil {
				b.Fatal(err)
			}
			started, before := s.awaitStart(b, result.ID), began
			times["all"] = append(times["all"], started.Sub(began).Seconds())
			for i, at := range append(h.all(), started) {
				times[steps[i]] = append(times[steps[i]], at.Sub(before).Seconds())
				before = at
			}
		}
		for _, step := range append(steps, "floor-read", "floor-commit", "floor-confirm") {
			b.ReportMetric(1000*quantile(times[step], 0.5), step+"-p50-ms")
			b.ReportMetric(1000*quantile(times[step], 0.99), step+"-p99-ms")
		}
		b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
	}
}

// pickUps is a process that serves tasks and records their starts.
type pickUps struct {
	backend  *app.Backend
	producer *producer.Producer
	db       *sql.DB

	mu      sync.Mutex
	started map[holdfast.TaskID]time.Time
}

// newPickUps starts the process. It returns when the process has executed a task.
func newPickUps(b *testing.B, h *hops) *pickUps {
	b.Helper()
	backend, err := open(append(isolatedEnv(b, 0), "HOLDFAST_LISTEN="))
	if err != nil {
		b.Fatal(err)
	}
	backend.Store, backend.Broker = hopStore{backend.Store.(*postgres.Store), h}, hopBroker{backend.Broker.(*rabbitmq.Broker), h}
	s := &pickUps{backend: backend, started: make(map[holdfast.TaskID]time.Time)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- daemon.Serve(ctx, daemon.Options{Backend: backend, Handlers: func(r *consumer.Registry) {
			r.Add("timed", consumer.HandlerFunc(s.handle))
		}})
	}()
	if s.db, err = sql.Open("postgres", os.Getenv("DATABASE_URL")); err != nil {
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
	result, err := s.producer.Enqueue(b.Context(), holdfast.NewTask{Type: "timed"})
	if err != nil {
		b.Fatal(err)
	}
	s.awaitStart(b, result.ID)
	return s
}

func (s *pickUps) handle(_ context.Context, task holdfast.Task) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started[task.ID] = now
	return nil
}

// awaitStart waits until a task has started, and returns the time of its start.
func (s *pickUps) awaitStart(b *testing.B, id holdfast.TaskID) time.Time {
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

// The events of a task between Enqueue and the start of its handler.
const (
	insertCalled = iota
	insertReturned
	publishCalled
	claimCalled
	claimReturned
	events
)

// hops records the times of the events of one task.
type hops struct {
	mu sync.Mutex
	at [events]time.Time
}

func (h *hops) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = [events]time.Time{}
}

// mark records the time of an event, unless it is recorded already or the event before it is not.
func (h *hops) mark(event int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at[event].IsZero() && (event == 0 || !h.at[event-1].IsZero()) {
		h.at[event] = time.Now()
	}
}

func (h *hops) all() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.at[:])
}

// hopStore is a store that records when it is called. It has all methods of the store, such as those for presence.
type hopStore struct {
	*postgres.Store
	*hops
}

func (s hopStore) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	s.mark(insertCalled)
	defer s.mark(insertReturned)
	return s.Store.Insert(ctx, tasks, grace)
}

func (s hopStore) Claim(ctx context.Context, worker holdfast.WorkerID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	s.mark(claimCalled)
	defer s.mark(claimReturned)
	return s.Store.Claim(ctx, worker, wanted, tickets, into)
}

// hopBroker is a broker that records when it is called.
type hopBroker struct {
	*rabbitmq.Broker
	*hops
}

func (k hopBroker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	k.mark(publishCalled)
	return k.Broker.Publish(ctx, messages)
}

// floor measures the shortest possible times of the steps.
type floor struct {
	*pickUps
	queue string
	sub   broker.Subscription
}

// newFloor creates a table of one row in the schema of the fixture, and a quorum queue with a subscription.
func newFloor(b *testing.B, s *pickUps) *floor {
	b.Helper()
	ctx := context.Background()
	schema := s.backend.Config.Database.Schema
	for _, statement := range []string{
		fmt.Sprintf("create table %s.floor (n int not null) with (fillfactor = 50)", schema), fmt.Sprintf("insert into %s.floor values (0)", schema),
	} {
		if _, err := s.db.Exec(statement); err != nil {
			b.Fatal(err)
		}
	}
	s.db.SetMaxOpenConns(1)
	f := &floor{pickUps: s, queue: s.backend.Topology.Prefix + ".floor"}
	object := []broker.Object{{Kind: broker.Queue, Name: f.queue, Args: map[string]any{"x-queue-type": "quorum"}}}
	if err := s.backend.Broker.Declare(ctx, object); err != nil {
		b.Fatal(err)
	}
	var err error
	if f.sub, err = s.backend.Broker.Subscribe(ctx, f.queue, 10); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = f.sub.Close()
		if err := s.backend.Broker.Delete(ctx, object); err != nil {
			b.Error(err)
		}
	})
	return f
}

// measure adds the times of one round.
func (f *floor) measure(b *testing.B, times map[string][]float64) {
	b.Helper()
	pause := func() time.Time { // the processor is idle before each step of a task, too
		time.Sleep(*pickUpPause / 4)
		return time.Now()
	}
	add := func(name string, began time.Time) { times[name] = append(times[name], time.Since(began).Seconds()) }

	began := pause()
	if _, err := f.db.Exec("select 1"); err != nil {
		b.Fatal(err)
	}
	add("floor-read", began)

	began = pause()
	if _, err := f.db.Exec(fmt.Sprintf("update %s.floor set n = n + 1", f.backend.Config.Database.Schema)); err != nil {
		b.Fatal(err)
	}
	add("floor-commit", began)

	began = pause()
	published := make(chan error, 1)
	go func() {
		_, err := f.backend.Broker.Publish(b.Context(), []broker.Message{{Queue: f.queue, Body: []byte("x")}})
		published <- err
	}()
	delivery, open := <-f.sub.Deliveries()
	add("floor-confirm", began)
	if err := <-published; err != nil || !open {
		b.Fatalf("publish: %v; the subscription is open: %t", err, open)
	}
	if err := f.sub.Ack(delivery.Tag, broker.One); err != nil {
		b.Fatal(err)
	}
}
