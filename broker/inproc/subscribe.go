package inproc

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// subscription is guarded by the lock of its broker, except for what never changes and
// what belongs to its pump.
type subscription struct {
	broker *Broker
	queue  *queue
	out    chan broker.Delivery // not buffered: what left it was received by somebody
	pokes  chan struct{}        // gives the pump a turn; one is as good as many
	done   chan struct{}        // closed when the pump has ended

	ledger   ledger
	round    uint32   // counts the Resumes, from 1
	prefetch int      // 0 while paused
	inHand   int      // unsettled deliveries of this round
	asked    []func() // to do in the next turn
	offering bool     // whether the pump held a message at the end of its last turn
	stopping bool
	over     bool // nothing can be settled any more; written by the pump alone

	// Of the pump alone.
	holds bool
	held  offer
	next  broker.Delivery // held, as it is held out
}

// Subscribe implements [broker.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	if err := checkPrefetch(prefetch); err != nil {
		return nil, err
	}
	leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	q := b.queues[queue]
	if q == nil {
		return nil, fmt.Errorf("subscribe to %q: %w", queue, broker.ErrNoQueue)
	}
	s := &subscription{
		broker: b, queue: q, round: 1, prefetch: prefetch,
		out: make(chan broker.Delivery), pokes: make(chan struct{}, 1), done: make(chan struct{}),
	}
	q.subs = append(q.subs, s)
	b.work.Go(s.pump)
	return s, nil
}

func checkPrefetch(prefetch int) error {
	if prefetch < 1 || prefetch > 65535 {
		return fmt.Errorf("%w: prefetch %d is not within 1 and 65535", holdfast.ErrInvalid, prefetch)
	}
	return nil
}

// Deliveries implements [broker.Subscription].
func (s *subscription) Deliveries() <-chan broker.Delivery { return s.out }

// Ack implements [broker.Subscription]. After nil the message never comes again.
func (s *subscription) Ack(tag uint64, mode broker.AckMode) error {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.over {
		return broker.ErrOver
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

// Requeue implements [broker.Subscription]. With a tag that was never received it
// does nothing.
func (s *subscription) Requeue(tags ...uint64) error {
	deaths, err := s.requeue(slices.Sorted(slices.Values(tags)))
	s.queue.report(deaths)
	return err
}

func (s *subscription) requeue(tags []uint64) (d deaths, err error) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.over {
		return d, broker.ErrOver
	}
	for _, tag := range tags {
		if err := s.ledger.check(tag); err != nil {
			return d, err
		}
	}
	for _, tag := range tags {
		if e, ok := s.ledger.settle(tag); ok {
			s.queue.giveBack(e.letter, &d)
			s.release(e)
		}
	}
	s.queue.wake()
	return d, nil
}

// release makes room within the prefetch for another delivery.
func (s *subscription) release(e entry) {
	if e.round != s.round {
		return
	}
	if s.inHand == s.prefetch {
		s.poke()
	}
	s.inHand--
}

// Pause implements [broker.Subscription].
func (s *subscription) Pause() error {
	return s.ask(func() {
		s.prefetch = 0
		s.withdraw()
		s.queue.sate(s)
		s.queue.wake()
	})
}

// Resume implements [broker.Subscription].
func (s *subscription) Resume(prefetch int) error {
	if err := checkPrefetch(prefetch); err != nil {
		return err
	}
	return s.ask(func() {
		if s.prefetch == 0 {
			s.prefetch, s.inHand = prefetch, 0
			s.round++
		}
	})
}

// Close implements [broker.Subscription]. When it returns, all messages are back in the queue.
func (s *subscription) Close() error {
	s.broker.mu.Lock()
	s.stop()
	s.broker.mu.Unlock()
	<-s.done
	return nil
}

// ask has the pump do something, with the lock, and returns when that is done.
func (s *subscription) ask(what func()) error {
	answered := make(chan struct{})
	s.broker.mu.Lock()
	s.asked = append(s.asked, func() {
		what()
		close(answered)
	})
	s.broker.mu.Unlock()
	s.poke()
	select {
	case <-answered:
		return nil
	case <-s.done:
	}
	select {
	case <-answered: // and then the subscription ended
		return nil
	default:
		return broker.ErrOver
	}
}

// stop has the pump end the subscription; done is closed then.
func (s *subscription) stop() {
	s.stopping = true
	s.poke()
}

func (s *subscription) poke() {
	select {
	case s.pokes <- struct{}{}:
	default:
	}
}
