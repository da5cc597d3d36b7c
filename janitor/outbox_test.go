package janitor

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// A producer that dies between its commit and its publish leaves an outbox entry, which the janitor publishes.
func TestOutboxPublishesTheEntriesOfADeadProducer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor(nil)
	left := w.insert(3, 0)
	w.insert(2, time.Hour) // within the grace of its producer
	w.must(j.outbox(t.Context()))
	w.sameTickets("published", w.takeTickets(w.main()), left.Tickets)
	if n := w.entries(); n != 1 {
		t.Errorf("%d outbox entries are left, want the one within its grace", n)
	}
}

// Run publishes outbox entries, but not before the end of the producer's grace.
func TestOutboxWaitsForTheGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	main := w.listen(w.main())
	w.run(w.janitor(func(o *Options) { o.SentinelInterval = time.Hour }))
	const grace = 700 * time.Millisecond
	entry := w.insert(1, grace)
	for {
		d := main.next()
		if m := w.decode(d.Body); len(m.Tickets) == 1 && m.Tickets[0] == entry.Tickets[0] {
			break
		}
	}
	if age := w.number("select (extract(epoch from clock_timestamp() - created_at) * 1000)::int from holdfast.tasks"); age < int(grace.Milliseconds()) {
		t.Errorf("published %d ms after the insert, before the grace of %s", age, grace)
	}
	w.eventually("the outbox entry is gone", func() bool { return w.entries() == 0 })
}

// Tickets of tasks in a caller's transaction are published after its commit, and never after a rollback.
func TestOutboxFollowsACallersTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	main := w.listen(w.main())
	w.run(w.janitor(func(o *Options) { o.SentinelInterval = time.Hour }))
	insert := func(end string) message.Ticket {
		tx, err := pgtest.Admin(t).BeginTx(t.Context(), nil)
		w.must(err)
		defer func() { _ = tx.Rollback() }()
		inserted, err := w.store.InsertTx(t.Context(), tx, []holdfast.NewTask{newTask()}, 0)
		w.must(err)
		before := w.insert(1, 0).Tickets[0] // published while the transaction is open
		w.eventually("the other task is published", func() bool { return w.entries() == 0 })
		received := main.next()
		if m := w.decode(received.Body); m.Sentinel != nil {
			received = main.next()
		}
		if m := w.decode(received.Body); len(m.Tickets) != 1 || m.Tickets[0] != before {
			t.Errorf("before the %s: got %s, want only %v", end, received.Body, before)
		}
		if end == "commit" {
			w.must(tx.Commit())
		}
		return inserted.Entries[0].Tickets[0]
	}
	rolledBack := insert("rollback")
	committed := insert("commit")
	if got := main.ticket(); got != committed {
		t.Errorf("published %v, want %v and not %v", got, committed, rolledBack)
	}
}

// While the broker is unavailable, outbox entries stay in the store.
func TestOutboxWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remote, proxy := w.proxiedBroker()
	j := w.janitor(func(o *Options) { o.Broker = remote })
	proxy.Refuse()
	entry := w.insert(4, 0)
	if err := j.outbox(t.Context()); err == nil {
		t.Error("no error while the broker is unavailable")
	}
	if n := w.entries(); n != 1 {
		t.Fatalf("%d outbox entries while the broker is unavailable, want 1", n)
	}
	proxy.Heal()
	w.background(func(ctx context.Context) { j.repeat(ctx, "outbox", outboxEvery, j.outbox) })
	w.eventually("the outbox entry is gone", func() bool { return w.entries() == 0 })
	if got := w.takeTickets(w.main()); len(got) != len(entry.Tickets) {
		t.Errorf("published %v", got)
	}
}

// An outbox entry is deleted only if all of its tickets are confirmed.
func TestOutboxKeepsAnEntryThatIsConfirmedInPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	part, whole := w.insert(3, 0), w.insert(2, 0)
	s.refuse = func(m broker.Message) bool { return string(m.Body) == string(tickets(part.Tickets[1]).Encode()) }
	j := w.janitor(func(o *Options) { o.Broker = s })
	w.must(j.outbox(t.Context())) // no error, because the other entry is published
	if id := w.number("select min(id) from holdfast.outbox"); w.entries() != 1 || int64(id) != part.ID {
		t.Fatalf("%d outbox entries are left, the first is %d; want only %d", w.entries(), id, part.ID)
	}
	s.refuse = nil
	w.makeDue()
	w.must(j.outbox(t.Context()))
	if n := w.entries(); n != 0 {
		t.Errorf("%d outbox entries are left", n)
	}
	want := append(append([]message.Ticket{}, part.Tickets...), whole.Tickets...)
	w.sameTickets("published", w.takeTickets(w.main()), append(want, part.Tickets[0], part.Tickets[2]))
}

// The outbox duty publishes more than one batch of entries, for several queues. It declares the AMQP queues of a new
// queue.
func TestOutboxPublishesTheEntriesOfSeveralQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []message.Ticket
	ghost := newTask()
	ghost.Queue = "ghost"
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, 0)
	w.must(err)
	for range outboxBatch + 5 {
		want = append(want, w.insert(1, 0).Tickets...)
	}
	j := w.janitor(nil)
	w.background(func(ctx context.Context) { j.repeat(ctx, "outbox", outboxEvery, j.outbox) })
	w.background(j.probeIsolated) // a queue whose AMQP queues were not declared in time is isolated
	w.eventually("all outbox entries are gone", func() bool { return w.entries() == 0 })
	published := make(map[message.Ticket]bool) // may contain duplicates: a ticket with a late confirm is published again
	for _, ticket := range w.takeTickets(w.main()) {
		published[ticket] = true
	}
	w.sameTickets("published", slices.Collect(maps.Keys(published)), want)
	if got := w.takeTickets(w.topology.Main("ghost")); len(got) == 0 {
		t.Error("no ticket was published to the new queue")
	}
}

// A queue whose main queue takes no messages keeps its outbox entries, and delays no other queue.
func TestAStuckQueueDoesNotDelayTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := newTask()
	stuck.Queue = "stuck"
	for range outboxBatch {
		_, err := w.store.Insert(t.Context(), []holdfast.NewTask{stuck}, 0)
		w.must(err)
	}
	want := w.insert(1, 0)
	s := &spy{Broker: w.broker, refuse: func(m broker.Message) bool { return m.Queue == w.topology.Main("stuck") }}
	w.background(func(ctx context.Context) {
		j := w.janitor(func(o *Options) { o.Broker = s })
		j.repeat(ctx, "outbox", outboxEvery, j.outbox)
	})
	if got := w.listen(w.main()).ticket(); got != want.Tickets[0] {
		t.Errorf("got %v, want %v", got, want.Tickets[0])
	}
	if n := w.number("select count(*) from holdfast.outbox where queue = 'stuck'"); n != outboxBatch {
		t.Errorf("the stuck queue has %d outbox entries, want %d", n, outboxBatch)
	}
}
