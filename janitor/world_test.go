package janitor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/netfault"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/rig"
	"github.com/holdfastq/holdfast/workshop/slow"
)

const (
	queue = holdfast.DefaultQueue
	kind  = "work"
)

// world is the environment of a test, with a schema and AMQP queues of its own.
type world struct {
	*testing.T
	store    *postgres.Store
	broker   *rabbitmq.Broker
	topology broker.Topology
	observed *rig.Tally
}

// bareWorld returns a world without AMQP queues.
func bareWorld(t *testing.T) *world {
	t.Helper()
	rabbittest.URL(t)
	w := &world{T: t, store: pgtest.OpenReused(t), observed: &rig.Tally{}}
	b, prefix := rabbittest.Open(t)
	incarnation, err := w.store.Incarnation(t.Context())
	w.must(err)
	w.broker, w.topology = b, broker.NewTopology(prefix, 1, incarnation)
	return w
}

// newWorld returns a world with the AMQP queues of the default queue.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := bareWorld(t)
	w.declare()
	return w
}

// declare declares the AMQP queues of all known queues, and the marker.
func (w *world) declare() {
	w.Helper()
	queues, err := w.store.QueueNames(w.Context())
	w.must(err)
	err = w.topology.Declare(w.Context(), w.broker, queues)
	w.must(err)
	err = w.broker.Declare(w.Context(), []broker.Object{w.topology.MarkerObject()})
	w.must(err)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually polls until the condition is true. It fails the test after slow.Patience.
func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(slow.Patience())
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			w.Fatalf("timeout waiting until %s", what)
		}
	}
}

// janitor returns a janitor of this world. change, if not nil, changes its options.
func (w *world) janitor(change func(*Options)) *Janitor {
	w.Helper()
	o := Options{Store: w.store, Desk: w.store, Broker: w.broker, Topology: w.topology, Name: "test janitor", Observer: w.observed}
	if change != nil {
		change(&o)
	}
	j, err := New(o)
	w.must(err)
	j.limits = publishLimits{slow.Times(isolateAfter), slow.Times(probeTimeout), slow.Times(rebuildTimeout)}
	return j
}

// background runs work until stop is called or the test ends.
func (w *world) background(work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	stop = func() {
		cancel()
		select {
		case <-done:
		case <-time.After(slow.Patience()):
			w.Error("background work did not stop")
		}
	}
	w.Cleanup(stop)
	return stop
}

func (w *world) run(j *Janitor) (stop func()) {
	return w.background(func(ctx context.Context) {
		if err := j.Run(ctx); err != nil {
			w.Errorf("run: %v", err)
		}
	})
}

// patrol runs only the patrol of the holding queue.
func (w *world) patrol(j *Janitor) (stop func()) {
	return w.background(func(ctx context.Context) { j.receive(ctx, w.hold(), patrolPrefetch, j.patrol) })
}

func (w *world) main() string    { return w.topology.Main(queue) }
func (w *world) requeue() string { return w.topology.Requeue(queue) }
func (w *world) hold() string    { return w.topology.HoldingQueueNames()[0] }

func newTask() holdfast.NewTask {
	return holdfast.NewTask{Type: kind, Queue: queue, MaxAttempts: 9}
}

// insert stores n tasks and returns their outbox entry.
func (w *world) insert(n int, grace time.Duration) store.OutboxEntry {
	w.Helper()
	inserted, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{newTask()}, n), grace)
	w.must(err)
	if len(inserted.Entries) != 1 {
		w.Fatalf("got %d outbox entries, want 1", len(inserted.Entries))
	}
	return inserted.Entries[0]
}

// ticketed stores n tasks as if their tickets had been published.
func (w *world) ticketed(n int) []message.Ticket {
	w.Helper()
	entry := w.insert(n, time.Hour)
	w.must(w.store.DeleteOutbox(w.Context(), []int64{entry.ID}))
	return entry.Tickets
}

// due stores n due tasks without tickets.
func (w *world) due(n int) []message.Ticket {
	w.Helper()
	tickets := w.ticketed(n)
	changed, err := w.store.Unticket(w.Context(), tickets)
	w.must(err)
	if changed != n {
		w.Fatalf("%d of %d tasks are due", changed, n)
	}
	return tickets
}

func (w *world) registerWorker() holdfast.WorkerID {
	w.Helper()
	return w.registerWorkerFor(time.Hour)
}

