package inproc_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/broker/inproc"
	"github.com/holdfastq/holdfast/workshop/brokertest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) *inproc.Broker {
	t.Helper()
	b := inproc.Open(inproc.Options{})
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

// declare declares queues without arguments.
func declare(t testing.TB, b *inproc.Broker, names ...string) {
	t.Helper()
	for _, name := range names {
		err := b.Declare(t.Context(), []broker.Object{{Kind: broker.Queue, Name: name}})
		must(t, err)
	}
}

func send(t testing.TB, b *inproc.Broker, queue string, bodies ...string) {
	t.Helper()
	list := make([]broker.Message, len(bodies))
	for i, body := range bodies {
		list[i] = broker.Message{Queue: queue, Body: []byte(body)}
	}
	_, err := b.Publish(t.Context(), list)
	must(t, err)
}

func subscribe(t testing.TB, b *inproc.Broker, queue string, prefetch int) broker.Subscription {
	t.Helper()
	sub, err := b.Subscribe(t.Context(), queue, prefetch)
	must(t, err)
	return sub
}

func receive(t testing.TB, sub broker.Subscription) broker.Delivery {
	t.Helper()
	return brokertest.Receive(t, sub)
}

// expect receives one delivery per body and fails the test if the bodies differ or come in another order.
func expect(t testing.TB, sub broker.Subscription, bodies ...string) (list []broker.Delivery) {
	t.Helper()
	for i, body := range bodies {
		d := receive(t, sub)
		if string(d.Body) != body {
			t.Fatalf("delivery %d is %q, want %q", i, d.Body, body)
		}
		list = append(list, d)
	}
	return list
}

func ready(t testing.TB, b *inproc.Broker, queue string) int {
	t.Helper()
	depths, err := b.Depths(t.Context(), []string{queue})
	must(t, err)
	return depths[queue].Ready
}

func same(t testing.TB, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func numbered(n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(i)
	}
	return bodies
}
