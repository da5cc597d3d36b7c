package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/rig"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// shortLease is the lease of workers that must lose it. On a slow machine it is longer, because otherwise workers would
// lose it too early.
func shortLease() time.Duration { return slow.Times(time.Second) }

// steadyLease is the lease of workers that must not lose it although a test delays their renewals.
func steadyLease() time.Duration { return slow.Times(10 * time.Second) }

const (
	queue = holdfast.DefaultQueue
	kind  = "work"
)

// world is the environment of a test, with a schema and a topology of its own.
type world struct {
	*testing.T
	store    *postgres.Store
	broker   *rabbitmq.Broker
	topology broker.Topology
}

func newWorld(t *testing.T) *world {
	t.Helper()
	rabbittest.URL(t)
	w := &world{T: t, store: pgtest.OpenReused(t)}
	b, prefix := rabbittest.Open(t)
	incarnation, err := w.store.Incarnation(t.Context())
	w.must(err)
	w.broker, w.topology = b, broker.NewTopology(prefix, 1, incarnation)
	err = w.topology.Declare(t.Context(), b, []string{queue})
	w.must(err)
	err = b.Declare(t.Context(), []broker.Object{w.topology.MarkerObject()})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually polls until holds returns true.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(slow.Patience())
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			w.Fatalf("timeout: %s", what)
		}
	}
}

// await receives one value.
func await[T any](w *world, what string, c <-chan T) T {
	w.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(slow.Patience()):
		w.Fatalf("timeout: %s", what)
	}
	panic("not reached")
}

func (w *world) main() string    { return w.topology.Main(queue) }
func (w *world) requeue() string { return w.topology.Requeue(queue) }
func (w *world) hold() string    { return w.topology.HoldingQueueNames()[0] }

// ticketed stores n tasks of a type and returns their tickets. The tickets are neither published nor in the outbox.
func (w *world) ticketed(n int, kind string) []message.Ticket {
	w.Helper()
	task := holdfast.NewTask{Type: kind, Queue: queue, MaxAttempts: 9}
	inserted, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{task}, n), time.Hour)
	w.must(err)
	w.must(w.store.DeleteOutbox(w.Context(), []int64{inserted.Entries[0].ID}))
	return inserted.Entries[0].Tickets
}

// enqueue stores n tasks and publishes their tickets, each in a message of its own.
func (w *world) enqueue(n int) []message.Ticket {
	w.Helper()
	list := w.ticketed(n, kind)
	for _, ticket := range list {
		w.send(w.main(), ticket)
	}
	return list
}

// send publishes a message with the tickets.
func (w *world) send(queue string, tickets ...message.Ticket) {
	w.Helper()
	w.sendRaw(queue, message.Message{Tickets: tickets}.Encode())
}

func (w *world) sendRaw(queue string, body []byte) {
	w.Helper()
	_, err := w.broker.Publish(w.Context(), []broker.Message{{Queue: queue, Body: body}})
	w.must(err)
}

// take removes all messages from an AMQP queue and returns their bodies.
func (w *world) take(queue string) (bodies []string) {
	w.Helper()
	last := fmt.Sprintf("the end %x", rand.Uint64())
	w.sendRaw(queue, []byte(last))
	sub, err := w.broker.Subscribe(w.Context(), queue, 10000)
	w.must(err)
	defer sub.Close()
	for {
		d := await(w, "the end of "+queue, sub.Deliveries())
		w.must(sub.Ack(d.Tag, broker.One))
		if string(d.Body) == last {
			return bodies
		}
		bodies = append(bodies, string(d.Body))
	}
}

// takeOne waits for a message in an AMQP queue, takes it and returns its body.
func (w *world) takeOne(queue string) string {
	w.Helper()
	sub, err := w.broker.Subscribe(w.Context(), queue, 1)
	w.must(err)
	defer sub.Close()
	d := await(w, "a message of "+queue, sub.Deliveries())
	w.must(sub.Ack(d.Tag, broker.One))
	return string(d.Body)
}

func manifest(id holdfast.WorkerID, page int64, tickets ...message.Ticket) string {
	return string(message.Message{Manifest: &message.Manifest{Worker: id, Page: page, Tickets: tickets}}.Encode())
}

func (w *world) task(id holdfast.TaskID) holdfast.Task {
	w.Helper()
	task, err := w.store.Task(w.Context(), id)
	w.must(err)
	return task
}

func (w *world) awaitState(state holdfast.State, tickets ...message.Ticket) {
	w.Helper()
	for _, ticket := range tickets {
		w.eventually(fmt.Sprintf("task %s is %s", ticket.Task, state), func() bool { return w.task(ticket.Task).State == state })
	}
}

