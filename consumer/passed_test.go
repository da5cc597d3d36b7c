package consumer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
)

// A worker passes a ticket on only after the store has recorded that. Otherwise a sentinel of the main queue would
// prove the ticket lost.
func TestTicketsArePassedOnOnceRecorded(t *testing.T) {
	t.Parallel()
	done := func(context.Context, holdfast.Task) error { return nil }
	start := func(w *world, s consumer.Store) *worker {
		return w.work(done, func(o *consumer.Options) { o.Store, o.Concurrency = s, 1 })
	}
	t.Run("the store answers later", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		var calls atomic.Int32
		var tickets []message.Ticket
		s := &faultyStore{Store: w.store, pass: func(passed []message.Ticket, next func() error) error {
			if !slices.Equal(passed, tickets[1:]) {
				t.Errorf("recorded %v", passed)
			}
			if calls.Add(1) < 3 {
				return errFault
			}
			return next()
		}}
		start(w, s)
		tickets = w.ticketed(2, kind)
		w.send(w.requeue(), tickets...)
		w.awaitState(holdfast.Done, tickets...)
		if n := calls.Load(); n < 3 { // more, if the worker receives the ticket again while it writes the first result
			t.Errorf("%d calls to record the ticket, want 3", n)
		}
	})
	t.Run("the worker ends first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		refused := make(chan struct{}, 1)
		s := &faultyStore{Store: w.store, pass: func([]message.Ticket, func() error) error {
			select {
			case refused <- struct{}{}:
			default:
			}
			return errFault
		}}
		k := start(w, s)
		tickets := w.ticketed(2, kind)
		w.send(w.requeue(), tickets...)
		await(w, "the store refuses", refused)
		k.stop()
		whole := string(message.Message{Tickets: tickets}.Encode())
		if left := w.take(w.requeue()); !slices.Equal(left, []string{whole}) {
			t.Errorf("the requeue queue has %q, want %q", left, whole)
		}
	})
}
