package janitor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	slowtests "github.com/holdfastq/holdfast/workshop/slow"
)

// If tickets vanish without a fault, their tasks get new tickets, and no task runs twice.
func TestStolenTicketsAreReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.ticketed(20)
	for _, ticket := range list {
		w.send(w.main(), tickets(ticket))
	}
	thief := w.listen(w.main())
	for range 7 {
		w.must(thief.sub.Ack(thief.next().Tag, broker.One))
	}
	w.must(thief.sub.Close())
	var executions atomic.Int32
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(context.Context, holdfast.Task) error { executions.Add(1); return nil }))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Lease: slowtests.Times(5 * time.Second)})
	w.must(err)
	w.run(w.janitor(func(o *Options) { o.SentinelInterval, o.SentinelSlack = 300*time.Millisecond, 200*time.Millisecond }))
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.eventually("all tasks are done", func() bool { return w.number("select count(*) from holdfast.tasks where state = 'done'") == len(list) })
	if n := executions.Load(); int(n) != len(list) {
		t.Errorf("%d executions of %d tasks", n, len(list))
	}
	w.eventually("the janitor has reported the seven stolen tickets", func() bool { return w.observed.Of(holdfast.ObservedRepaired) >= 7 })
}

// proveLoss sets the sentinels in the store so that the next search treats all tickets older than a minute as lost.
func (w *world) proveLoss() {
	w.Helper()
	w.sql(`update holdfast.queues set held_through = now() - interval '1 minute', held_at = now() - interval '1 minute',
		drained_through = now(), drained_at = now()`)
}

// People also see lost tickets that the search replaces before a check finds them.
func TestAReplacedTicketIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ticketed(3)
	w.sql("update holdfast.tasks set ticketed_at = ticketed_at - interval '1 hour'")
	w.proveLoss()
	w.must(w.janitor(nil).lostTickets(t.Context()))
	results, err := w.store.VerifyResults(t.Context())
	w.must(err)
	if len(results) != 1 || len(results[0].Counts) != 1 || results[0].Counts[0].Code != store.LostTicket || results[0].Counts[0].Tasks != 3 {
		t.Errorf("shown: %+v", results)
	}
}

// Beside 5 million finished tasks, a main queue with 100,000 tickets is purged. All tasks run within minutes.
// Afterwards, a search that finds no lost ticket is cheap.
func TestAPurgedQueueIsHealedInALargeTable(t *testing.T) {
	slowtests.Skip(t)
	const finished, waiting, limit = 5_000_000, 100_000, 3 * time.Minute
	w := newWorld(t)
	w.sql(`insert into holdfast.tasks (type, queue, max_attempts, payload, state, finished_at)
		select $1, $2, 10, '{"user": 12345, "url": "https://example.com/hook"}', 'done', now() from generate_series(1, $3::int)`, kind, queue, finished)
	w.proveLoss()
	first := time.Now()
	_, _, err := w.store.UnticketLost(t.Context(), 0)
	w.must(err)
	t.Logf("the first search took %s", time.Since(first))
	w.sql(`insert into holdfast.tasks (type, queue, max_attempts, ticketed_at)
		select $1, $2, 10, now() from generate_series(1, $3::int)`, kind, queue, waiting)
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Lease: slowtests.Times(5 * time.Second)})
	w.must(err)
	began := time.Now()
	w.run(w.janitor(nil))
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for open := waiting; open > 0; {
		if took := time.Since(began); took > slowtests.Times(limit) {
			t.Fatalf("%d tasks have not run after %s", open, took)
		}
		time.Sleep(time.Second)
		open = w.number("select count(*) from holdfast.tasks where id > $1 and state <> 'done'", finished)
	}
	t.Logf("%d lost tickets beside %d finished tasks: all ran after %s", waiting, finished, time.Since(began))
	for n := -1; n != 0; { // until the store's search is complete
		w.proveLoss()
		n, _, err = w.store.UnticketLost(t.Context(), 0)
		w.must(err)
	}
	const searches = 10
	var total time.Duration
	for range searches {
		w.proveLoss()
		before := time.Now()
		_, _, err := w.store.UnticketLost(t.Context(), 0)
		w.must(err)
		total += time.Since(before)
	}
	each := total / searches
	t.Logf("a search that finds nothing took %s", each)
	if most := slowtests.Times(lostEvery * 10 * time.Second / 100); each > most { // without the factor, 1 % of a core
		t.Errorf("a search that finds nothing takes %s, more than %s", each, most)
	}
}

