package janitor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
)

// Every message that lands in the rescue queue is explained by the store: what still needs a token gets
// exactly one, the rest is dropped or put aside.
func TestRescueMakesTheStoresTruthOfAnything(t *testing.T) {
	t.Parallel()
	at := func(t message.Ticket, attempt int) message.Ticket { t.Attempt = attempt; return t }
	live := func(w *world, ticket message.Ticket) holdfast.RunID {
		run := w.openRun()
		w.claim(run, ticket)
		return run
	}
	gone := func(w *world, ticket message.Ticket) holdfast.RunID {
		run := live(w, ticket)
		w.kill(run)
		return run
	}
	type outcome struct {
		main, again []message.Ticket
		hold        []message.Message
		quarantine  []string
	}
	for name, test := range map[string]func(w *world, ticket message.Ticket) (body []byte, want outcome){
		"ready and ticketed": func(_ *world, t message.Ticket) ([]byte, outcome) {
			return tickets(t).Encode(), outcome{main: []message.Ticket{t}}
		},
		"ready, and the ticket is ahead of the row": func(_ *world, t message.Ticket) ([]byte, outcome) {
			return tickets(at(t, 7)).Encode(), outcome{main: []message.Ticket{t}}
		},
		"ready, and the ticket is older": func(w *world, t message.Ticket) ([]byte, outcome) {
			w.settle(w.claim(w.openRun(), t)[0], holdfast.Returned(holdfast.RetryAfter(0, errFault)))
			_, err := w.janitor(nil).dispatchDue(w.Context())
			w.must(err)
			w.takeTickets(w.main())
			return tickets(t).Encode(), outcome{}
		},
		"waits for a later time": func(w *world, t message.Ticket) ([]byte, outcome) {
			w.settle(w.claim(w.openRun(), t)[0], holdfast.Returned(holdfast.RetryAfter(time.Hour, errFault)))
			return tickets(at(t, 2), at(t, 3)).Encode(), outcome{}
		},
		"final": func(w *world, t message.Ticket) ([]byte, outcome) {
			w.settle(w.claim(w.openRun(), t)[0], holdfast.Returned(nil))
			return tickets(t, at(t, 5)).Encode(), outcome{}
		},
		"running under a live run": func(w *world, t message.Ticket) ([]byte, outcome) {
			run := live(w, t)
			return tickets(t).Encode(), outcome{hold: []message.Message{manifest(run, 0, t)}}
		},
		"running under a live run, and the ticket is ahead": func(w *world, t message.Ticket) ([]byte, outcome) {
			run := live(w, t)
			return tickets(at(t, 3)).Encode(), outcome{hold: []message.Message{manifest(run, 0, t)}}
		},
		"running under a run that is gone": func(w *world, t message.Ticket) ([]byte, outcome) {
			gone(w, t)
			return tickets(t).Encode(), outcome{again: []message.Ticket{at(t, 2)}}
		},
		"a manifest of a live run": func(w *world, t message.Ticket) ([]byte, outcome) {
			run := live(w, t)
			return manifest(run, 3, t).Encode(), outcome{hold: []message.Message{manifest(run, 0, t)}}
		},
		"a manifest of a run that is gone": func(w *world, t message.Ticket) ([]byte, outcome) {
			return manifest(gone(w, t), 3, t).Encode(), outcome{again: []message.Ticket{at(t, 2)}}
		},
		"no such task": func(_ *world, t message.Ticket) ([]byte, outcome) {
			missing := at(t, 2)
			missing.Task += 1000
			return tickets(missing, t).Encode(), outcome{main: []message.Ticket{t}, quarantine: []string{string(tickets(missing).Encode())}}
		},
		"a sentinel": func(*world, message.Ticket) ([]byte, outcome) {
			return message.Message{Sentinel: &message.Sentinel{Lane: lane, At: time.Now()}}.Encode(), outcome{}
		},
		"garbage": func(*world, message.Ticket) ([]byte, outcome) {
			return []byte("garbage"), outcome{quarantine: []string{"garbage"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := &spy{Broker: w.broker}
			j := w.janitor(func(o *Options) { o.Broker = s })
			body, want := test(w, w.ticketed(1)[0])
			w.sendRaw(w.topology.Rescue(), string(body))
			stop := w.background(func(ctx context.Context) { j.receive(ctx, w.topology.Rescue(), rescuePrefetch, j.rescue) })
			w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
			stop()
			_, err := j.dispatchDue(t.Context())
			w.must(err)
			w.sameTickets("in the lane", w.takeTickets(w.main()), want.main)
			w.sameTickets("ahead of it", w.takeTickets(w.again()), want.again)
			if got := w.take(w.hold()); !same(got, want.hold) {
				t.Errorf("held are %+v, want %+v", got, want.hold)
			}
			if got := w.takeRaw(w.topology.Quarantine()); !slices.Equal(got, want.quarantine) {
				t.Errorf("put aside are %q, want %q", got, want.quarantine)
			}
			if got := w.takeRaw(w.topology.Rescue()); got != nil {
				t.Errorf("still to rescue are %q", got)
			}
		})
	}
}

func same(a, b []message.Message) bool {
	return slices.EqualFunc(a, b, func(a, b message.Message) bool { return string(a.Encode()) == string(b.Encode()) })
}

// A message is acked only after its tasks have another token, whatever failed before.
func TestRescueAcksLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker, refuse: firstOnes(2)}
	var asked atomic.Int32
	j := w.janitor(func(o *Options) {
		o.Broker = s
		o.Store = &faulty{Store: w.store, positions: func() error {
			if asked.Add(1) <= 2 {
				return errFault
			}
			return nil
		}}
	})
	run, ticket := w.openRun(), w.ticketed(1)[0]
	w.claim(run, ticket)
	w.send(w.topology.Rescue(), tickets(ticket))
	stop := w.background(func(ctx context.Context) { j.receive(ctx, w.topology.Rescue(), rescuePrefetch, j.rescue) })
	w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
	stop()
	order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" })
	if !slices.Equal(order, []string{"refused", "refused", "stored", "acked"}) {
		t.Errorf("it was %v", order)
	}
	if got := w.take(w.hold()); !same(got, []message.Message{manifest(run, 0, ticket)}) {
		t.Errorf("held are %+v", got)
	}
	if n := len(s.saw("received")); n != 1 {
		t.Errorf("the message was delivered %d times; each return counts against its limit", n)
	}
}

