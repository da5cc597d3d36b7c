package janitor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// The rescue duty checks each message in the rescue queue against the store. An unfinished task gets exactly one ticket
// or manifest. All other messages are dropped or quarantined.
func TestRescueRepairsTasks(t *testing.T) {
	t.Parallel()
	at := func(t message.Ticket, attempt int) message.Ticket { t.Attempt = attempt; return t }
	live := func(w *world, ticket message.Ticket) holdfast.WorkerID {
		worker := w.registerWorker()
		w.claim(worker, ticket)
		return worker
	}
	dead := func(w *world, ticket message.Ticket) holdfast.WorkerID {
		worker := live(w, ticket)
		w.kill(worker)
		return worker
	}
	type outcome struct {
		main, requeue []message.Ticket
		hold          []message.Message
		quarantine    []string
	}
	for name, test := range map[string]func(w *world, ticket message.Ticket) (body []byte, want outcome){
		"ready and ticketed": func(_ *world, t message.Ticket) ([]byte, outcome) {
			return tickets(t).Encode(), outcome{main: []message.Ticket{t}}
		},
		"ready, and the ticket is ahead of the row": func(_ *world, t message.Ticket) ([]byte, outcome) {
			return tickets(at(t, 7)).Encode(), outcome{main: []message.Ticket{t}}
		},
		"ready, and the ticket is older": func(w *world, t message.Ticket) ([]byte, outcome) {
			w.settle(w.claim(w.registerWorker(), t)[0], holdfast.Returned(holdfast.RetryAfter(0, errFault)))
			_, err := w.janitor(nil).dispatchDue(w.Context())
			w.must(err)
			w.takeTickets(w.main())
			return tickets(t).Encode(), outcome{}
		},
		"ready at a later time": func(w *world, t message.Ticket) ([]byte, outcome) {
			w.settle(w.claim(w.registerWorker(), t)[0], holdfast.Returned(holdfast.RetryAfter(time.Hour, errFault)))
			return tickets(at(t, 2), at(t, 3)).Encode(), outcome{}
		},
		"final": func(w *world, t message.Ticket) ([]byte, outcome) {
			w.settle(w.claim(w.registerWorker(), t)[0], holdfast.Returned(nil))
			return tickets(t, at(t, 5)).Encode(), outcome{}
		},
		"running under a live worker": func(w *world, t message.Ticket) ([]byte, outcome) {
			worker := live(w, t)
			return tickets(t).Encode(), outcome{hold: []message.Message{manifest(worker, 0, t)}}
		},
		"running under a live worker, and the ticket is ahead": func(w *world, t message.Ticket) ([]byte, outcome) {
			worker := live(w, t)
			return tickets(at(t, 3)).Encode(), outcome{hold: []message.Message{manifest(worker, 0, t)}}
		},
		"running under a dead worker": func(w *world, t message.Ticket) ([]byte, outcome) {
			dead(w, t)
			return tickets(t).Encode(), outcome{requeue: []message.Ticket{at(t, 2)}}
		},
		"a manifest of a live worker": func(w *world, t message.Ticket) ([]byte, outcome) {
			worker := live(w, t)
			return manifest(worker, 3, t).Encode(), outcome{hold: []message.Message{manifest(worker, 0, t)}}
		},
		"a manifest of a dead worker": func(w *world, t message.Ticket) ([]byte, outcome) {
			return manifest(dead(w, t), 3, t).Encode(), outcome{requeue: []message.Ticket{at(t, 2)}}
		},
		"an unknown task": func(_ *world, t message.Ticket) ([]byte, outcome) {
			missing := at(t, 2)
			missing.Task += 1000
			return tickets(missing, t).Encode(), outcome{main: []message.Ticket{t}, quarantine: []string{string(tickets(missing).Encode())}}
		},
		"a sentinel": func(*world, message.Ticket) ([]byte, outcome) {
			return message.Message{Sentinel: &message.Sentinel{Queue: queue, At: time.Now()}}.Encode(), outcome{}
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
			w.sameTickets("in the main queue", w.takeTickets(w.main()), want.main)
			w.sameTickets("in the requeue queue", w.takeTickets(w.requeue()), want.requeue)
			if got := w.take(w.hold()); !same(got, want.hold) {
				t.Errorf("the holding queue has %+v, want %+v", got, want.hold)
			}
			if got := w.takeRaw(w.topology.Quarantine()); !slices.Equal(got, want.quarantine) {
				t.Errorf("the quarantine has %q, want %q", got, want.quarantine)
			}
			if got := w.takeRaw(w.topology.Rescue()); got != nil {
				t.Errorf("the rescue queue still has %q", got)
			}
		})
	}
}

