package janitor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	slowtests "github.com/holdfastq/holdfast/internal/slow"
)

// Whoever takes tickets away without a trace: their tasks get new ones, by themselves, and no task runs twice.
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
	var runs atomic.Int32
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(context.Context, holdfast.Task) error { runs.Add(1); return nil }))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers})
	w.must(err)
	w.run(w.janitor(func(o *Options) { o.SentinelInterval, o.SentinelSlack = 300*time.Millisecond, 200*time.Millisecond }))
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.eventually("all tasks are done", func() bool { return w.number("select count(*) from holdfast.tasks where state = 'done'") == len(list) })
	if n := runs.Load(); int(n) != len(list) {
		t.Errorf("%d executions of %d tasks", n, len(list))
	}
	w.eventually("the janitor reports the seven that were stolen", func() bool { return w.seen.of(holdfast.ObservedRepaired) >= 7 })
}

// prove makes a sentinel of a minute ago a proof for the next look.
func (w *world) prove() {
	w.Helper()
	w.sql(`update holdfast.lanes set held_through = now() - interval '1 minute', held_at = now() - interval '1 minute',
		drained_through = now(), drained_at = now()`)
}

// An idle look has read a table of 5 million finished tasks. Then a queue of 100,000 tickets is purged: all run within minutes. A look
// that finds nothing takes next to no time afterwards.
func TestAPurgedQueueIsHealedInALargeTable(t *testing.T) {
	slowtests.Skip(t)
	const finished, waiting, limit = 5_000_000, 100_000, 3 * time.Minute
	w := newWorld(t)
	w.sql(`insert into holdfast.tasks (type, lane, max_attempts, payload, state, finished_at)
		select $1, $2, 10, '{"user": 12345, "url": "https://example.com/hook"}', 'done', now() from generate_series(1, $3::int)`, kind, lane, finished)
	w.prove()
	first := time.Now()
	_, _, err := w.store.UnticketLost(t.Context(), 0)
	w.must(err)
	t.Logf("the first look took %s", time.Since(first))
	w.sql(`insert into holdfast.tasks (type, lane, max_attempts, ticketed_at)
		select $1, $2, 10, now() from generate_series(1, $3::int)`, kind, lane, waiting)
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers})
	w.must(err)
	began := time.Now()
	w.run(w.janitor(nil))
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for open := waiting; open > 0; {
		if took := time.Since(began); took > limit {
			t.Fatalf("%d tasks have not run after %s", open, took)
		}
		time.Sleep(time.Second)
		open = w.number("select count(*) from holdfast.tasks where id > $1 and state <> 'done'", finished)
	}
	t.Logf("%d lost tickets beside %d finished tasks: all ran after %s", waiting, finished, time.Since(began))
	for n := -1; n != 0; { // until the list is up to date
		w.prove()
		n, _, err = w.store.UnticketLost(t.Context(), 0)
		w.must(err)
	}
	const looks = 10
	var total time.Duration
	for range looks {
		w.prove()
		before := time.Now()
		_, _, err := w.store.UnticketLost(t.Context(), 0)
		w.must(err)
		total += time.Since(before)
	}
	each := total / looks
	t.Logf("a look that finds nothing took %s", each)
	if most := lostEvery * 10 * time.Second / 100; each > most {
		t.Errorf("a look that finds nothing takes %s, more than %s: that is more than 1 %% of a core", each, most)
	}
}

// A worker that has room for a few tickets of a message passes the others on to the lane's other queue. They are not lost when a
// sentinel of the first queue comes out.
func TestTicketsThatArePassedOnAreNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.ticketed(40)
	w.sql("update holdfast.tasks set ticketed_at = ticketed_at - interval '5 seconds'")
	w.send(w.main(), tickets(list...))
	release := make(chan struct{})
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(context.Context, holdfast.Task) error { <-release; return nil }))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Concurrency: 1})
	w.must(err)
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer close(release)
	w.eventually("the worker has passed on most tickets", func() bool { return w.number("select count(*) from holdfast.tasks where again") > len(list)/2 })
	j := w.janitor(func(o *Options) { o.SentinelInterval, o.SentinelSlack = time.Millisecond, 2*time.Second })
	w.must(j.sentinels(t.Context()))
	w.eventually("the sentinel comes out", func() bool { return w.number("select count(*) from holdfast.lanes where drained_at is not null") == 1 })
	w.must(j.lostTickets(t.Context()))
	w.sql("update holdfast.lanes set held_at = held_at - interval '3 seconds'")
	w.must(j.sentinels(t.Context()))
	w.eventually("another one comes out", func() bool {
		return w.number("select count(*) from holdfast.lanes where drained_through > held_at + interval '2 seconds'") == 1
	})
	w.must(j.lostTickets(t.Context()))
	if n := w.seen.of(holdfast.ObservedRepaired); n != 0 {
		t.Errorf("%d tickets count as lost, and none is", n)
	}
}

