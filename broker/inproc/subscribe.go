package inproc

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast/broker"
)

// subscription is guarded by the lock of its broker, except for the constant fields and the fields that only its pump
// uses.
type subscription struct {
	broker  *Broker
	queue   *queue
	out     chan broker.Delivery // unbuffered, so that a sent delivery has been received
	signals chan struct{}        // requests a turn of the pump; further signals before that turn are dropped
	done    chan struct{}        // closed when the pump has ended

	ledger    ledger
	round     uint32   // number of resumptions plus 1
	prefetch  int      // 0 while paused
	unsettled int      // unsettled deliveries of this round
	requests  []func() // functions for the next turn of the pump
	sending   bool     // the pump had a pending message at the end of its last turn
	stopping  bool
	ended     bool // deliveries can no longer be settled; only the pump writes it

	// Only the pump uses the following fields.
	hasPending bool
	pending    pendingMessage
	next       broker.Delivery // the pending message as a delivery
}

// Subscribe implements [broker.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	if err := broker.CheckPrefetch(prefetch); err != nil {
		return nil, err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	q := b.queues[queue]
	if q == nil {
		return nil, fmt.Errorf("subscribe to %q: %w", queue, broker.ErrNoQueue)
	}
	s := &subscription{
		broker: b, queue: q, round: 1, prefetch: prefetch,
		out: make(chan broker.Delivery), signals: make(chan struct{}, 1), done: make(chan struct{}),
	}
	q.subs = append(q.subs, s)
	b.work.Go(s.pump)
	return s, nil
}

// Deliveries implements [broker.Subscription].
func (s *subscription) Deliveries() <-chan broker.Delivery { return s.out }

// Ack implements [broker.Subscription]. If it returns nil, the acknowledged messages are never delivered again.
func (s *subscription) Ack(tag uint64, mode broker.AckMode) error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.ended {
		return broker.ErrSubscriptionEnded
	}
	if err := s.ledger.check(tag); err != nil {
		return err
	}
	if mode == broker.UpTo {
		for e := range s.ledger.settleUpTo(tag) {
			s.release(e)
		}
	} else if e, ok := s.ledger.settle(tag); ok {
		s.release(e)
	}
	return nil
}

// Requeue implements [broker.Subscription]. If one of the tags was never received, Requeue settles none of them.
func (s *subscription) Requeue(tags ...uint64) error {
	deadLetters, err := s.requeue(slices.Sorted(slices.Values(tags)))
	s.queue.report(deadLetters)
	return err
}

func (s *subscription) requeue(tags []uint64) (d deadLetters, err error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.ended {
		return d, broker.ErrSubscriptionEnded
	}
	for _, tag := range tags {
		if err := s.ledger.check(tag); err != nil {
			return d, err
		}
	}
	for _, tag := range tags {
		if e, ok := s.ledger.settle(tag); ok {
			s.queue.requeue(e.message, &d)
			s.release(e)
		}
	}
	s.queue.wake()
	return d, nil
}

// release records that a delivery is settled, so that the pump may send another one within the prefetch.
func (s *subscription) release(e entry) {
	if e.round != s.round {
		return
	}
	if s.unsettled == s.prefetch {
		s.signal()
	}
	s.unsettled--
}

// Pause implements [broker.Subscription].
func (s *subscription) Pause() error {
	return s.runInPump(func() {
		s.prefetch = 0
		s.withdraw()
		s.queue.idle = without(s.queue.idle, s)
		s.queue.wake()
	})
}

// Resume implements [broker.Subscription].
func (s *subscription) Resume(prefetch int) error {
	if err := broker.CheckPrefetch(prefetch); err != nil {
		return err
	}
	return s.runInPump(func() {
		if s.prefetch == 0 {
			s.prefetch, s.unsettled = prefetch, 0
			s.round++
		}
	})
}

// Close implements [broker.Subscription]. When it returns, all unsettled messages are back in the queue.
func (s *subscription) Close() error {
	s.broker.mu.Lock()
	s.stop()
	s.broker.mu.Unlock()
	<-s.done
	return nil
}

// runInPump makes the pump call request while the pump holds the lock. It returns nil after that call, or
// broker.ErrSubscriptionEnded if the subscription has ended before.
func (s *subscription) runInPump(request func()) error {
	done := make(chan struct{})
	s.broker.mu.Lock()
	s.requests = append(s.requests, func() {
		request()
		close(done)
	})
	s.broker.mu.Unlock()
	s.signal()
	select {
	case <-done:
		return nil
	case <-s.done:
	}
	select {
	case <-done: // the subscription ended after the call
		return nil
	default:
		return broker.ErrSubscriptionEnded
	}
}

// stop requests the end of the subscription. The pump then ends it and closes done.
func (s *subscription) stop() {
	s.stopping = true
	s.signal()
}

func (s *subscription) signal() {
	select {
	case s.signals <- struct{}{}:
	default:
	}
}
