package janitor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
	"github.com/holdfastq/holdfast/internal/netfault"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

const (
	lane = holdfast.DefaultLane
	kind = "work"
)

// world is one test's own corner of the servers.
type world struct {
	*testing.T
	store    *postgres.Store
	broker   *rabbitmq.Broker
	topology broker.Topology
	seen     *tally
}

// bareWorld has no queues yet.
func bareWorld(t *testing.T) *world {
	t.Helper()
	rabbittest.URL(t)
	w := &world{T: t, store: pgtest.Open(t), seen: &tally{counts: make(map[holdfast.ObservationKind]int)}}
	b, prefix := rabbittest.Open(t)
	incarnation, err := w.store.Incarnation(t.Context())
	w.must(err)
	w.broker, w.topology = b, broker.NewTopology(prefix, 1, incarnation)
	return w
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := bareWorld(t)
	w.declare()
	return w
}

// declare makes the queues of all known lanes, and the marker.
func (w *world) declare() {
	w.Helper()
	lanes, err := w.store.LaneNames(w.Context())
	w.must(err)
	_, err = w.topology.Declare(w.Context(), w.broker, lanes)
	w.must(err)
	_, err = w.broker.Declare(w.Context(), []broker.Object{w.topology.MarkerObject()})
	w.must(err)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually polls until something holds. Failing is the only thing that takes long.
func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			w.Fatalf("still not: %s", what)
		}
	}
}

// janitor is one on this world's servers.
func (w *world) janitor(change func(*Options)) *Janitor {
	w.Helper()
	o := Options{Store: w.store, Broker: w.broker, Topology: w.topology, Name: "test janitor", Observer: w.seen}
	if change != nil {
		change(&o)
	}
	j, err := New(o)
	w.must(err)
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
		case <-time.After(patience):
			w.Error("something does not stop")
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

// patrol runs the patrol of the holding queue and nothing else.
func (w *world) patrol(j *Janitor) (stop func()) {
	return w.background(func(ctx context.Context) { j.receive(ctx, w.hold(), handSize, j.patrol) })
}

func (w *world) main() string  { return w.topology.Main(lane) }
func (w *world) again() string { return w.topology.Again(lane) }
func (w *world) hold() string  { return w.topology.Holds()[0] }

func newTask() holdfast.NewTask {
	return holdfast.NewTask{Type: kind, Lane: lane, MaxAttempts: 9}
}

// insert stores n tasks and leaves their receipt.
func (w *world) insert(n int, grace time.Duration) store.Receipt {
	w.Helper()
	inserted, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{newTask()}, n), grace)
	w.must(err)
	if len(inserted.Receipts) != 1 {
		w.Fatalf("%d receipts", len(inserted.Receipts))
	}
	return inserted.Receipts[0]
}

// ticketed stores n tasks as if their tickets had been published.
func (w *world) ticketed(n int) []message.Ticket {
	w.Helper()
	receipt := w.insert(n, time.Hour)
	w.must(w.store.Discharge(w.Context(), []int64{receipt.ID}))
	return receipt.Tickets
}

// due stores n tasks that wait for their first ticket.
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

func (w *world) openRun() holdfast.RunID {
	w.Helper()
	return w.openRunFor(time.Hour)
}

func (w *world) openRunFor(lease time.Duration) holdfast.RunID {
	w.Helper()
	run, err := w.store.OpenRun(w.Context(), store.RunInfo{Name: "worker"}, lease)
	w.must(err)
	return run
}

// kill declares a run dead at once.
func (w *world) kill(run holdfast.RunID) {
	w.Helper()
	w.sql("update holdfast.runs set state = 'dead', ended_at = now() where id = $1", int64(run))
}

// claim claims tasks that must be free.
func (w *world) claim(run holdfast.RunID, tickets ...message.Ticket) []holdfast.Task {
	w.Helper()
	claims, err := w.store.Claim(w.Context(), run, store.AnyOf(kind), tickets, store.IntoExecutors)
	w.must(err)
	tasks := make([]holdfast.Task, len(claims))
	for i, c := range claims {
		if c.Verdict != store.Claimed {
			w.Fatalf("ticket %v has verdict %d, want a claim", tickets[i], c.Verdict)
		}
		tasks[i] = c.Task
	}
	return tasks
}

