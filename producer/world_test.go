package producer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/rabbitmq"
	"github.com/holdfastq/holdfast/broker/rabbitmq/rabbittest"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// patience bounds every wait for something that must happen.
const patience = time.Minute

// world is one test's own corner of the servers, with a producer.
type world struct {
	*testing.T
	*Producer
	store    *postgres.Store
	broker   *rabbitmq.Broker
	topology broker.Topology
	inserts  *inserts
	letters  *letters
}

func newWorld(t *testing.T, change func(*Options)) *world {
	t.Helper()
	rabbittest.URL(t)
	w := &world{T: t, store: pgtest.Open(t)}
	b, prefix := rabbittest.Open(t)
	w.broker, w.topology = b, broker.NewTopology(prefix, 1, "test")
	_, err := w.topology.Declare(t.Context(), b, []string{holdfast.DefaultLane})
	w.must(err)
	w.inserts, w.letters = &inserts{Inserter: w.store}, &letters{Publisher: b}
	o := Options{Store: w.inserts, Broker: w.letters, Topology: w.topology, OutboxGrace: time.Hour}
	if change != nil {
		change(&o)
	}
	w.Producer = made(o)
	t.Cleanup(func() { _ = w.Close() })
	return w
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

// await receives one value.
func await[T any](w *world, what string, c <-chan T) T {
	w.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		w.Fatalf("still not: %s", what)
	}
	panic("not reached")
}

func (w *world) count(table string) (n int) {
	w.Helper()
	w.must(pgtest.Admin(w).QueryRowContext(w.Context(), "select count(*) from "+w.store.Schema()+"."+table).Scan(&n))
	return n
}

// take empties the lane and returns its tickets and how many messages there were, when everything is published.
func (w *world) take(queue string) (tickets []message.Ticket, messages int) {
	w.Helper()
	w.publisher.close()
	last := fmt.Sprintf("the end %x", rand.Uint64())
	_, err := w.broker.Publish(w.Context(), []broker.Message{{Queue: queue, Body: []byte(last)}})
	w.must(err)
	sub, err := w.broker.Subscribe(w.Context(), queue, 10000)
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

func (w *world) main() string { return w.topology.Main(holdfast.DefaultLane) }

// queued is how many calls wait for a batch.
func (w *world) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.plain.waiting)
}

// pending is how many tickets of a lane wait for a window.
func (w *world) pending(lane string) int {
	w.publisher.mu.Lock()
	defer w.publisher.mu.Unlock()
	if q := w.publisher.queues[lane]; q != nil {
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

// payload is what a stored task was asked to do.
func (w *world) payload(id holdfast.TaskID) string {
	w.Helper()
	stored, err := w.store.Task(w.Context(), id)
	w.must(err)
	return string(stored.Payload)
}

var errFault = fmt.Errorf("%w: injected", holdfast.ErrUnavailable)

// inserts is an Inserter that counts, can be held up and can fail.
type inserts struct {
	store.Inserter
	gate chan struct{} // if not nil, an insert waits for it
	fail func(call int, tasks []holdfast.NewTask) error

	seeTx func(tasks []holdfast.NewTask) // sees each insert into a transaction

	mu         sync.Mutex
	sizes      []int
	discharged int
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

func (s *inserts) Discharge(ctx context.Context, receipts []int64) error {
	s.mu.Lock()
	s.discharged += len(receipts)
	s.mu.Unlock()
	return s.Inserter.Discharge(ctx, receipts)
}

// calls lists the sizes of the inserts so far.
func (s *inserts) calls() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sizes)
}

// letters is a Publisher that can be held up and can refuse.
type letters struct {
	broker.Publisher
	gate   chan struct{}
	refuse func(broker.Message) bool
	mu     sync.Mutex
	began  int
}

func (l *letters) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
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

func (l *letters) calls() int {
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