func (w *world) workers() map[holdfast.WorkerID]store.Worker {
	w.Helper()
	list, err := w.store.Workers(w.Context(), true)
	w.must(err)
	workers := make(map[holdfast.WorkerID]store.Worker)
	for _, worker := range list {
		workers[worker.ID] = worker
	}
	return workers
}

// sql runs a statement. It replaces "holdfast." with the schema of the test.
func (w *world) sql(statement string, args ...any) {
	w.Helper()
	_, err := pgtest.Admin(w).ExecContext(w.Context(), strings.ReplaceAll(statement, "holdfast.", w.store.Schema()+"."), args...)
	w.must(err)
}

// scan reads one value.
func (w *world) scan(into any, query string, args ...any) {
	w.Helper()
	w.must(pgtest.Admin(w).QueryRowContext(w.Context(), strings.ReplaceAll(query, "holdfast.", w.store.Schema()+"."), args...).Scan(into))
}

// background runs run in a goroutine until stop is called or the test ends.
func (w *world) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.Errorf("run: %v", err)
			}
		case <-time.After(slow.Patience()):
			w.Error("run does not return")
		}
	})
	w.Cleanup(stop)
	return stop
}

// janitor starts a janitor, which publishes the tickets of tasks that are ready again.
func (w *world) janitor() *janitor.Janitor {
	w.Helper()
	j, err := janitor.New(janitor.Options{Store: w.store, Broker: w.broker, Topology: w.topology, SentinelInterval: time.Hour})
	w.must(err)
	w.background(j.Run)
	return j
}

// worker is a consumer under test.
type worker struct {
	*consumer.Consumer
	stop   func()
	worker holdfast.WorkerID // id of the first registration
	rig.Tally
}

// work starts a consumer. When work returns, the consumer is subscribed to the main queue and the requeue queue.
func (w *world) work(handle consumer.HandlerFunc, change func(*consumer.Options)) *worker {
	w.Helper()
	var handlers consumer.Registry
	handlers.Add(kind, handle)
	got := &worker{}
	o := consumer.Options{
		Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Settings: settings(0),
		Concurrency: 10, Name: "test worker", Observer: &got.Tally, Lease: slow.Times(5 * time.Second),
	}
	if change != nil {
		change(&o)
	}
	c, err := consumer.New(o)
	w.must(err)
	got.Consumer = c
	got.stop = w.background(c.Run)
	w.eventually("the worker is subscribed", func() bool {
		status := c.Status()
		got.worker = status.Worker
		return len(status.Consuming) == 2
	})
	return got
}

// settings returns settings with immediate retries.
func settings(timeout time.Duration) holdfast.Settings {
	policy := holdfast.DefaultPolicy()
	policy.Strategy, policy.Base, policy.Jitter = holdfast.Fixed, 0, 0
	return holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: policy, Timeout: timeout}}
}

// executions records which attempts ran, and when they started.
type executions struct {
	mu    sync.Mutex
	began map[message.Ticket][]time.Time
}

func (e *executions) note(task holdfast.Task) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.began == nil {
		e.began = make(map[message.Ticket][]time.Time)
	}
	ticket := message.Ticket{Task: task.ID, Attempt: task.Attempt}
	e.began[ticket] = append(e.began[ticket], time.Now())
}

// of returns the number of executions of a task, over all attempts.
func (e *executions) of(id holdfast.TaskID) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ticket, times := range e.began {
		if ticket.Task == id {
			n += len(times)
		}
	}
	return n
}

func (e *executions) total() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, times := range e.began {
		n += len(times)
	}
	return n
}

// checkOnce fails unless each task ran exactly once.
func (e *executions) checkOnce(t *testing.T, tickets []message.Ticket) {
	t.Helper()
	for _, ticket := range tickets {
		if n := e.of(ticket.Task); n != 1 {
			t.Errorf("task %s ran %d times", ticket.Task, n)
		}
	}
}

var (
	errFault = fmt.Errorf("%w: injected", holdfast.ErrUnavailable)
	errBoom  = errors.New("boom")
)

// faultyStore is a store whose calls a test can intercept.
type faultyStore struct {
	consumer.Store
	claim func(next func() ([]store.Claim, error)) ([]store.Claim, error)
	apply func(next func() ([]bool, error)) ([]bool, error)
	renew func(next func() (store.RenewResult, error)) (store.RenewResult, error)
	park  func(next func() error) error
	block func(next func() error) error
	// refused are the tasks that Block and Park refuse as invalid.
	refused []holdfast.TaskID
	pass    func(tickets []message.Ticket, next func() error) error
	drain   func(s message.Sentinel, next func() error) error
}