// settle applies what cause means for a task, which must be accepted.
func (w *world) settle(task holdfast.Task, cause holdfast.Cause) {
	w.Helper()
	move, err := holdfast.Settle(task, cause, time.Now(), holdfast.DefaultPolicy())
	w.must(err)
	accepted, err := w.store.Apply(w.Context(), []holdfast.Transition{move})
	w.must(err)
	if !accepted[0] {
		w.Fatalf("the move of %+v was refused", task)
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

// untouched fails if a task is not what it was.
func (w *world) untouched(before holdfast.Task) {
	w.Helper()
	before.Payload = nil
	after := w.task(before.ID)
	after.Payload = nil
	if fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) {
		w.Errorf("task was %+v\n     and is %+v", before, after)
	}
}

// sql runs a statement on the test's schema, for which the text says "holdfast".
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

// sooner makes due what was tried in vain and waits for its next try.
func (w *world) sooner() {
	w.Helper()
	w.sql("update holdfast.tasks set due_at = now() where due_at > now()")
	w.sql("update holdfast.outbox set publish_after = now()")
}

func (w *world) receipts() int { w.Helper(); return w.number("select count(*) from holdfast.outbox") }

func (w *world) send(queue string, messages ...message.Message) {
	w.Helper()
	bodies := make([]string, len(messages))
	for i, m := range messages {
		bodies[i] = string(m.Encode())
	}
	w.sendRaw(queue, bodies...)
}

func (w *world) sendRaw(queue string, bodies ...string) {
	w.Helper()
	letters := make([]broker.Message, len(bodies))
	for i, body := range bodies {
		letters[i] = broker.Message{Queue: queue, Body: []byte(body)}
	}
	_, err := w.broker.Publish(w.Context(), letters)
	w.must(err)
}

// takeRaw empties a queue: all that was confirmed before the call.
func (w *world) takeRaw(queue string) (bodies []string) {
	w.Helper()
	last := fmt.Sprintf("the end %x", rand.Uint64())
	w.sendRaw(queue, last)
	in := w.listen(queue)
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

func (w *world) take(queue string) []message.Message {
	w.Helper()
	var messages []message.Message
	for _, body := range w.takeRaw(queue) {
		messages = append(messages, w.decode([]byte(body)))
	}
	return messages
}

// takeTickets empties a queue and returns the tickets, without sentinels.
func (w *world) takeTickets(queue string) []message.Ticket {
	w.Helper()
	var tickets []message.Ticket
	for _, m := range w.take(queue) {
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

// listener receives from a queue.
type listener struct {
	w   *world
	sub broker.Subscription
}

func (w *world) listen(queue string) *listener {
	w.Helper()
	sub, err := w.broker.Subscribe(w.Context(), queue, 10000)
	w.must(err)
	w.Cleanup(func() { _ = sub.Close() })
	return &listener{w, sub}
}

func (l *listener) next() broker.Delivery {
	l.w.Helper()
	select {
	case d, open := <-l.sub.Deliveries():
		if !open {
			l.w.Fatal("the subscription is over")
		}
		return d
	case <-time.After(patience):
		l.w.Fatal("no message comes")
	}
	panic("not reached")
}

// ticket is the next message, which must be one ticket.
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

// sameTickets compares regardless of order; each must be there once.
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

func manifest(run holdfast.RunID, page int64, tickets ...message.Ticket) message.Message {
	return message.Message{Manifest: &message.Manifest{Run: run, Page: page, Tickets: tickets}}
}

func tickets(list ...message.Ticket) message.Message { return message.Message{Tickets: list} }

// next is the ticket of a task's next attempt.
func next(t message.Ticket) message.Ticket {
	t.Attempt++
	return t
}

// proxiedBroker is a second client, behind a proxy.
func (w *world) proxiedBroker() (*rabbitmq.Broker, *netfault.Proxy) {
	w.Helper()
	address := rabbittest.URL(w)
	proxy, err := netfault.New(rabbittest.HostPort(w, address))
	w.must(err)
	w.Cleanup(func() { _ = proxy.Close() })
	return rabbittest.OpenWith(w, address, rabbitmq.Options{URLs: []string{rabbittest.At(w, address, proxy.Addr())}}), proxy
}

// proxiedStore is a second client of the same schema, behind a proxy.
func (w *world) proxiedStore() (*postgres.Store, *netfault.Proxy) {
	w.Helper()
	address := pgtest.URL(w)
	proxy, err := netfault.New(rabbittest.HostPort(w, address))
	w.must(err)
	w.Cleanup(func() { _ = proxy.Close() })
	return pgtest.Connect(w, postgres.Options{URL: rabbittest.At(w, address, proxy.Addr()), Schema: w.store.Schema()}), proxy
}

// tally counts observations.
type tally struct {
	mu     sync.Mutex
	counts map[holdfast.ObservationKind]int
}

func (s *tally) Observe(o holdfast.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[o.Kind] += o.Count
}

func (s *tally) of(kind holdfast.ObservationKind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[kind]
}

var errFault = fmt.Errorf("%w: injected", holdfast.ErrUnavailable)

// spy is a broker that writes down what a janitor does, and fails on demand.
type spy struct {
	broker.Broker
	refuse func(broker.Message) bool // such messages are not sent, and their outcome is Unknown
	blind  bool                      // what is missing cannot be told

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

// saw lists the events of a kind so far.
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

// order is what happened, in a word each.
func (s *spy) order() (words []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		words = append(words, e.what)
	}
	return words
}

func (s *spy) Missing(ctx context.Context, objects []broker.Object) ([]string, error) {
	if s.blind {
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

func (s *spy) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	inner, err := s.Broker.Subscribe(ctx, queue, prefetch)
	if err != nil {
		return nil, err
	}
	sub := &spySub{Subscription: inner, spy: s, queue: queue, out: make(chan broker.Delivery), done: make(chan struct{}), bodies: make(map[uint64]string)}
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

// firstOnes is a refusal of the first n messages.
func firstOnes(n int) func(broker.Message) bool {
	var mu sync.Mutex
	return func(broker.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		n--
		return n >= 0
	}
}

// faulty is a store some of whose methods fail or are counted.
type faulty struct {
	Store
	apply     func() error // called first; an error is returned instead
	positions func() error
	fence     func()
}

func (f *faulty) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	if f.apply != nil {
		if err := f.apply(); err != nil {
			return nil, err
		}
	}
	return f.Store.Apply(ctx, moves)
}

func (f *faulty) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	if f.positions != nil {
		if err := f.positions(); err != nil {
			return nil, err
		}
	}
	return f.Store.Positions(ctx, tickets)
}

func (f *faulty) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	if f.fence != nil {
		f.fence()
	}
	return f.Store.Fence(ctx, asked, grace, settle)
}

var errNever = errors.New("this must not be called")

// lostAnswers commits and then fails, as long as fault says so.
type lostAnswers struct {
	Store
	fault func() error
}

func (l lostAnswers) Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error) {
	accepted, err := l.Store.Apply(ctx, moves)
	if err != nil {
		return nil, err
	}
	if err := l.fault(); err != nil {
		return nil, err
	}
	return accepted, nil
}

// walked counts how often a patrol looks at what it has in hand.
type walked struct {
	faulty
	walks *atomic.Int32
}

func (w *walked) RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]store.RunStatus, error) {
	w.walks.Add(1)
	return w.Store.RunStates(ctx, runs)
}

// asking notes which tickets a patrol asks about.
type asking struct {
	faulty
	asked *[]message.Ticket
}

func (a *asking) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	*a.asked = append(*a.asked, tickets...)
	return a.Store.Positions(ctx, tickets)
}
