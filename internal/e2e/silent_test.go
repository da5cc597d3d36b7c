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

// silence is a broker of which some queues confirm nothing until it is over: a publish to one of them lasts until then, or until its
// time is over.
type silence struct {
	broker.Broker
	queues []string
	over   chan struct{}
	tries  atomic.Int64 // publishes that began for them
}

func (w *world) silence(over chan struct{}, lane string) *silence {
	return &silence{Broker: w.Broker, queues: w.Topology.Lane(lane), over: over}
}

func (s *silence) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if slices.ContainsFunc(messages, func(m broker.Message) bool { return slices.Contains(s.queues, m.Queue) }) {
		s.tries.Add(1)
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 5*time.Second) // the limit of the broker's client
			defer cancel()
		}
		select {
		case <-s.over:
		case <-ctx.Done():
			return make([]broker.Outcome, len(messages)), fmt.Errorf("%w: the queue confirms nothing", holdfast.ErrUnavailable)
		}
	}
	return s.Broker.Publish(ctx, messages)
}

// With thousands of outbox entries pending for a queue that confirms nothing, tasks of another queue start and finish: those of
// Enqueue, which their producer alone publishes, and those of EnqueueTx, which a janitor publishes. The producer waits for the silent
// queue's confirms all the while. When the queue confirms again, its tasks finish too.
func TestAQueueThatConfirmsNothingDelaysNoOtherQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world) {
		const kind, entries, rounds = "plain", 2000, 5
		over := make(chan struct{})
		deaf, deafToProducer := w.silence(over, "stuck"), w.silence(over, "stuck")
		b := *w.Backend
		b.Broker = deaf
		w.runJanitor(t, &b, nil)
		w.runWorker(t, &b, nil, map[string]consumer.Handler{
			kind: consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }),
		})
		p, err := producer.New(producer.Options{
			Store: w.Store, Broker: deafToProducer, Topology: w.Topology, Settings: w.Config.Settings(), Log: logger(t),
			ConfirmTimeout: 10 * time.Minute, // else its wait for the silent queue would end by itself
			OutboxGrace:    10 * time.Minute, // else a janitor would publish what it delays
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		end := sync.OnceFunc(func() { close(over) })
		defer end()

		db := w.callersDB(t)
		stored := func(lane string, n int) []holdfast.TaskID {
			t.Helper()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			ids := make([]holdfast.TaskID, n)
			for i := range ids { // each call leaves an entry
				results, err := p.EnqueueTx(t.Context(), tx, holdfast.NewTask{Type: kind, Lane: lane})
				if err != nil {
					t.Fatal(err)
				}
				ids[i] = results[0].ID
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			return ids
		}
		called := func(lane string) holdfast.TaskID {
			t.Helper()
			result, err := p.Enqueue(t.Context(), holdfast.NewTask{Type: kind, Lane: lane})
			if err != nil {
				t.Fatal(err)
			}
			return result.ID
		}
		done := func(id holdfast.TaskID) { w.awaitTask(t, 60*time.Second, id, "done", in(holdfast.Done)) }

		done(stored("fine", 1)[0]) // its queues are declared from now on
		stored("stuck", entries)
		called("stuck")
		poll(t, 30*time.Second, func() string { return "the producer and the janitor do not both publish for the silent queue" },
			func(context.Context) bool { return deaf.tries.Load() > 0 && deafToProducer.tries.Load() > 0 })
		for range rounds {
			done(called("fine"))
			done(stored("fine", 1)[0])
		}
		counts, err := w.Store.Count(t.Context(), store.Filter{Lane: "stuck"})
		if err != nil || counts[holdfast.Ready] != entries+1 {
			t.Errorf("tasks of the silent queue: %v, %v; want %d ready", counts, err, entries+1)
		}
		end()
		w.awaitCount(t, 120*time.Second, holdfast.Done, entries+1+2*rounds+1)
	})
}

// callersDB opens the world's database as a program does that passes its transactions to EnqueueTx.
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