func (w *world) registerWorkerFor(lease time.Duration) holdfast.WorkerID {
	w.Helper()
	worker, err := w.store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "worker", Concurrency: 4}, lease)
	w.must(err)
	return worker
}

// kill marks a worker as dead.
func (w *world) kill(worker holdfast.WorkerID) {
	w.Helper()
	w.sql("update holdfast.workers set state = 'dead', ended_at = now() where id = $1", int64(worker))
}

// claim claims the tasks of the tickets. It fails the test if a task cannot be claimed.
func (w *world) claim(worker holdfast.WorkerID, tickets ...message.Ticket) []holdfast.Task {
	w.Helper()
	claims, err := w.store.Claim(w.Context(), worker, store.AnyOf(kind), tickets, store.IntoExecutors)
	w.must(err)
	tasks := make([]holdfast.Task, len(claims))
	for i, c := range claims {
		if c.Verdict != store.Claimed {
			w.Fatalf("ticket %v: verdict is %d, want Claimed", tickets[i], c.Verdict)
		}
		tasks[i] = *c.Task
	}
	return tasks
}

// settle settles a task with a cause. It fails the test if the store refuses the transition.
func (w *world) settle(task holdfast.Task, cause holdfast.Cause) {
	w.Helper()
	move, err := holdfast.Settle(task, cause, time.Now(), holdfast.DefaultPolicy())
	w.must(err)
	accepted, err := w.store.Apply(w.Context(), []holdfast.Transition{move})
	w.must(err)
	if !accepted[0] {
		w.Fatalf("the store refused the transition of %+v", task)
	}
}

func (w *world) task(id holdfast.TaskID) holdfast.Task {
	w.Helper()
	task, err := w.store.Task(w.Context(), id)
	w.must(err)
	return task
}

func (w *world) position(ticket message.Ticket) store.Position {
	w.Helper()
	positions, err := w.store.Positions(w.Context(), []message.Ticket{ticket})
	w.must(err)
	return positions[0]
}

// unchanged fails the test if a task has changed.
func (w *world) unchanged(before holdfast.Task) {
	w.Helper()
	before.Payload = nil
	after := w.task(before.ID)
	after.Payload = nil
	if fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) {
		w.Errorf("task has changed from %+v\n     to %+v", before, after)
	}
}

// sql executes a statement. It replaces "holdfast." with the schema of the test.
func (w *world) sql(statement string, args ...any) {
	w.Helper()
	_, err := pgtest.Admin(w).ExecContext(w.Context(), strings.ReplaceAll(statement, "holdfast.", w.store.Schema()+"."), args...)
	w.must(err)
}

func (w *world) number(query string, args ...any) (n int) {
	w.Helper()
	row := pgtest.Admin(w).QueryRowContext(w.Context(), strings.ReplaceAll(query, "holdfast.", w.store.Schema()+"."), args...)
	w.must(row.Scan(&n))
	return n
}

// makeDue makes tasks and outbox entries due that wait after a failed publish.
func (w *world) makeDue() {
	w.Helper()
	w.sql("update holdfast.tasks set due_at = now() where due_at > now()")
	w.sql("update holdfast.outbox set publish_after = now()")
}

func (w *world) entries() int { w.Helper(); return w.number("select count(*) from holdfast.outbox") }

func (w *world) send(amqpQueue string, messages ...message.Message) {
	w.Helper()
	bodies := make([]string, len(messages))
	for i, m := range messages {
		bodies[i] = string(m.Encode())
	}
	w.sendRaw(amqpQueue, bodies...)
}

func (w *world) sendRaw(amqpQueue string, bodies ...string) {
	w.Helper()
	messages := make([]broker.Message, len(bodies))
	for i, body := range bodies {
		messages[i] = broker.Message{Queue: amqpQueue, Body: []byte(body)}
	}
	_, err := w.broker.Publish(w.Context(), messages)
	w.must(err)
}

// takeRaw empties an AMQP queue and returns the bodies of all messages that were confirmed before the call.
func (w *world) takeRaw(amqpQueue string) (bodies []string) {
	w.Helper()
	last := fmt.Sprintf("end %x", rand.Uint64())
	w.sendRaw(amqpQueue, last)
	in := w.listen(amqpQueue)
	defer in.sub.Close()
	for {
		d := in.next()
		w.must(in.sub.Ack(d.Tag, broker.One))
		if string(d.Body) == last {
			return bodies
		}
		bodies = append(bodies, string(d.Body))
	}
}

