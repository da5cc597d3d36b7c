package e2e

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

// silent is a broker with AMQP queues that confirm nothing until ended is closed. A Publish with a message for such a
// queue waits until then, or until its deadline.
type silent struct {
	broker.Broker
	queues []string
	ended  chan struct{}
	tries  atomic.Int64 // number of Publish calls with messages for these queues
}

// silent returns a broker on which both AMQP queues of a queue are silent.
func (w *world) silent(ended chan struct{}, queue string) *silent {
	return &silent{Broker: w.Broker, queues: w.Topology.Queue(queue), ended: ended}
}

func (s *silent) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if slices.ContainsFunc(messages, func(m broker.Message) bool { return slices.Contains(s.queues, m.Queue) }) {
		s.tries.Add(1)
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Second) // the default limit of the RabbitMQ client
			defer cancel()
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
			return make([]broker.Outcome, len(messages)), fmt.Errorf("%w: the AMQP queue confirms nothing", holdfast.ErrUnavailable)
		}
	}
	return s.Broker.Publish(ctx, messages)
}

// A queue confirms nothing, and thousands of outbox entries are pending for it. Tasks of another queue still start and
// finish. The producer publishes the tasks of Enqueue, and a janitor publishes tasks that were inserted without a
// producer. Meanwhile the producer waits for confirms of the silent queue. When that queue confirms again, its tasks
// finish too.
func TestAQueueThatConfirmsNothingDelaysNoOtherQueue(t *testing.T) {
	onAFileFirst(t, func(t *testing.T, w *world) {
		const kind, entries, rounds = "plain", 2000, 5
		ended := make(chan struct{})
		janitorBroker, producerBroker := w.silent(ended, "stuck"), w.silent(ended, "stuck")
		b := *w.Backend
		b.Broker = janitorBroker
		w.runJanitor(t, &b, nil)
		w.runWorker(t, &b, nil, map[string]consumer.Handler{
			kind: consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }),
		})
		p, err := producer.New(producer.Options{
			Store: w.Store, Broker: producerBroker, Topology: w.Topology, Settings: w.Config.Settings(), Log: logger(t),
			ConfirmTimeout: 10 * time.Minute, // longer than the test, so that the producer keeps waiting
			OutboxGrace:    10 * time.Minute, // longer than the test, so that no janitor publishes its entries
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		end := sync.OnceFunc(func() { close(ended) })
		defer end()

		db := w.callersDB(t)
		insertTx := func(queue string, n int) []holdfast.TaskID {
			t.Helper()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			ids := make([]holdfast.TaskID, n)
			for i := range ids { // each call adds an outbox entry
				inserted, err := w.Store.InsertTx(t.Context(), tx, []holdfast.NewTask{{Type: kind, Queue: queue, MaxAttempts: 1}}, 0)
				if err != nil {
					t.Fatal(err)
				}
				ids[i] = inserted.Tasks[0].ID
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			return ids
		}
		enqueue := func(queue string) holdfast.TaskID {
			t.Helper()
			result, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: kind, Queue: queue})
			if err != nil {
				t.Fatal(err)
			}
			return result.ID
		}
		done := func(id holdfast.TaskID) { w.awaitTask(t, id, "done", in(holdfast.Done)) }

		done(insertTx("fine", 1)[0]) // from now on the AMQP queues exist
		insertTx("stuck", entries)
		enqueue("stuck")
		poll(t, func() string { return "the producer and the janitor do not both publish for the silent queue" },
			func(context.Context) bool { return janitorBroker.tries.Load() > 0 && producerBroker.tries.Load() > 0 })

		for range rounds {
			done(enqueue("fine"))
			done(insertTx("fine", 1)[0])
		}
		counts, err := w.Store.Count(t.Context(), store.Filter{Queue: "stuck"})
		if err != nil || counts.By[holdfast.Ready] != entries+1 {
			t.Errorf("the tasks of the silent queue are %v, %v; want %d ready", counts, err, entries+1)
		}
		end()
		w.awaitCount(t, holdfast.Done, entries+1+2*rounds+1)
	})
}

// callersDB opens the database of the world like a program that passes its transactions to EnqueueTx.
func (w *world) callersDB(t *testing.T) *sql.DB {
	t.Helper()
	driver, source := "postgres", w.databaseURL
	if w.embedded {
		path, _ := w.Embedded()
		driver, source = "sqlite", path+"?_pragma=busy_timeout(20000)&_txlock=immediate"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
