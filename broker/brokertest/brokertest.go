// Package brokertest is the suite that every adapter of [broker.Broker] passes. What
// a broker is trusted to do is what is tested here.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Features says how a broker can be tested.
type Features struct {
	// Disconnect breaks all connections of a broker that the suite got from open, as a network
	// would; the adapter can connect again at once. Nil skips the tests that need it.
	Disconnect func(broker.Broker)
	// Conflicts says that the broker compares arguments of existing objects.
	Conflicts bool
}

// patience bounds every wait of the suite, for slow machines; nothing waits for its end
// when the broker works.
const patience = time.Minute

// quiet is how long nothing may happen until the suite believes that nothing will. Only
// the absence of an event is shown this way.
const quiet = 200 * time.Millisecond

// Run runs the suite. open returns a broker that can be used, and closes it at the end of
// the test; it is called at least once for every test.
func Run(t *testing.T, features Features, open func(t *testing.T) broker.Broker) {
	for _, group := range [][]test{publishing, receiving, flow, looking, faults, model} {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(&suite{T: t, features: features, Broker: open(t)})
			})
		}
	}
}

type test struct {
	name string
	run  func(*suite)
}

// suite is one test of the suite, with helpers that end the test if something is wrong.
type suite struct {
	*testing.T
	broker.Broker
	features Features
}

func name() string { return fmt.Sprintf("holdfast.test.%016x", rand.Uint64()) }

// object is a queue as the topology makes them, and a name nobody else uses.
func object() broker.Object {
	return broker.Object{Kind: broker.Queue, Name: name(),
		Args: map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(broker.DeliveryLimit)}}
}

func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

// queue makes a queue for this test.
func (s *suite) queue() string {
	s.Helper()
	o := object()
	s.declare(o)
	return o.Name
}

func (s *suite) declare(objects ...broker.Object) (created []string) {
	s.Helper()
	created, err := s.Declare(s.ctx(), objects)
	s.must(err)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience)
		defer cancel()
		if err := s.Delete(ctx, objects); err != nil && !errors.Is(err, holdfast.ErrUnavailable) { // a test may close its broker
			s.Errorf("delete: %v", err)
		}
	})
	return created
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) mustBe(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("got error %v, want %v", err, want)
	}
}

// send publishes bodies to a queue and insists that they are stored.
func (s *suite) send(queue string, bodies ...string) {
	s.Helper()
	outcomes, err := s.Publish(s.ctx(), messages(queue, bodies...))
	s.must(err)
	for i, outcome := range outcomes {
		if outcome != broker.Stored {
			s.Fatalf("message %d: outcome %d without an error", i, outcome)
		}
	}
}

func messages(queue string, bodies ...string) []broker.Message {
	list := make([]broker.Message, len(bodies))
	for i, body := range bodies {
		list[i] = broker.Message{Queue: queue, Body: []byte(body)}
	}
	return list
}

func numbered(n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	return bodies
}

func (s *suite) subscribe(queue string, prefetch int) broker.Subscription {
	s.Helper()
	sub, err := s.Subscribe(s.ctx(), queue, prefetch)
	s.must(err)
	s.Cleanup(func() { sub.Close() })
	return sub
}

func (s *suite) receive(sub broker.Subscription) broker.Delivery {
	s.Helper()
	select {
	case d, ok := <-sub.Deliveries():
		if !ok {
			s.Fatal("the subscription is over, expected a delivery")
		}
		return d
	case <-time.After(patience):
		s.Fatal("no delivery")
	}
	panic("not reached")
}

func (s *suite) receiveAll(sub broker.Subscription, n int) []broker.Delivery {
	s.Helper()
	list := make([]broker.Delivery, n)
	for i := range list {
		list[i] = s.receive(sub)
	}
	return list
}

// expect receives exactly these bodies in this order.
func (s *suite) expect(sub broker.Subscription, bodies ...string) []broker.Delivery {
	s.Helper()
	list := make([]broker.Delivery, 0, len(bodies))
	for _, body := range bodies {
		d := s.receive(sub)
		if string(d.Body) != body {
			s.Fatalf("received %q, want %q (after %d of %d)", d.Body, body, len(list), len(bodies))
		}
		list = append(list, d)
	}
	return list
}

// silent insists that nothing is delivered now.
func (s *suite) silent(sub broker.Subscription) {
	s.Helper()
	select {
	case d, ok := <-sub.Deliveries():
		s.Fatalf("received %q (open: %t), expected silence", d.Body, ok)
	case <-time.After(quiet):
	}
}

// ended insists that the subscription is over soon; what was on its way to the reader
// may still come.
func (s *suite) ended(sub broker.Subscription) {
	s.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, ok := <-sub.Deliveries():
			if !ok {
				return
			}
		case <-deadline:
			s.Fatal("Deliveries was not closed")
		}
	}
}

func texts(deliveries []broker.Delivery) []string {
	list := make([]string, len(deliveries))
	for i, d := range deliveries {
		list[i] = string(d.Body)
	}
	return list
}

func (s *suite) same(got, want []string) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Fatalf("got %q, want %q", got, want)
	}
}
