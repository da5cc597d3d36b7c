package simbroker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
	slowtest "github.com/holdfastq/holdfast/workshop/slow"
)

// randomNetwork is a network whose choices depend on a seed.
type randomNetwork struct {
	*rand.Rand
	links []uint64 // in the order of their first frames
	posts map[uint64][]func()
	trace []string
}

func (n *randomNetwork) Call(_ context.Context, step simbroker.Step, effect func(simbroker.Fate)) error {
	for range n.IntN(3) {
		n.deliver()
	}
	n.trace = append(n.trace, step.Op+" "+step.Note())
	fate := simbroker.Fine()
	if n.IntN(8) == 0 {
		fate = simbroker.Fate{Arrive: n.IntN(3) - 1, Unconfirmed: n.IntN(3) == 0, Nacked: n.IntN(3) == 0, Twice: n.IntN(3) == 0}
	}
	effect(fate)
	return nil
}

func (n *randomNetwork) Post(link uint64, step simbroker.Step, effect func()) {
	n.trace = append(n.trace, step.Op+" "+step.Note())
	if _, known := n.posts[link]; !known {
		n.links = append(n.links, link)
	}
	n.posts[link] = append(n.posts[link], effect)
}

// deliver makes one random frame arrive. It reports whether there was one.
func (n *randomNetwork) deliver() bool {
	for len(n.links) > 0 {
		i := n.IntN(len(n.links))
		link := n.links[i]
		if frames := n.posts[link]; len(frames) > 0 {
			n.posts[link] = frames[1:]
			frames[0]()
			return true
		}
		delete(n.posts, link)
		n.links = slices.Delete(n.links, i, i+1)
	}
	return false
}

// walk is a random walk: two clients call random methods for two AMQP queues, and faults happen in between.
type walk struct {
	*testing.T
	*randomNetwork
	server   *simbroker.Broker
	clients  []*simbroker.Client
	subs     []*testSubscription
	serial   int
	inBroker int // messages in the broker
}

// testSubscription is a subscription with the tags of its unsettled deliveries.
type testSubscription struct {
	broker.Subscription
	last uint64
	tags []uint64
}

var queues = []broker.Object{queue("one", ""), queue("two", "one")}

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{T: t, server: simbroker.New(), randomNetwork: &randomNetwork{Rand: rand.New(rand.NewPCG(seed, 0)), posts: map[uint64][]func(){}}}
	w.clients = []*simbroker.Client{w.server.Client(w.randomNetwork), w.server.Client(w.randomNetwork)}
	w.server.Observe(simbroker.Observer{
		Entered: func(*simbroker.Message) { w.inBroker++ },
		Left:    func(*simbroker.Message, simbroker.Reason) { w.inBroker-- },
		Misused: func(_ *simbroker.Client, what string) { t.Errorf("misuse: %s", what) },
	})
	return w
}

func (w *walk) step() {
	c := w.clients[w.IntN(len(w.clients))]
	var s *testSubscription
	if len(w.subs) > 0 {
		s = w.subs[w.IntN(len(w.subs))]
	}
	switch op := w.IntN(100); {
	case op < 20:
		w.publish(c)
	case op < 25 && len(w.subs) < 6:
		w.subscribe(c)
	case op < 27:
		w.declare(c)
	case op < 30:
		w.fault(c, w.IntN(8))
	case op < 50:
		w.deliver()
	case s == nil:
	case op < 75:
		w.receive(s)
	case op < 90:
		w.settle(s)
	case op < 94:
		_ = s.Pause()
	case op < 98:
		_ = s.Resume(1 + w.IntN(5))
	default:
		_ = s.Close()
	}
}

func (w *walk) publish(c *simbroker.Client) {
	bodies := make([]string, 1+w.IntN(3))
	for i := range bodies {
		w.serial++
		bodies[i] = fmt.Sprint(w.serial)
	}
	_, _ = c.Publish(w.Context(), messages(queues[w.IntN(2)].Name, bodies...))
}

