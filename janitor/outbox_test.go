package janitor

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

// A producer that dies between its commit and its publish leaves a receipt.
func TestOutboxPublishesWhatADeadProducerLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor(nil)
	left := w.insert(3, 0)
	w.insert(2, time.Hour) // its producer may still publish it
	w.must(j.outbox(t.Context()))
	w.sameTickets("published", w.takeTickets(w.main()), left.Tickets)
	if n := w.receipts(); n != 1 {
		t.Errorf("%d receipts stand, want the one that is still its producer's", n)
	}
}

// The duty comes round by itself, and not before the producer's time is over.
func TestOutboxWaitsForTheGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	main := w.listen(w.main())
	w.run(w.janitor(func(o *Options) { o.SentinelInterval = time.Hour }))
	const grace = 700 * time.Millisecond
	receipt := w.insert(1, grace)
	for {
		d := main.next()
		if m := w.decode(d.Body); len(m.Tickets) == 1 && m.Tickets[0] == receipt.Tickets[0] {
			break
		}
	}
	if age := w.number("select (extract(epoch from clock_timestamp() - created_at) * 1000)::int from holdfast.tasks"); age < int(grace.Milliseconds()) {
		t.Errorf("published %d ms after the insert, within the producer's %s", age, grace)
	}
	w.eventually("the receipt is gone", func() bool { return w.receipts() == 0 })
}

// Tasks of a caller's transaction start when it commits, and never if it does not.
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
		before := w.insert(1, 0).Tickets[0] // goes out while the transaction is open
		w.eventually("the other task is published", func() bool { return w.receipts() == 0 })
		received := main.next()
		if m := w.decode(received.Body); m.Sentinel != nil {
			received = main.next()
		}
		if m := w.decode(received.Body); len(m.Tickets) != 1 || m.Tickets[0] != before {
			t.Errorf("before the %s: %s, want only %v", end, received.Body, before)
		}
		if end == "commit" {
			w.must(tx.Commit())
		}
		return inserted.Receipts[0].Tickets[0]
	}
	never := insert("rollback")
	soon := insert("commit")
	if got := main.ticket(); got != soon {
		t.Errorf("published %v, want %v and never %v", got, soon, never)
	}
}

// A receipt outlives a broker that is away.
func TestOutboxWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	away, proxy := w.proxiedBroker()
	j := w.janitor(func(o *Options) { o.Broker = away })
	proxy.Refuse()
	receipt := w.insert(4, 0)
	if err := j.outbox(t.Context()); err == nil {
		t.Error("the broker is away and the outbox is content")
	}
	if n := w.receipts(); n != 1 {
		t.Fatalf("%d receipts while the broker is away", n)
	}
	proxy.Heal()
	w.background(func(ctx context.Context) { j.repeat(ctx, "outbox", outboxEvery, j.outbox) })
	w.eventually("the receipt is gone", func() bool { return w.receipts() == 0 })
	if got := w.takeTickets(w.main()); len(got) != len(receipt.Tickets) {
		t.Errorf("published %v", got)
	}
}

// Only a receipt all of whose tickets are confirmed may go.
func TestOutboxKeepsAReceiptThatIsConfirmedInPart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	part, whole := w.insert(3, 0), w.insert(2, 0)
	s.refuse = func(m broker.Message) bool { return string(m.Body) == string(tickets(part.Tickets[1]).Encode()) }
	j := w.janitor(func(o *Options) { o.Broker = s })
	w.must(j.outbox(t.Context())) // for the other one is done
	if id := w.number("select min(id) from holdfast.outbox"); w.receipts() != 1 || int64(id) != part.ID {
		t.Fatalf("%d receipts stand, the first is %d; want only %d", w.receipts(), id, part.ID)
	}
	s.refuse = nil
	w.sooner()
	w.must(j.outbox(t.Context()))
	if n := w.receipts(); n != 0 {
		t.Errorf("%d receipts stand", n)
	}
	want := append(append([]message.Ticket{}, part.Tickets...), whole.Tickets...)
	w.sameTickets("published", w.takeTickets(w.main()), append(want, part.Tickets[0], part.Tickets[2]))
}

// More receipts than one batch, for several lanes, one of which has no queue yet and gets it.
func TestOutboxServesTheOtherLanes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []message.Ticket
	ghost := newTask()
	ghost.Lane = "ghost"
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, 0)
	w.must(err)
	for range outboxBatch + 5 {
		want = append(want, w.insert(1, 0).Tickets...)
	}
	j := w.janitor(nil)
	w.background(func(ctx context.Context) { j.repeat(ctx, "outbox", outboxEvery, j.outbox) })
	w.background(j.probeIsolated) // if its queue could not be declared in time, the new lane was isolated
	w.eventually("no receipt stands", func() bool { return w.receipts() == 0 })
	published := make(map[message.Ticket]bool) // a ticket whose confirm is late is published again
	for _, ticket := range w.takeTickets(w.main()) {
		published[ticket] = true
	}
	w.sameTickets("published", slices.Collect(maps.Keys(published)), want)
	if got := w.takeTickets(w.topology.Main("ghost")); len(got) == 0 {
		t.Error("nothing is published in the new lane")
	}
}

// A lane whose queue takes nothing keeps its receipts, however many, and holds up no other lane.
func TestAStuckLaneDoesNotHoldUpTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := newTask()
	stuck.Lane = "stuck"
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
	if n := w.number("select count(*) from holdfast.outbox where lane = 'stuck'"); n != outboxBatch {
		t.Errorf("%d receipts of the stuck lane", n)
	}
}
