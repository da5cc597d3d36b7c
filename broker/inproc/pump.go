package inproc

import (
	"bytes"
	"slices"

	"github.com/holdfastq/holdfast/broker"
)

// pump sends one message at a time to the deliveries channel until the subscription ends. Only the pump knows whether
// its pending message was received, so all work that depends on this happens in its turns.
func (s *subscription) pump() {
	for s.turn() {
		if !s.hasPending {
			<-s.signals
			continue
		}
		select {
		case s.out <- s.next:
			s.hasPending, s.next.Body = false, nil
		case <-s.signals:
		}
	}
	close(s.out)
	close(s.done)
}

// turn does the work between two sends. It returns false if the subscription has ended.
func (s *subscription) turn() bool {
	found, deadLetters := s.prepare()
	s.queue.report(deadLetters)
	if found {
		s.next.Body = bytes.Clone(s.pending.body) // the reader may modify the body
	}
	return !s.ended
}

// prepare is the part of a turn that needs the lock. It reports whether there is a new pending message. The caller
// copies the body of that message after the lock is released.
func (s *subscription) prepare() (found bool, d deadLetters) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.stopping {
		return false, s.end()
	}
	for _, request := range s.requests {
		request()
	}
	s.requests = slices.Delete(s.requests, 0, len(s.requests))
	switch {
	case s.hasPending || s.unsettled >= s.prefetch: // the pump gets a signal when a delivery is settled
	case s.queue.available() == 0:
		if !slices.Contains(s.queue.idle, s) {
			s.queue.idle = append(s.queue.idle, s)
		}
	default:
		s.queue.idle = without(s.queue.idle, s)
		s.pending, s.hasPending, found = s.queue.dequeue(), true, true
		s.unsettled++
		s.next = broker.Delivery{Tag: s.ledger.add(s.pending.message, s.round), Redelivered: s.pending.requeues > 0}
	}
	s.sending = s.hasPending
	return found, d
}

// withdraw returns the pending message, if any, to its position in the queue.
func (s *subscription) withdraw() {
	if !s.hasPending {
		return
	}
	s.hasPending, s.next.Body = false, nil
	if _, ok := s.ledger.withdraw(); ok {
		s.queue.putBack(s.pending)
		s.unsettled--
	}
}

// end requeues all unsettled messages and removes the subscription from its queue. The queue may have been deleted.
func (s *subscription) end() (d deadLetters) {
	s.withdraw()
	s.ended = true
	q := s.queue
	for e := range s.ledger.settleUpTo(s.ledger.last) {
		q.requeue(e.message, &d)
	}
	s.ledger = ledger{}
	q.subs, q.idle = without(q.subs, s), without(q.idle, s)
	q.wake()
	return d
}
