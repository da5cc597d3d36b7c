package simbroker_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// timed is a network that measures the time spent in effects.
type timed struct {
	posts   []func()
	effects int
	spent   time.Duration
}

func (n *timed) run(effect func()) {
	began := time.Now()
	effect()
	n.spent += time.Since(began)
	n.effects++
}

func (n *timed) Call(_ context.Context, _ simbroker.Step, effect func(simbroker.Fate)) error {
	n.run(func() { effect(simbroker.Fine()) })
	return nil
}

func (n *timed) Post(_ uint64, _ simbroker.Step, effect func()) { n.posts = append(n.posts, effect) }

func (n *timed) deliver() {
	for i := 0; i < len(n.posts); i++ {
		n.run(n.posts[i])
	}
	n.posts = n.posts[:0]
}

// BenchmarkMessage publishes, receives and acknowledges one ticket at a time: three effects.
func BenchmarkMessage(b *testing.B) {
	net := &timed{}
	c := simbroker.New().Client(net)
	if err := c.Declare(b.Context(), []broker.Object{queue("q", "")}); err != nil {
		b.Fatal(err)
	}
	sub, err := c.Subscribe(b.Context(), "q", 200)
	if err != nil {
		b.Fatal(err)
	}
	body := message.Message{Tickets: []message.Ticket{{Task: 12345, Attempt: 1}}}.Encode()
	list := []broker.Message{{Queue: "q", Body: body}}
	net.effects, net.spent = 0, 0
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Publish(b.Context(), list); err != nil {
			b.Fatal(err)
		}
		net.deliver()
		if err := sub.Ack((<-sub.Deliveries()).Tag, broker.UpTo); err != nil {
			b.Fatal(err)
		}
		net.deliver()
	}
	b.ReportMetric(float64(net.spent.Nanoseconds())/float64(net.effects), "ns/effect")
}

// BenchmarkLook reads a backlog.
func BenchmarkLook(b *testing.B) {
	server := simbroker.New()
	c := server.Client(nil)
	if err := c.Declare(b.Context(), []broker.Object{queue("q", "")}); err != nil {
		b.Fatal(err)
	}
	if _, err := c.Publish(b.Context(), messages("q", make([]string, 1000)...)); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for range server.Messages() {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/message")
}