// take empties an AMQP queue and returns the messages.
func (w *world) take(amqpQueue string) []message.Message {
	w.Helper()
	var messages []message.Message
	for _, body := range w.takeRaw(amqpQueue) {
		messages = append(messages, w.decode([]byte(body)))
	}
	return messages
}

// takeTickets empties an AMQP queue and returns the tickets, without sentinels.
func (w *world) takeTickets(amqpQueue string) []message.Ticket {
	w.Helper()
	var tickets []message.Ticket
	for _, m := range w.take(amqpQueue) {
		tickets = append(tickets, m.Tickets...)
	}
	return tickets
}

func (w *world) decode(body []byte) message.Message {
	w.Helper()
	m, err := message.Decode(body)
	w.must(err)
	return m
}

// listener receives from an AMQP queue.
type listener struct {
	w   *world
	sub broker.Subscription
}

func (w *world) listen(amqpQueue string) *listener {
	w.Helper()
	sub, err := w.broker.Subscribe(w.Context(), amqpQueue, 10000)
	w.must(err)
	w.Cleanup(func() { _ = sub.Close() })
	return &listener{w, sub}
}

func (l *listener) next() broker.Delivery {
	l.w.Helper()
	select {
	case d, open := <-l.sub.Deliveries():
		if !open {
			l.w.Fatal("the subscription has ended")
		}
		return d
	case <-time.After(slow.Patience()):
		l.w.Fatal("timeout waiting for a message")
	}
	panic("not reached")
}

// ticket acknowledges the next message, which must have one ticket, and returns the ticket.
func (l *listener) ticket() message.Ticket {
	l.w.Helper()
	d := l.next()
	l.w.must(l.sub.Ack(d.Tag, broker.One))
	m := l.w.decode(d.Body)
	if len(m.Tickets) != 1 {
		l.w.Fatalf("received %s, want one ticket", d.Body)
	}
	return m.Tickets[0]
}

// sameTickets compares tickets in any order. Each ticket must occur once.
func (w *world) sameTickets(what string, got, want []message.Ticket) {
	w.Helper()
	order := func(a, b message.Ticket) int {
		if a.Task != b.Task {
			return int(a.Task - b.Task)
		}
		return a.Attempt - b.Attempt
	}
	got, want = slices.SortedFunc(slices.Values(got), order), slices.SortedFunc(slices.Values(want), order)
	if !slices.Equal(got, want) {
		w.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func manifest(worker holdfast.WorkerID, page int64, tickets ...message.Ticket) message.Message {
	return message.Message{Manifest: &message.Manifest{Worker: worker, Page: page, Tickets: tickets}}
}

func tickets(list ...message.Ticket) message.Message { return message.Message{Tickets: list} }

// next returns the ticket of the task's next attempt.
func next(t message.Ticket) message.Ticket {
	t.Attempt++
	return t
}

// proxiedBroker returns a second client of the broker, behind a proxy.
func (w *world) proxiedBroker() (*rabbitmq.Broker, *netfault.Proxy) {
	w.Helper()
	address := rabbittest.URL(w)
	proxy, err := netfault.New(rabbittest.HostPort(w, address))
	w.must(err)
	w.Cleanup(func() { _ = proxy.Close() })
	return rabbittest.OpenWith(w, address, rabbitmq.Options{URLs: []string{rabbittest.At(w, address, proxy.Addr())}}), proxy
}

// proxiedStore returns a second client of the same schema, behind a proxy.
func (w *world) proxiedStore() (*postgres.Store, *netfault.Proxy) {
	w.Helper()
	address := pgtest.URL(w)
	proxy, err := netfault.New(rabbittest.HostPort(w, address))
	w.must(err)
	w.Cleanup(func() { _ = proxy.Close() })
	return pgtest.Connect(w, postgres.Options{URL: rabbittest.At(w, address, proxy.Addr()), Schema: w.store.Schema()}), proxy
}

var errFault = fmt.Errorf("%w: injected", holdfast.ErrUnavailable)

// spy is a broker that records what a janitor does, and fails on demand.
type spy struct {
	broker.Broker
	refuse       func(broker.Message) bool // spy does not send these messages; their outcome is Unknown
	missingFails bool                      // Missing returns an error

	mu     sync.Mutex
	events []event
}

// event is "stored", "unconfirmed", "refused", "received" or "acked".
type event struct {
	what    string
	queue   string
	body    string
	headers map[string]string
}

func (s *spy) note(e event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
}

// saw returns the recorded events of a kind.
func (s *spy) saw(what string) (list []event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.what == what {
			list = append(list, e)
		}
	}
	return list
}

// order returns the kinds of all recorded events.
func (s *spy) order() (words []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		words = append(words, e.what)
	}
	return words
}