func (w *walk) subscribe(c *simbroker.Client) {
	ctx, cancel := context.WithTimeout(w.Context(), 1)
	defer cancel()
	if sub, err := c.Subscribe(ctx, queues[w.IntN(2)].Name, 1+w.IntN(5)); err == nil {
		w.subs = append(w.subs, &testSubscription{Subscription: sub})
	}
}

func (w *walk) declare(c *simbroker.Client) {
	if c.Health().Connected {
		_ = c.Declare(w.Context(), queues)
	}
}

func (w *walk) fault(c *simbroker.Client, which int) {
	switch which {
	case 0:
		c.Disconnect()
	case 1:
		c.HangUp()
	case 2:
		c.Forget()
	case 3:
		c.CutSilently()
		c.SetCut(false)
	case 4:
		w.server.SetDown(true)
		w.server.SetDown(false)
	case 5:
		w.server.DeleteQueue(queues[w.IntN(2)].Name)
	case 6:
		if w.IntN(10) == 0 {
			w.server.Wipe()
		}
	default:
		c.Expire()
	}
}

func (w *walk) receive(s *testSubscription) {
	select {
	case d, open := <-s.Deliveries():
		if !open {
			w.subs = slices.DeleteFunc(w.subs, func(other *testSubscription) bool { return other == s })
			return
		}
		if d.Tag != s.last+1 {
			w.Fatalf("tag %d follows tag %d", d.Tag, s.last)
		}
		s.last, s.tags = d.Tag, append(s.tags, d.Tag)
	default:
	}
}

func (w *walk) settle(s *testSubscription) {
	if len(s.tags) == 0 {
		return
	}
	i := w.IntN(len(s.tags))
	switch tag := s.tags[i]; w.IntN(3) {
	case 0:
		_ = s.Ack(tag, broker.One)
		s.tags = slices.Delete(s.tags, i, i+1)
	case 1:
		_ = s.Ack(tag, broker.UpTo)
		s.tags = slices.Delete(s.tags, 0, i+1)
	default:
		_ = s.Requeue(tag)
		s.tags = slices.Delete(s.tags, i, i+1)
	}
}

// check compares the messages of the server with the reports of its observer.
func (w *walk) check() {
	n := 0
	for range w.server.Messages() {
		n++
	}
	if n != w.inBroker {
		w.Fatalf("%d messages are in the broker, %d should be", n, w.inBroker)
	}
}

// finish receives all messages that are left.
func (w *walk) finish() {
	for _, c := range w.clients {
		c.Disconnect()
	}
	for _, o := range queues {
		sub, err := w.clients[0].Subscribe(w.Context(), o.Name, 100)
		if err != nil {
			continue
		}
		for w.deliver() {
			for len(sub.Deliveries()) > 0 {
				if err := sub.Ack((<-sub.Deliveries()).Tag, broker.UpTo); err != nil {
					w.Fatal(err)
				}
			}
		}
	}
	if n := w.inBroker; n != 0 {
		for m := range w.server.Messages() {
			if m.Dead {
				n-- // the dead-letter queue of the message was deleted
			}
		}
		if n != 0 {
			w.Errorf("%d messages were not received", n)
		}
	}
}

func run(t *testing.T, seed uint64) (trace []string) {
	synctest.Test(t, func(t *testing.T) {
		w := newWalk(t, seed)
		w.declare(w.clients[0])
		for range 400 {
			w.step()
			w.check()
		}
		w.finish()
		w.check()
		trace = w.trace
	})
	return trace
}

// TestWalks shows that the server neither loses nor invents a message, and that the same seed leads to the same steps.
func TestWalks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(slowtest.Pick(50, 200)) {
		trace := run(t, seed)
		if second := run(t, seed); !slices.Equal(trace, second) {
			t.Fatalf("seed %d led to different steps", seed)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