// A worker without capacity for all tickets of a message passes the others on to the requeue queue. When a sentinel of
// the main queue arrives, these tickets are not treated as lost.
func TestTicketsThatArePassedOnAreNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.ticketed(40)
	w.sql("update holdfast.tasks set ticketed_at = ticketed_at - interval '5 seconds'")
	w.send(w.main(), tickets(list...))
	release := make(chan struct{})
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(context.Context, holdfast.Task) error { <-release; return nil }))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Concurrency: 1, Lease: slowtests.Times(5 * time.Second)})
	w.must(err)
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer close(release)
	w.eventually("the worker has passed on most tickets", func() bool { return w.number("select count(*) from holdfast.tasks where requeued") > len(list)/2 })
	j := w.janitor(func(o *Options) { o.SentinelInterval, o.SentinelSlack = time.Millisecond, 2*time.Second })
	w.must(j.sentinels(t.Context()))
	w.eventually("the sentinel arrives", func() bool { return w.number("select count(*) from holdfast.queues where drained_at is not null") == 1 })
	w.must(j.lostTickets(t.Context()))
	w.must(j.sentinels(t.Context()))
	w.sql("update holdfast.queues set held_at = held_at - interval '3 seconds'")
	w.eventually("a second sentinel arrives", func() bool {
		return w.number("select count(*) from holdfast.queues where drained_through > held_at + interval '2 seconds'") == 1
	})
	w.must(j.lostTickets(t.Context()))
	if n := w.observed.Of(holdfast.ObservedRepaired); n != 0 {
		t.Errorf("%d tickets count as lost, want none", n)
	}
}

// A sentinel proves the loss only of tickets that were published before it. Tickets behind it may wait in a long
// backlog.
func TestTicketsInABacklogAreNotReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker, o.SentinelInterval, o.SentinelSlack = s, time.Millisecond, time.Nanosecond })
	lost, before := w.ticketed(1)[0], w.ticketed(3)
	for _, ticket := range before {
		w.send(w.main(), tickets(ticket))
	}
	w.must(j.lostTickets(t.Context()))
	w.must(j.sentinels(t.Context()))
	behind := w.ticketed(5)
	for _, ticket := range behind {
		w.send(w.main(), tickets(ticket))
	}
	w.must(j.lostTickets(t.Context()))
	if n := w.observed.Of(holdfast.ObservedRepaired); n != 0 {
		t.Fatalf("%d tasks got new tickets while the sentinel waits in the main queue", n)
	}

	main := w.listen(w.main())
	worker := w.registerWorker()
	for range before {
		w.claim(worker, main.ticket())
	}
	d := main.next()
	sentinel := w.decode(d.Body).Sentinel
	if sentinel == nil {
		t.Fatalf("received %s, want the sentinel", d.Body)
	}
	w.must(w.store.Drained(t.Context(), *sentinel))
	w.must(main.sub.Close()) // the sentinel and the rest return to the main queue
	w.must(j.lostTickets(t.Context()))
	if !w.position(lost).Ticketed {
		t.Error("a ticket was replaced after the arrival of only one sentinel")
	}
	now, err := w.store.Now(t.Context())
	w.must(err)
	w.must(w.store.Drained(t.Context(), message.Sentinel{Queue: queue, At: now}))

	w.must(j.lostTickets(t.Context()))
	if w.position(lost).Ticketed {
		t.Error("the lost ticket was not replaced")
	}
	for _, ticket := range behind {
		if !w.position(ticket).Ticketed {
			t.Errorf("%v waits in the main queue, but its task is due for another ticket", ticket)
		}
	}
	_, err = j.dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the queue", w.takeTickets(w.main()), append(behind, lost))
}