// The broker drops a message that was given back too often, but into the rescue queue; its
// task still runs, once.
func TestATicketBeyondTheDeliveryLimitStillRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ticket := w.ticketed(1)[0]
	w.send(w.main(), tickets(ticket))
	wild := w.listen(w.main())
	rescue := w.listen(w.topology.Rescue())
	returned := 0
	var dropped broker.Delivery
	for dropped.Tag == 0 {
		select {
		case d := <-wild.sub.Deliveries():
			returned++
			w.must(wild.sub.Requeue(d.Tag))
		case dropped = <-rescue.sub.Deliveries():
		case <-time.After(patience):
			t.Fatalf("nothing comes after %d returns", returned)
		}
	}
	if returned < broker.DeliveryLimit {
		t.Errorf("dropped after %d returns, the limit is %d", returned, broker.DeliveryLimit)
	}
	if got := w.decode(dropped.Body); len(got.Tickets) != 1 || got.Tickets[0] != ticket {
		t.Errorf("rescued is %s", dropped.Body)
	}
	w.must(wild.sub.Close())
	w.must(rescue.sub.Close())

	var runs atomic.Int32
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
		runs.Add(1)
		return nil
	}))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers})
	w.must(err)
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.run(w.janitor(nil))
	w.eventually("the task is done", func() bool { return w.task(ticket.Task).State == holdfast.Done })
	if task := w.task(ticket.Task); task.Attempt != 1 || runs.Load() != 1 {
		t.Errorf("%d executions: %+v", runs.Load(), task)
	}
}

// The quarantine keeps the message as it was, with the reason and who found it.
func TestQuarantineSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker = s })
	body, err := json.Marshal(map[string]any{"v": 1, "surprise": true})
	w.must(err)
	w.sendRaw(w.topology.Rescue(), string(body))
	stop := w.background(func(ctx context.Context) { j.receive(ctx, w.topology.Rescue(), rescuePrefetch, j.rescue) })
	w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
	stop()
	e := s.saw("stored")[0]
	if e.queue != w.topology.Quarantine() || e.body != string(body) || e.headers["holdfast-found-by"] != "test janitor" || !strings.Contains(e.headers["holdfast-reason"], "surprise") {
		t.Errorf("got %+v", e)
	}
	if n := w.seen.of(holdfast.ObservedQuarantined); n != 1 {
		t.Errorf("%d observed", n)
	}
}
