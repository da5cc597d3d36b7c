package inproc

import (
	"bytes"
	"slices"

	"github.com/holdfastq/holdfast/broker"
)

// pump holds out one message at a time until the subscription is over. Only it knows whether
// the message was received, so everything that depends on that is done in its turns.
func (s *subscription) pump() {
	for s.turn() {
		if !s.holds {
			<-s.pokes
			continue
		}
		select {
		case s.out <- s.next:
			s.holds, s.next.Body = false, nil
		case <-s.pokes:
		}
	}
	close(s.out)
	close(s.done)
}

// turn does what is to be done between two offers; false if the subscription is over.
func (s *subscription) turn() bool {
	found, deaths := s.look()
	s.queue.report(deaths)
	if found {
		s.next.Body = bytes.Clone(s.held.body) // the reader may do with it what it likes
	}
	return !s.over
}

// look is the part of a turn that needs the lock. It reports whether there is a new message to
// hold out: its body is copied later, without the lock.
func (s *subscription) look() (found bool, d deaths) {
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	if s.stopping {
		return false, s.end()
	}
	for _, what := range s.asked {
		what()
	}
	s.asked = slices.Delete(s.asked, 0, len(s.asked))
	switch {
	case s.holds || s.inHand >= s.prefetch: // whoever settles a delivery pokes
	case s.queue.waiting() == 0:
		s.queue.starve(s)
	default:
		s.queue.sate(s)
		s.held, s.holds, found = s.queue.take(), true, true
		s.inHand++
		s.next = broker.Delivery{Tag: s.ledger.add(s.held.letter, s.round), Redelivered: s.held.returns > 0}
	}
	s.offering = s.holds
	return found, d
}

// withdraw takes back the message that is held out.
func (s *subscription) withdraw() {
	if !s.holds {
		return
	}
	s.holds, s.next.Body = false, nil
	if _, ok := s.ledger.withdraw(); ok {
		s.queue.restore(s.held)
		s.inHand--
	}
}

// end gives back everything. The queue may have been deleted.
func (s *subscription) end() (d deaths) {
	s.withdraw()
	s.over = true
	q := s.queue
	for e := range s.ledger.settleUpTo(s.ledger.last) {
		q.giveBack(e.letter, &d)
	}
	s.ledger = ledger{}
	q.subs, q.hungry = without(q.subs, s), without(q.hungry, s)
	q.wake()
	return d
}
