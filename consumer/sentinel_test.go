package consumer_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
)

// A redelivered sentinel proves nothing, because tickets that were in front of it may be behind it now.
func TestAReturnedSentinelIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().Truncate(time.Microsecond).UTC()
	returned := message.Sentinel{Queue: queue, At: now.Add(-time.Second)}
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
	// The first sentinel is older than the redelivered one, which would replace it.
	first := message.Sentinel{Queue: queue, At: now.Add(-2 * time.Second)}
	w.sendRaw(w.main(), message.Message{Sentinel: &first}.Encode())
	if got := await(w, "a sentinel is recorded", drained); !got.At.Equal(first.At) {
		t.Errorf("recorded the sentinel of %s, want that of %s", got.At, first.At)
	}
	k.stop()
	if len(drained) > 0 {
		t.Errorf("also recorded the sentinel of %s", (<-drained).At)
	}
	if left := w.take(w.main()); len(left) > 0 {
		t.Errorf("the main queue has %q", left)
	}
}
