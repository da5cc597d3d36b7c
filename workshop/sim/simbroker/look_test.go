package simbroker_test

import (
	"testing"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

func TestNotes(t *testing.T) {
	t.Parallel()
	test(t, "say what messages carry", func(w *world) {
		name := broker.DefaultPrefix + ".main.default"
		w.declare(name)
		w.net.trace = nil
		tickets := []message.Ticket{{Task: 3, Attempt: 1}, {Task: 4, Attempt: 2}}
		_, err := w.client.Publish(w.Context(), []broker.Message{
			{Queue: name, Body: message.Message{Tickets: tickets}.Encode()},
			{Queue: name, Body: message.Message{Sentinel: &message.Sentinel{Queue: "default", At: time.Unix(1, 0)}}.Encode()},
			{Queue: "q", Body: message.Message{Manifest: &message.Manifest{Worker: 7, Page: 2, Tickets: tickets}}.Encode()},
			{Queue: "q", Body: []byte("nonsense")},
		})
		w.must(err)
		sub := w.subscribe(w.client, name, 2)
		w.net.deliver()
		<-sub.Deliveries()
		<-sub.Deliveries()
		w.must(sub.Ack(1, broker.One))
		w.must(sub.Requeue(2))
		w.must(sub.Pause())
		w.must(sub.Resume(1))
		w.must(sub.Close())
		err = w.client.Declare(w.Context(), []broker.Object{queue("new", "")})
		w.must(err)
		w.same(w.net.trace, []string{
			"publish main.default 3/1 4/2; sentinel 1970-01-01T00:00:01Z, q worker 7 page 2: 3/1 4/2; malformed",
			"subscribe main.default",
			"deliver main.default 3/1 4/2",
			"deliver main.default sentinel 1970-01-01T00:00:01Z",
			"ack main.default 3/1 4/2",
			"requeue main.default: 1",
			"pause main.default",
			"deliver main.default sentinel 1970-01-01T00:00:01Z",
			"requeue main.default: 1",
			"resume main.default",
			"deliver main.default sentinel 1970-01-01T00:00:01Z",
			"close main.default",
			"declare new",
		})
	})
}

func TestLooking(t *testing.T) {
	t.Parallel()
	test(t, "at messages as they are", func(w *world) {
		ticket := message.Message{Tickets: []message.Ticket{{Task: 3, Attempt: 1}}}
		w.declare("a")
		w.send("a", string(ticket.Encode()), "x", "y")
		w.send("q", "z")
		sub := w.subscribe(w.other, "a", 2)
		w.must(sub.Requeue((<-sub.Deliveries()).Tag))
		w.must(sub.Pause())
		var list []*simbroker.Message
		for m := range w.Messages() {
			list = append(list, m)
		}
		if len(list) != 4 {
			t.Fatalf("%d messages", len(list))
		}
		z, x, first := list[0], list[1], list[2] // q was declared first
		if z.Queue != "q" || z.Err == nil || string(z.Body) != "z" || z.Redelivered() {
			t.Errorf("got %+v", z)
		}
		if string(x.Body) != "x" || x.Returns != 1 || !x.Redelivered() || x.Holder != nil {
			t.Errorf("got %+v", x)
		}
		if first.Err != nil || first.Content.Tickets[0] != ticket.Tickets[0] || first.Returns != 2 {
			t.Errorf("got %+v", first)
		}
		w.must(sub.Resume(2))
		if x.Holder != w.other {
			t.Error("an unsettled message has no holder")
		}
		w.same(w.Queues(), []string{"q", "a"})
		if n := w.Subscriptions(); n != 1 {
			t.Errorf("%d subscriptions", n)
		}
		for range w.Messages() {
			break
		}
	})
	test(t, "at the holder of an acknowledged message", func(w *world) {
		var holder *simbroker.Client
		w.Observe(simbroker.Observer{Left: func(m *simbroker.Message, _ simbroker.Reason) { holder = m.Holder }})
		w.send("q", "a")
		sub := w.subscribe(w.other, "q", 1)
		w.must(sub.Ack((<-sub.Deliveries()).Tag, broker.One))
		if holder != w.other {
			t.Error("the holder is not the client that acknowledged")
		}
	})
	test(t, "at the client that deletes", func(w *world) {
		var deleted []string
		w.Observe(simbroker.Observer{Destroyed: func(c *simbroker.Client, o broker.Object) {
			if c != w.client {
				t.Error("deleted by another client")
			}
			deleted = append(deleted, o.Name)
		}})
		w.DeleteQueue("q")
		w.must(w.client.Delete(w.Context(), []broker.Object{queue("q", ""), {Kind: broker.Exchange, Name: "x"}}))
		w.same(deleted, []string{"q", "x"})
	})
}
