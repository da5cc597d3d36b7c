// Package brokertest is the conformance suite for adapters of [broker.Broker]. It tests every promise of the contract.
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
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Features describes what a broker under test supports.
type Features struct {
	// Disconnect breaks all connections of a broker that open returned, as a network fault would. The adapter can
	// connect again at once. If nil, the tests that need it are skipped.
	Disconnect func(broker.Broker)
	// Conflicts means that the broker compares the arguments of existing objects.
	Conflicts bool
}

// quiet is how long the suite waits to see that an event does not happen.
const quiet = 200 * time.Millisecond

// Run executes the suite. open returns a broker that is ready, and closes it at the end of the test. Run calls open at
// least once for every test.
func Run(t *testing.T, features Features, open func(t *testing.T) broker.Broker) {
	for _, group := range [][]test{publishing, receiving, flow, admin, faults, model} {
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

// suite is one test, with helpers that fail the test.
type suite struct {
	*testing.T
	broker.Broker
	features Features
}

func name() string { return fmt.Sprintf("holdfast.test.%016x", rand.Uint64()) }

// object returns an object for a queue with a unique name and arguments like those of the topology.
func object() broker.Object {
	return broker.Object{Kind: broker.Queue, Name: name(),
		Args: map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(broker.DeliveryLimit)}}
}

func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), slow.Patience())
	s.Cleanup(cancel)
	return ctx
}

// queue declares a queue for this test and returns its name.
func (s *suite) queue() string {
	s.Helper()
	o := object()
	s.declare(o)
	return o.Name
}

func (s *suite) declare(objects ...broker.Object) {
	s.Helper()
	s.must(s.Declare(s.ctx(), objects))
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), slow.Patience())
		defer cancel()
		if err := s.Delete(ctx, objects); err != nil && !errors.Is(err, holdfast.ErrUnavailable) { // a test may close its broker
			s.Errorf("delete: %v", err)
		}
	})
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

// send publishes bodies to a queue and requires that all are stored.
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
	return Receive(s.T, sub)
}

// Receive returns the next delivery. It fails the test if the subscription has ended, or if no delivery arrives.
func Receive(t testing.TB, sub broker.Subscription) broker.Delivery {
	t.Helper()
	select {
	case d, ok := <-sub.Deliveries():
		if !ok {
			t.Fatal("the subscription has ended, expected a delivery")
		}
		return d
	case <-time.After(slow.Patience()):
		t.Fatal("no delivery")
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

// expect receives deliveries and requires exactly these bodies in this order.
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

// silent requires that nothing is delivered for a while.
func (s *suite) silent(sub broker.Subscription) {
	s.Helper()
	select {
	case d, ok := <-sub.Deliveries():
		s.Fatalf("received %q (open: %t), expected no delivery", d.Body, ok)
	case <-time.After(quiet):
	}
}

// ended requires that the subscription ends soon. Deliveries that are already on their way may still arrive.
func (s *suite) ended(sub broker.Subscription) {
	s.Helper()
	deadline := time.After(slow.Patience())
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
