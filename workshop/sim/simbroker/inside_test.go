package simbroker

import (
	"context"
	"testing"

	"github.com/holdfastq/holdfast/broker"
)

// TestMisuseThatReachesTheBroker sends frames that no Client sends.
func TestMisuseThatReachesTheBroker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		frames []frame
		closed bool // the client has closed the channel before
		left   int
	}{
		"a delivery that does not exist":       {[]frame{{op: ackOne, wire: 3}}, false, 2},
		"a delivery that was settled":          {[]frame{{op: ackOne, wire: 2}, {op: ackOne, wire: 2}}, false, 1},
		"up to a delivery that does not exist": {[]frame{{op: ackUpTo, wire: 3}}, false, 2},
		"a requeue of a settled delivery":      {[]frame{{op: ackUpTo, wire: 2}, {op: requeue, wires: []uint64{1}}}, false, 0},
		"a channel that was closed":            {[]frame{{op: ackUpTo, wire: 2}}, true, 2},
		"more frames after the mistake":        {[]frame{{op: ackOne, wire: 3}, {op: ackOne, wire: 1}}, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := New()
			var misused, left []string
			b.Observe(Observer{
				Misused: func(_ *Client, what string) { misused = append(misused, what) },
				Left:    func(m *Message, _ Reason) { left = append(left, m.String()) },
			})
			s, client := subscribed(t, b)
			if c.closed {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			b.mu.Lock()
			for _, f := range c.frames {
				s.channel.send(f, Step{"test", none})
			}
			b.unlock()
			if len(misused) != 1 {
				t.Errorf("got misuse reports %q, want one", misused)
			}
			n := 0
			for m := range b.Messages() {
				n++
				if m.Holder != nil {
					t.Errorf("the consumer still holds %s", m)
				}
			}
			if n != c.left {
				t.Errorf("%d messages are left, want %d", n, c.left)
			}
			if s.Ack(1, broker.One) != broker.ErrSubscriptionEnded { //nolint:errorlint // the error is not wrapped
				t.Error("the subscription has not ended")
			}
			if _, err := client.Publish(t.Context(), []broker.Message{{Queue: "q"}}); err != nil {
				t.Errorf("publish after the misuse: %v", err)
			}
		})
	}
}

// subscribed returns a subscription that has received two messages.
func subscribed(t *testing.T, b *Broker) (*subscription, *Client) {
	t.Helper()
	c := b.Client(nil)
	ctx := t.Context()
	if err := c.Declare(ctx, []broker.Object{{Kind: broker.Queue, Name: "q"}}); err != nil {
		t.Fatal(err)
	}
	sub, err := c.Subscribe(ctx, "q", 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(ctx, []broker.Message{{Queue: "q"}, {Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	<-sub.Deliveries()
	<-sub.Deliveries()
	return sub.(*subscription), c
}

// TestTheEndWhileAPauseStopsThePump tests an unlikely interleaving: the pump has stopped, but Pause does not know it
// yet.
func TestTheEndWhileAPauseStopsThePump(t *testing.T) {
	t.Parallel()
	s, c := subscribed(t, New())
	b := c.broker
	b.mu.Lock()
	s.pump = newPump(s)
	s.pump.stop()
	b.unlock()
	<-s.pump.done
	c.Disconnect()
	select {
	case _, open := <-s.Deliveries():
		if open {
			t.Error("received a delivery that does not exist")
		}
	default:
		t.Error("Deliveries is not closed")
	}
}

// broken is a network that changes the order of frames, which no network may do.
type broken struct{ frames []func() }

func (n *broken) Call(_ context.Context, _ Step, effect func(Fate)) error {
	effect(Fine())
	return nil
}

func (n *broken) Post(_ uint64, _ Step, effect func()) { n.frames = append(n.frames, effect) }

func TestANetworkThatChangesTheOrder(t *testing.T) {
	t.Parallel()
	n := &broken{}
	c := New().Client(n)
	if err := c.Declare(t.Context(), []broker.Object{{Kind: broker.Queue, Name: "q"}}); err != nil {
		t.Fatal(err)
	}
	sub, err := c.Subscribe(t.Context(), "q", 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), []broker.Message{{Queue: "q"}, {Queue: "q"}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Errorf("a delivery overtook another one without a panic; %d arrived", len(sub.Deliveries()))
		}
	}()
	n.frames[1]()
}