func (f *faultyStore) refuse(tickets []message.Ticket) error {
	for _, ticket := range tickets {
		if slices.Contains(f.refused, ticket.Task) {
			return fmt.Errorf("%w: task %s", holdfast.ErrInvalid, ticket.Task)
		}
	}
	return nil
}

func (f *faultyStore) Drained(ctx context.Context, s message.Sentinel) error {
	next := func() error { return f.Store.Drained(ctx, s) }
	if f.drain == nil {
		return next()
	}
	return f.drain(s, next)
}

func (f *faultyStore) Claim(ctx context.Context, id holdfast.WorkerID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	next := func() ([]store.Claim, error) { return f.Store.Claim(ctx, id, wanted, tickets, into) }
	if f.claim == nil {
		return next()
	}
	return f.claim(next)
}

func (f *faultyStore) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	next := func() ([]bool, error) { return f.Store.Apply(ctx, moves) }
	if f.apply == nil {
		return next()
	}
	return f.apply(next)
}

func (f *faultyStore) Renew(ctx context.Context, r store.Renewal) (store.RenewResult, error) {
	next := func() (store.RenewResult, error) { return f.Store.Renew(ctx, r) }
	if f.renew == nil {
		return next()
	}
	return f.renew(next)
}

func (f *faultyStore) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	next := func() error {
		if err := f.refuse(tickets); err != nil {
			return err
		}
		return f.Store.Park(ctx, tickets, wait, why)
	}
	if f.park == nil {
		return next()
	}
	return f.park(next)
}

func (f *faultyStore) Block(ctx context.Context, gate store.ID, tickets []message.Ticket) error {
	next := func() error {
		if err := f.refuse(tickets); err != nil {
			return err
		}
		return f.Store.Block(ctx, gate, tickets)
	}
	if f.block == nil {
		return next()
	}
	return f.block(next)
}

// faultyBroker is a broker whose calls a test can intercept. It records what happens as events.
type faultyBroker struct {
	consumer.Broker
	publish  func(m broker.Message, next func() broker.Outcome) broker.Outcome // called for each message
	loseAcks func(queue string) bool

	mu     sync.Mutex
	events []string // "stored BODY", "refused BODY", "acked QUEUE"
	subs   map[string]broker.Subscription
}

func (f *faultyBroker) note(e string) {
	f.mu.Lock()
	f.events = append(f.events, e)
	f.mu.Unlock()
}

// order returns the events so far.
func (f *faultyBroker) order() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

func (f *faultyBroker) count(e string) (n int) {
	for _, seen := range f.order() {
		if seen == e {
			n++
		}
	}
	return n
}

// cut ends the subscription of an AMQP queue. The broker redelivers its unacked messages.
func (f *faultyBroker) cut(queue string) error {
	f.mu.Lock()
	sub := f.subs[queue]
	f.mu.Unlock()
	return sub.Close()
}

func (f *faultyBroker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	var failed error
	for i, m := range messages {
		next := func() broker.Outcome {
			one, err := f.Broker.Publish(ctx, messages[i:i+1])
			if err != nil {
				failed = err
			}
			return one[0]
		}
		if f.publish == nil {
			outcomes[i] = next()
		} else {
			outcomes[i] = f.publish(m, next)
		}
		if outcomes[i] == broker.Stored {
			f.note("stored " + string(m.Body))
		} else {
			f.note("refused " + string(m.Body))
			if failed == nil {
				failed = errFault
			}
		}
	}
	return outcomes, failed
}

func (f *faultyBroker) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	sub, err := f.Broker.Subscribe(ctx, queue, prefetch)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = make(map[string]broker.Subscription)
	}
	f.subs[queue] = sub
	return &recordingSubscription{sub, f, queue}, nil
}

type recordingSubscription struct {
	broker.Subscription
	f     *faultyBroker
	queue string
}

func (s *recordingSubscription) Ack(tag uint64, mode broker.AckMode) error {
	if s.f.loseAcks != nil && s.f.loseAcks(s.queue) {
		s.f.note("lost ack " + s.queue)
		return nil
	}
	s.f.note("acked " + s.queue)
	return s.Subscription.Ack(tag, mode)
}

func (f *faultyStore) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	next := func() error { return f.Store.PassedOn(ctx, tickets) }
	if f.pass == nil {
		return next()
	}
	return f.pass(tickets, next)
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