func (s *spy) Missing(ctx context.Context, objects []broker.Object) ([]string, error) {
	if s.missingFails {
		return nil, errFault
	}
	return s.Broker.Missing(ctx, objects)
}

func (s *spy) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	var firstErr error
	for i, m := range messages {
		if s.refuse != nil && s.refuse(m) {
			s.note(event{"refused", m.Queue, string(m.Body), m.Headers})
			firstErr = errFault
			continue
		}
		one, err := s.Broker.Publish(ctx, messages[i:i+1])
		outcomes[i] = one[0]
		if err != nil && firstErr == nil {
			firstErr = err
		}
		what := "stored"
		if one[0] != broker.Stored {
			what = "unconfirmed"
		}
		s.note(event{what, m.Queue, string(m.Body), m.Headers})
	}
	return outcomes, firstErr
}

func (s *spy) Subscribe(ctx context.Context, amqpQueue string, prefetch int) (broker.Subscription, error) {
	inner, err := s.Broker.Subscribe(ctx, amqpQueue, prefetch)
	if err != nil {
		return nil, err
	}
	sub := &spySub{Subscription: inner, spy: s, queue: amqpQueue, out: make(chan broker.Delivery), done: make(chan struct{}), bodies: make(map[uint64]string)}
	go sub.forward()
	return sub, nil
}

type spySub struct {
	broker.Subscription
	spy   *spy
	queue string
	out   chan broker.Delivery
	done  chan struct{}
	once  sync.Once

	mu     sync.Mutex
	bodies map[uint64]string
}

func (s *spySub) forward() {
	defer close(s.out)
	for d := range s.Subscription.Deliveries() {
		s.mu.Lock()
		s.bodies[d.Tag] = string(d.Body)
		s.mu.Unlock()
		select {
		case s.out <- d:
			s.spy.note(event{what: "received", queue: s.queue, body: string(d.Body)})
		case <-s.done:
			return
		}
	}
}

func (s *spySub) Deliveries() <-chan broker.Delivery { return s.out }

func (s *spySub) Ack(tag uint64, mode broker.AckMode) error {
	s.mu.Lock()
	body := s.bodies[tag]
	s.mu.Unlock()
	s.spy.note(event{what: "acked", queue: s.queue, body: body})
	return s.Subscription.Ack(tag, mode)
}

func (s *spySub) Close() error {
	s.once.Do(func() { close(s.done) })
	return s.Subscription.Close()
}

// firstMessages returns a function for spy.refuse that refuses the first n messages.
func firstMessages(n int) func(broker.Message) bool {
	var mu sync.Mutex
	return func(broker.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		n--
		return n >= 0
	}
}

// faultyStore is a store with hooks that run before some methods.
type faultyStore struct {
	Store
	apply     func() error // if it returns an error, Apply returns that error and does nothing
	positions func() error
	fence     func()
}

func (f *faultyStore) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	if f.apply != nil {
		if err := f.apply(); err != nil {
			return nil, err
		}
	}
	return f.Store.Apply(ctx, moves)
}

func (f *faultyStore) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	if f.positions != nil {
		if err := f.positions(); err != nil {
			return nil, err
		}
	}
	return f.Store.Positions(ctx, tickets)
}

func (f *faultyStore) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error) {
	if f.fence != nil {
		f.fence()
	}
	return f.Store.Fence(ctx, asked, grace, settle)
}

var errNever = errors.New("unexpected call")

// lostReplies is a store whose Apply commits and then returns the error of fault.
type lostReplies struct {
	Store
	fault func() error
}

func (l lostReplies) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted, err := l.Store.Apply(ctx, moves)
	if err != nil {
		return nil, err
	}
	if err := l.fault(); err != nil {
		return nil, err
	}
	return accepted, nil
}

// passCounter counts the passes of a patrol.
type passCounter struct {
	faultyStore
	passes *atomic.Int32
}

func (w *passCounter) WorkerStates(ctx context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	w.passes.Add(1)
	return w.Store.WorkerStates(ctx, workers)
}

// queryRecorder records the tickets that a patrol queries.
type queryRecorder struct {
	faultyStore
	queried *[]message.Ticket
}

func (a *queryRecorder) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	*a.queried = append(*a.queried, tickets...)
	return a.Store.Positions(ctx, tickets)
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
