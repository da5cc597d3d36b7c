package producer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// world is the environment of a test, with a schema, a topology and a producer of its own.
type world struct {
	*testing.T
	*Producer
	store     *postgres.Store
	broker    *rabbitmq.Broker
	topology  broker.Topology
	inserts   *inserts
	publishes *publishes
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	rabbittest.URL(t)
	w := &world{T: t, store: pgtest.OpenReused(t)}
	b, prefix := rabbittest.Open(t)
	w.broker, w.topology = b, broker.NewTopology(prefix, 1, "test")
	err := w.topology.Declare(t.Context(), b, []string{holdfast.DefaultQueue})
	w.must(err)
	w.inserts, w.publishes = &inserts{Inserter: w.store}, &publishes{Publisher: b}
	o := Options{Store: w.inserts, Broker: w.publishes, Topology: w.topology, OutboxGrace: time.Hour, ConfirmTimeout: slow.Times(5 * time.Second)}
	if change != nil {
		change(&o)
	}
	w.Producer = mustNew(o)
	w.heldLimit = slow.Times(w.heldLimit) // in this time the store must name all held keys
	t.Cleanup(func() { _ = w.Close() })
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

func (w *world) count(table string) (n int) {
	w.Helper()
	w.must(pgtest.Admin(w).QueryRowContext(w.Context(), "select count(*) from "+w.store.Schema()+"."+table).Scan(&n))
	return n
}

// take closes the publisher, removes all messages from an AMQP queue, and returns their tickets and the number of
// messages.
func (w *world) take(amqpQueue string) (tickets []message.Ticket, messages int) {
	w.Helper()
	w.publisher.close()
	last := fmt.Sprintf("the end %x", rand.Uint64())
	_, err := w.broker.Publish(w.Context(), []broker.Message{{Queue: amqpQueue, Body: []byte(last)}})
	w.must(err)
	sub, err := w.broker.Subscribe(w.Context(), amqpQueue, 10000)
	w.must(err)
	defer sub.Close()
	for {
		d := await(w, "the end of the queue", sub.Deliveries())
		w.must(sub.Ack(d.Tag, broker.One))
		if string(d.Body) == last {
			return tickets, messages
		}
		m, err := message.Decode(d.Body)
		w.must(err)
		tickets = append(tickets, m.Tickets...)
		messages++
	}
}

func (w *world) main() string { return w.topology.Main(holdfast.DefaultQueue) }

// queued returns how many calls without a unique key wait for an inserter.
func (w *world) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.plain.waiting)
}

// pending returns how many tickets of a queue wait for a publish group.
func (w *world) pending(queue string) int {
	w.publisher.mu.Lock()
	defer w.publisher.mu.Unlock()
	if q := w.publisher.queues[queue]; q != nil {
		return q.tickets
	}
	return 0
}

func task(n int) holdfast.NewTask {
	return holdfast.NewTask{Type: "work", Payload: fmt.Appendf(nil, "%d", n)}
}

func tasks(n int) []holdfast.NewTask {
	list := make([]holdfast.NewTask, n)
	for i := range list {
		list[i] = task(i)
	}
	return list
}

// payload returns the payload of a stored task.
func (w *world) payload(id holdfast.TaskID) string {
	w.Helper()
	stored, err := w.store.Task(w.Context(), id)
	w.must(err)
	return string(stored.Payload)
}

var errFault = fmt.Errorf("%w: injected", holdfast.ErrUnavailable)

// inserts is an Inserter that records the sizes of inserts. A test can make inserts wait and fail.
type inserts struct {
	store.Inserter
	gate chan struct{} // if not nil, each insert receives from it first
	fail func(call int, tasks []holdfast.NewTask) error

	seeTx   func(tasks []holdfast.NewTask) // if not nil, called for each InsertTx
	seeLook func()                         // if not nil, called before each query for commits; set it before EnqueueTx

	mu        sync.Mutex
	sizes     []int
	confirmed int
	looked    int
}

func (s *inserts) begin(tasks []holdfast.NewTask) error {
	s.mu.Lock()
	s.sizes = append(s.sizes, len(tasks))
	call := len(s.sizes)
	s.mu.Unlock()
	if s.gate != nil {
		<-s.gate
	}
	if s.fail != nil {
		return s.fail(call, tasks)
	}
	return nil
}

func (s *inserts) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if err := s.begin(tasks); err != nil {
		return store.Inserted{}, err
	}
	return s.Inserter.Insert(ctx, tasks, grace)
}

func (s *inserts) InsertTx(ctx context.Context, tx store.Tx, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if s.seeTx != nil {
		s.seeTx(tasks)
	}
	return s.Inserter.InsertTx(ctx, tx, tasks, grace)
}

func (s *inserts) DeleteOutbox(ctx context.Context, entries []int64) error {
	s.mu.Lock()
	s.confirmed += len(entries)
	s.mu.Unlock()
	return s.Inserter.DeleteOutbox(ctx, entries)
}

func (s *inserts) CommittedOutbox(ctx context.Context, entries []int64) ([]store.OutboxEntry, error) {
	if s.seeLook != nil {
		s.seeLook()
	}
	found, err := s.Inserter.CommittedOutbox(ctx, entries)
	s.mu.Lock()
	s.looked++
	s.mu.Unlock()
	return found, err
}

// looks returns how many queries for commits have ended.
func (s *inserts) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// calls lists the sizes of the inserts so far.
func (s *inserts) calls() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

// publishes is a Publisher that counts calls. A test can make calls wait and refuse messages.
type publishes struct {
	broker.Publisher
	gate   chan struct{}
	refuse func(broker.Message) bool
	mu     sync.Mutex
	began  int
}

func (l *publishes) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	l.mu.Lock()
	l.began++
	l.mu.Unlock()
	if l.gate != nil {
		<-l.gate
	}
	if l.refuse == nil {
		return l.Publisher.Publish(ctx, messages)
	}
	outcomes := make([]broker.Outcome, len(messages))
	for i, m := range messages {
		if !l.refuse(m) {
			one, err := l.Publisher.Publish(ctx, messages[i:i+1])
			if err != nil {
				return outcomes, err
			}
			outcomes[i] = one[0]
		}
	}
	return outcomes, errFault
}

func (l *publishes) calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.began
}

// queryPayloads reads the payloads of all tasks.
func queryPayloads(w *world) (map[holdfast.TaskID]string, error) {
	rows, err := pgtest.Admin(w).QueryContext(w.Context(), "select id, payload::text from "+w.store.Schema()+".tasks")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	payloads := make(map[holdfast.TaskID]string)
	for rows.Next() {
		var id int64
		var payload string
		if err := rows.Scan(&id, &payload); err != nil {
			return nil, err
		}
		payloads[holdfast.TaskID(id)] = payload
	}
	return payloads, rows.Err()
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
