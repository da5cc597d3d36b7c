package e2e

import (
	"context"
	"database/sql"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/producer"
	"github.com/holdfastq/holdfast/store"
)

// publishedCount counts the tickets that a producer has published.
type publishedCount struct{ n atomic.Int64 }

// Observe implements holdfast.Observer.
func (c *publishedCount) Observe(o holdfast.Observation) {
	if o.Kind == holdfast.ObservedPublished {
		c.n.Add(int64(o.Count))
	}
}

// The producer notices the commits of EnqueueTx and publishes the tickets. Exactly the committed tasks run.
func TestTheProducerPublishesWhatTransactionsCommit(t *testing.T) {
	onServersFirst(t, func(t *testing.T, w *world) {
		w.runJanitor(t, w.Backend, nil) // publishes the tickets of transactions that take a second, as on a busy machine
		w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{
			"plain": consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }),
		})
		published := new(publishedCount)
		p, err := producer.New(producer.Options{
			Store: w.Store, Broker: w.Broker, Topology: w.Topology, Settings: w.Config.Settings(), Log: logger(t), Observer: published,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		db := w.callersDB(t)
		const tasks, least = 3, 10
		rounds := 0
		poll(t, func() string { return "the producer published too few tickets" }, func(context.Context) bool {

			enqueueTx(t, db, p, (*sql.Tx).Rollback, 1)
			for _, id := range enqueueTx(t, db, p, (*sql.Tx).Commit, tasks) {
				w.awaitTask(t, id, "done", in(holdfast.Done))
			}
			rounds++
			return published.n.Load() >= least
		})

		counts, err := w.Store.Count(t.Context(), store.Filter{})
		if want := int64(tasks * rounds); err != nil || counts.By[holdfast.Done] != want || counts.By[holdfast.Ready] != 0 {
			t.Errorf("the tasks are %v, %v; want %d done", counts, err, want)
		}
	})
}

// enqueueTx stores n tasks in a transaction, and ends the transaction.
func enqueueTx(t *testing.T, db *sql.DB, p *producer.Producer, end func(*sql.Tx) error, n int) []holdfast.TaskID {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	results, err := p.EnqueueTx(t.Context(), tx, slices.Repeat([]holdfast.NewTask{{Type: "plain"}}, n)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := end(tx); err != nil {
		t.Fatal(err)
	}
	ids := make([]holdfast.TaskID, n)
	for i, result := range results {
		ids[i] = result.ID
	}
	return ids
}

// A process that does not serve the file has no broker. The process that serves it publishes the tickets at once.
func TestTransactionsOfOtherProcessesOnTheFileHaveNoGrace(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	p := w.Producer(nil)
	defer p.Close()
	id := enqueueTx(t, w.callersDB(t), p, (*sql.Tx).Commit, 1)[0]
	var given []store.OutboxEntry
	_, err := w.Store.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, entries []store.OutboxEntry) []bool {
		given = entries
		return make([]bool, len(entries))
	})
	if err != nil || len(given) != 1 || given[0].Tickets[0].Task != id {
		t.Errorf("a janitor gets %v, %v; want the outbox entry of task %s", given, err, id)
	}
}
