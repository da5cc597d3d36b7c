package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
)

// A sentinel that was returned proves nothing: tickets that were in front of it may be behind it now.
func TestAReturnedSentinelIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().Truncate(time.Microsecond).UTC()
	returned := message.Sentinel{Lane: lane, At: now.Add(-time.Second)}
	w.sendRaw(w.main(), message.Message{Sentinel: &returned}.Encode())
	sub, err := w.broker.Subscribe(w.Context(), w.main(), 1)
	w.must(err)
	await(w, "the sentinel", sub.Deliveries())
	w.must(sub.Close())

	drained := make(chan message.Sentinel, 10)
	s := &faultyStore{Store: w.store, drain: func(s message.Sentinel, next func() error) error {
		drained <- s
		return next()
	}}
	k := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Store = s })
	first := message.Sentinel{Lane: lane, At: now.Add(-2 * time.Second)} // an older one, which the returned one would hide
	w.sendRaw(w.main(), message.Message{Sentinel: &first}.Encode())
	if got := await(w, "a sentinel is recorded", drained); !got.At.Equal(first.At) {
		t.Errorf("recorded is the sentinel of %s, want that of %s", got.At, first.At)
	}
	k.stop()
	if len(drained) > 0 {
		t.Errorf("recorded is also the sentinel of %s", (<-drained).At)
	}
	if left := w.take(w.main()); len(left) > 0 {
		t.Errorf("left in the queue are %q", left)
	}
}