// A sentinel proves something about the tickets before it only. Those that wait behind it are in a long
// backlog, however old they are.
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
	if n := w.seen.of(holdfast.ObservedRepaired); n != 0 {
		t.Fatalf("%d tasks got new tickets while the sentinel waits in the lane", n)
	}

	main := w.listen(w.main())
	run := w.openRun()
	for range before {
		w.claim(run, main.ticket())
	}
	d := main.next()
	sentinel := w.decode(d.Body).Sentinel
	if sentinel == nil {
		t.Fatalf("received %s, want the sentinel", d.Body)
	}
	w.must(w.store.Drained(t.Context(), *sentinel))
	w.must(main.sub.Close()) // the sentinel and the rest go back
	w.must(j.lostTickets(t.Context()))
	if !w.position(lost).Ticketed {
		t.Error("a ticket is replaced although only one sentinel has come out")
	}
	now, err := w.store.Now(t.Context())
	w.must(err)
	w.must(w.store.Drained(t.Context(), message.Sentinel{Lane: lane, At: now}))

	w.must(j.lostTickets(t.Context()))
	if w.position(lost).Ticketed {
		t.Error("the lost ticket is not replaced")
	}
	for _, ticket := range behind {
		if !w.position(ticket).Ticketed {
			t.Errorf("%v waits in the lane and got another ticket", ticket)
		}
	}
	_, err = j.dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the lane", w.takeTickets(w.main()), append(behind, lost))
}

// A proof is used only after the slack, and spares tickets that are hardly older than the sentinel: what was
// taken from the lane a moment ago is perhaps not claimed yet.
func TestTheSlackSparesYoungTickets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor(func(o *Options) { o.SentinelInterval, o.SentinelSlack = time.Millisecond, time.Minute })
	old, young := w.ticketed(1)[0], w.ticketed(1)[0]
	w.sql("update holdfast.tasks set ticketed_at = ticketed_at - interval '2 minutes' where id = $1", int64(old.Task))
	comesOut := func() {
		t.Helper()
		w.must(j.sentinels(t.Context()))
		for _, m := range w.take(w.main()) {
			w.must(w.store.Drained(t.Context(), *m.Sentinel))
		}
	}
	comesOut()
	w.must(j.lostTickets(t.Context()))
	if !w.position(old).Ticketed {
		t.Error("a ticket was replaced as soon as the sentinel came out")
	}
	w.sql(`update holdfast.lanes set drained_at = drained_at - interval '2 minutes', held_at = held_at - interval '2 minutes',
		sentinel_sent_at = sentinel_sent_at - interval '2 minutes'`)
	w.sql("update holdfast.turns set taken_at = taken_at - interval '2 minutes'")
	comesOut()
	w.must(j.lostTickets(t.Context()))
	if w.position(old).Ticketed || !w.position(young).Ticketed {
		t.Errorf("old is ticketed: %t, young is ticketed: %t", w.position(old).Ticketed, w.position(young).Ticketed)
	}
}

// A lane that nobody reads keeps one sentinel, not more each interval; a lane without a queue is no failure.
func TestSentinelsDoNotPileUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const interval = time.Minute
	j := w.janitor(func(o *Options) { o.SentinelInterval = interval })
	ghost := newTask()
	ghost.Lane = "ghost"
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, time.Hour)
	w.must(err)
	older := func(age time.Duration) {
		w.sql("update holdfast.lanes set sentinel_sent_at = sentinel_sent_at - $1 * interval '1 millisecond', drained_through = drained_through - $1 * interval '1 millisecond'", age.Milliseconds())
	}
	for range 5 {
		w.must(j.sentinels(t.Context()))
		older(interval)
	}
	got := w.take(w.main())
	if len(got) != 1 || got[0].Sentinel == nil || got[0].Sentinel.Lane != lane {
		t.Fatalf("in the lane are %+v, want one sentinel", got)
	}
	w.must(j.sentinels(t.Context()))
	if got := w.take(w.main()); got != nil {
		t.Errorf("before the first has arrived, or counts as lost: %+v", got)
	}
	w.must(w.store.Drained(t.Context(), *got[0].Sentinel))
	older(sentinelLost * interval)
	w.must(j.sentinels(t.Context()))
	if got := w.take(w.main()); len(got) != 1 {
		t.Errorf("after the first was lost: %+v", got)
	}
}

// A sentinel is dated before it is sent, or it would prove lost what is sent right behind it.
func TestASentinelIsOlderThanItsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	var behind message.Ticket
	s.refuse = func(m broker.Message) bool {
		if m.Queue == w.main() && behind.Task == 0 {
			behind = w.ticketed(1)[0] // its ticket could be published now, before the sentinel or after it
		}
		return false
	}
	j := w.janitor(func(o *Options) { o.Broker, o.SentinelSlack = s, time.Nanosecond })
	w.must(j.sentinels(t.Context()))
	for _, m := range w.take(w.main()) {
		w.must(w.store.Drained(t.Context(), *m.Sentinel))
	}
	_, _, err := w.store.UnticketLost(t.Context(), time.Nanosecond) // holds that one
	w.must(err)
	now, err := w.store.Now(t.Context())
	w.must(err)
	w.must(w.store.Drained(t.Context(), message.Sentinel{Lane: lane, At: now}))
	w.must(j.lostTickets(t.Context()))
	if !w.position(behind).Ticketed {
		t.Error("a ticket younger than the sentinel counts as lost")
	}
}

// A ticket rests in the requeue queue for long. Its task gets another one, and nothing says that one was lost.
func TestTicketsThatRestInTheRequeueQueueRaiseNoAlarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.ticketed(3)
	w.sql("update holdfast.tasks set again = true, ticketed_at = ticketed_at - interval '1 hour'")
	w.send(w.again(), tickets(list...))
	w.prove()
	w.run(w.janitor(nil))
	w.eventually("all have new tickets", func() bool {
		return w.number("select count(*) from holdfast.tasks where ticketed_at > now() - interval '1 minute'") == 3
	})
	if n := w.seen.of(holdfast.ObservedRepaired); n != 0 {
		t.Errorf("%d tickets are reported as lost", n)
	}
}
