package simbroker_test

import (
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

func TestConsumersTakeTurns(t *testing.T) {
	t.Parallel()
	test(t, "those with credit", func(w *world) {
		one, two, three := w.subscribe(w.other, "q", 1), w.subscribe(w.other, "q", 9), w.subscribe(w.other, "q", 2)
		w.send("q", "a", "b", "c", "d", "e", "f")
		tags := w.expect(one, "a")
		w.expect(two, "b", "d", "f")
		w.expect(three, "c", "e")
		w.must(one.Ack(tags[0], broker.One))
		w.send("q", "g", "h", "i")
		w.expect(two, "g", "i")
		w.expect(one, "h")
		w.expect(three)
	})
}

func TestTheDeliveryLimit(t *testing.T) {
	t.Parallel()
	setUp := func(w *world, objects ...broker.Object) {
		err := w.other.Declare(w.Context(), objects)
		w.must(err)
	}
	test(t, "moves a message to the target as a new one", func(w *world) {
		setUp(w, queue("dead", ""), queue("limited", "dead"))
		w.send("dead", "earlier")
		w.send("limited", "a", "b")
		sub := w.subscribe(w.client, "limited", 1)
		w.net.deliver()
		w.must(sub.Requeue(w.expect(sub, "a")...))
		w.net.deliver()
		w.must(sub.Pause()) // counts as a return
		w.net.deliver()
		w.must(sub.Resume(1))
		w.net.deliver()
		w.expect(sub, "a*")
		w.client.Disconnect()
		w.same(w.left, []string{"limited a dead-lettered"})
		w.holds("dead earlier 0", "dead a 0", "limited b 0")
		w.expect(w.subscribe(w.other, "dead", 2), "earlier", "a")
	})
	test(t, "does not deliver a dead letter to the connection whose end caused it", func(w *world) {
		setUp(w, queue("dead", ""), queue("limited", "dead"))
		w.send("limited", "a")
		sub := w.subscribe(w.other, "limited", 1)
		w.subscribe(w.other, "dead", 1)
		w.must(sub.Requeue(w.expect(sub, "a")...))
		w.must(sub.Requeue(w.expect(sub, "a*")...))
		w.other.Disconnect()
		w.holds("dead a 0")
	})
	test(t, "keeps a message until there is a target", func(w *world) {
		setUp(w, queue("limited", "dead"))
		w.send("limited", "a", "b")
		sub := w.subscribe(w.other, "limited", 1)
		w.must(sub.Requeue(w.expect(sub, "a")...))
		w.must(sub.Requeue(w.expect(sub, "a*")...))
		w.must(sub.Requeue(w.expect(sub, "a*")...))
		w.expect(sub, "b")
		w.holds("limited a 3 dead", "limited b 0+")
		setUp(w, queue("dead", ""))
		w.holds("limited b 0+", "dead a 0")
		w.same(w.left, []string{"limited a dead-lettered"})
	})
	for name, args := range map[string]map[string]any{
		"drops a message without a target":                      {"x-delivery-limit": int64(1)},
		"drops a message whose target is lost, if at most once": {"x-delivery-limit": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "lost"},
	} {
		test(t, name, func(w *world) {
			setUp(w, broker.Object{Kind: broker.Queue, Name: "limited", Args: args})
			w.send("limited", "a", "b")
			sub := w.subscribe(w.other, "limited", 1)
			w.must(sub.Requeue(w.expect(sub, "a")...))
			w.must(sub.Requeue(w.expect(sub, "a*")...))
			w.expect(sub, "b")
			w.same(w.left, []string{"limited a dropped"})
		})
	}
	test(t, "may lead back to the same queue", func(w *world) {
		setUp(w, queue("limited", "limited"))
		w.send("limited", "a", "b")
		sub := w.subscribe(w.other, "limited", 1)
		for _, body := range []string{"a", "a*", "a*"} {
			w.must(sub.Requeue(w.expect(sub, body)...))
		}
		w.must(sub.Ack(w.expect(sub, "b")[0], broker.One))
		w.expect(sub, "a")
	})
	test(t, "of the topology leads to the rescue queue", func(w *world) {
		topology := broker.NewTopology("test", 2, "x")
		err := topology.Declare(w.Context(), w.other, []string{"queue"})
		w.must(err)
		w.send(topology.Main("queue"), "a")
		sub := w.subscribe(w.other, topology.Main("queue"), 1)
		for range broker.DeliveryLimit + 1 {
			w.must(sub.Requeue((<-sub.Deliveries()).Tag))
		}
		w.expect(w.subscribe(w.other, topology.Rescue(), 1), "a")
	})
}

func TestArgumentsThatRabbitMQRefuses(t *testing.T) {
	t.Parallel()
	for _, args := range []map[string]any{
		{"x-delivery-limit": "many"},
		{"x-dead-letter-exchange": int64(1)},
		{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": int64(1)},
		{"x-dead-letter-routing-key": "dead"}, // without an exchange
	} {
		test(t, fmt.Sprint(args), func(w *world) {
			o := broker.Object{Kind: broker.Queue, Name: "new", Args: args}
			err := w.other.Declare(w.Context(), []broker.Object{o})
			w.mustBe(err, holdfast.ErrConflict)
			missing, err := w.other.Missing(w.Context(), []broker.Object{o})
			w.must(err)
			w.same(missing, []string{"new"})
		})
	}
}

func TestDepths(t *testing.T) {
	t.Parallel()
	test(t, "count like RabbitMQ", func(w *world) {
		w.send("q", "a", "b", "c")
		sub := w.subscribe(w.other, "q", 2)
		tags := w.expect(sub, "a", "b")
		check := func(want broker.Depth) {
			w.Helper()
			depths, err := w.other.Depths(w.Context(), []string{"q"})
			w.must(err)
			if depths["q"] != want {
				w.Errorf("got %+v, want %+v", depths["q"], want)
			}
		}
		check(broker.Depth{Ready: 1, Consumers: 1})
		w.must(sub.Pause())
		check(broker.Depth{Ready: 1, Consumers: 1}) // the paused consumer still has deliveries
		w.must(sub.Ack(tags[1], broker.UpTo))
		check(broker.Depth{Ready: 1})
	})
}