func same(a, b []message.Message) bool {
	return slices.EqualFunc(a, b, func(a, b message.Message) bool { return string(a.Encode()) == string(b.Encode()) })
}

// A message is acknowledged only after a manifest of its tasks is confirmed, even after failures.
func TestRescueAcksLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker, refuse: firstMessages(2)}
	var queries atomic.Int32
	j := w.janitor(func(o *Options) {
		o.Broker = s
		o.Store = &faultyStore{Store: w.store, positions: func() error {
			if queries.Add(1) <= 2 {
				return errFault
			}
			return nil
		}}
	})
	worker, ticket := w.registerWorker(), w.ticketed(1)[0]
	w.claim(worker, ticket)
	w.send(w.topology.Rescue(), tickets(ticket))
	stop := w.background(func(ctx context.Context) { j.receive(ctx, w.topology.Rescue(), rescuePrefetch, j.rescue) })
	w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
	stop()
	order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" })
	if !slices.Equal(order, []string{"refused", "refused", "stored", "acked"}) {
		t.Errorf("events are %v", order)
	}
	if got := w.take(w.hold()); !same(got, []message.Message{manifest(worker, 0, ticket)}) {
		t.Errorf("the holding queue has %+v", got)
	}
	if n := len(s.saw("received")); n != 1 {
		t.Errorf("the message was delivered %d times; each requeue counts against its delivery limit", n)
	}
}

// If a message is requeued too often, the broker moves it to the rescue queue. Its task still runs, once.
func TestATicketBeyondTheDeliveryLimitStillRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ticket := w.ticketed(1)[0]
	w.send(w.main(), tickets(ticket))
	requeuer := w.listen(w.main())
	rescue := w.listen(w.topology.Rescue())
	requeued := 0
	var dropped broker.Delivery
	for dropped.Tag == 0 {
		select {
		case d := <-requeuer.sub.Deliveries():
			requeued++
			w.must(requeuer.sub.Requeue(d.Tag))
		case dropped = <-rescue.sub.Deliveries():
		case <-time.After(slow.Patience()):
			t.Fatalf("timeout waiting for a message after %d requeues", requeued)
		}
	}
	if requeued < broker.DeliveryLimit {
		t.Errorf("dropped after %d requeues, want at least %d", requeued, broker.DeliveryLimit)
	}
	if got := w.decode(dropped.Body); len(got.Tickets) != 1 || got.Tickets[0] != ticket {
		t.Errorf("the rescue queue has %s, want the ticket", dropped.Body)
	}
	w.must(requeuer.sub.Close())
	w.must(rescue.sub.Close())

	var executions atomic.Int32
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
		executions.Add(1)
		return nil
	}))
	worker, err := consumer.New(consumer.Options{Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Lease: slow.Times(5 * time.Second)})
	w.must(err)
	w.background(func(ctx context.Context) {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.run(w.janitor(nil))
	w.eventually("the task is done", func() bool { return w.task(ticket.Task).State == holdfast.Done })
	if task := w.task(ticket.Task); task.Attempt != 1 || executions.Load() != 1 {
		t.Errorf("%d executions, want 1: %+v", executions.Load(), task)
	}
}

// A quarantined message keeps its body, and has headers with the reason and the name of the janitor.
func TestQuarantinedMessagesHaveAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker = s })
	body, err := json.Marshal(map[string]any{"v": 1, "t": "surprise"})
	w.must(err)
	w.sendRaw(w.topology.Rescue(), string(body))
	stop := w.background(func(ctx context.Context) { j.receive(ctx, w.topology.Rescue(), rescuePrefetch, j.rescue) })
	w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
	stop()
	e := s.saw("stored")[0]
	if e.queue != w.topology.Quarantine() || e.body != string(body) || e.headers["holdfast-found-by"] != "test janitor" || !strings.Contains(e.headers["holdfast-reason"], "cannot unmarshal string") {
		t.Errorf("got %+v", e)
	}
	if n := w.observed.Of(holdfast.ObservedQuarantined); n != 1 {
		t.Errorf("observed %d quarantined messages, want 1", n)
	}
}