// A sentinel proves a loss only after the slack, and never for a ticket that is only a little older. A worker may have
// received such a ticket without having claimed its task.
func TestTheSlackSparesYoungTickets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor(func(o *Options) { o.SentinelInterval, o.SentinelSlack = time.Millisecond, time.Minute })
	old, young := w.ticketed(1)[0], w.ticketed(1)[0]
	w.sql("update holdfast.tasks set ticketed_at = ticketed_at - interval '2 minutes' where id = $1", int64(old.Task))
	sentinelArrives := func() {
		t.Helper()
		w.must(j.sentinels(t.Context()))
		for _, m := range w.take(w.main()) {
			w.must(w.store.Drained(t.Context(), *m.Sentinel))
		}
	}
	sentinelArrives()
	w.must(j.lostTickets(t.Context()))
	if !w.position(old).Ticketed {
		t.Error("a ticket was replaced before the slack")
	}
	w.sql(`update holdfast.queues set drained_at = drained_at - interval '2 minutes', held_at = held_at - interval '2 minutes',
		sentinel_sent_at = sentinel_sent_at - interval '2 minutes'`)
	w.sql("update holdfast.turns set taken_at = taken_at - interval '2 minutes'")
	sentinelArrives()
	w.must(j.lostTickets(t.Context()))
	if w.position(old).Ticketed || !w.position(young).Ticketed {
		t.Errorf("ticketed: old %t, young %t; want only young", w.position(old).Ticketed, w.position(young).Ticketed)
	}
}

// A main queue without consumers keeps one sentinel, not one for each interval. Missing AMQP queues are not an error.
func TestSentinelsDoNotPileUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const interval = time.Minute
	j := w.janitor(func(o *Options) { o.SentinelInterval = interval })
	ghost := newTask()
	ghost.Queue = "ghost"
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, time.Hour)
	w.must(err)
	older := func(age time.Duration) {
		w.sql("update holdfast.queues set sentinel_sent_at = sentinel_sent_at - $1 * interval '1 millisecond', drained_through = drained_through - $1 * interval '1 millisecond'", age.Milliseconds())
	}
	for range 5 {
		w.must(j.sentinels(t.Context()))
		older(interval / 3)
	}
	got := w.take(w.main())
	if len(got) != 1 || got[0].Sentinel == nil || got[0].Sentinel.Queue != queue {
		t.Fatalf("the main queue has %+v, want one sentinel", got)
	}
	w.must(j.sentinels(t.Context()))
	if got := w.take(w.main()); got != nil {
		t.Errorf("before the first sentinel has arrived or counts as lost: got %+v", got)
	}
	w.must(w.store.Drained(t.Context(), *got[0].Sentinel))
	older(sentinelLost * interval)
	w.must(j.sentinels(t.Context()))
	if got := w.take(w.main()); len(got) != 1 {
		t.Errorf("after the first sentinel was lost: got %+v", got)
	}
}

// The time of a sentinel is before its publish. Otherwise it would prove the loss of tickets that are published right
// after it.
func TestASentinelIsOlderThanItsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	var behind message.Ticket
	s.refuse = func(m broker.Message) bool {
		if m.Queue == w.main() && behind.Task == 0 {
			behind = w.ticketed(1)[0] // a ticket that may be published before or after the sentinel
		}
		return false
	}
	j := w.janitor(func(o *Options) { o.Broker, o.SentinelSlack = s, time.Nanosecond })
	w.must(j.sentinels(t.Context()))
	for _, m := range w.take(w.main()) {
		w.must(w.store.Drained(t.Context(), *m.Sentinel))
	}
	w.must(w.store.KeepSentinels(t.Context(), time.Nanosecond))
	now, err := w.store.Now(t.Context())
	w.must(err)
	w.must(w.store.Drained(t.Context(), message.Sentinel{Queue: queue, At: now}))
	w.must(j.lostTickets(t.Context()))
	if !w.position(behind).Ticketed {
		t.Error("a ticket younger than the sentinel counts as lost")
	}
}

// A task whose ticket has waited long in the requeue queue gets another ticket, but the old one is not reported as
// lost.
func TestOldTicketsInTheRequeueQueueAreNotReportedAsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.ticketed(3)
	w.sql("update holdfast.tasks set requeued = true, ticketed_at = ticketed_at - interval '1 hour'")
	w.send(w.requeue(), tickets(list...))
	w.proveLoss()
	w.run(w.janitor(nil))
	w.eventually("all tasks have new tickets", func() bool {
		return w.number("select count(*) from holdfast.tasks where ticketed_at > now() - interval '1 minute'") == 3
	})
	if n := w.observed.Of(holdfast.ObservedRepaired); n != 0 {
		t.Errorf("%d tickets are reported as lost", n)
	}
}
