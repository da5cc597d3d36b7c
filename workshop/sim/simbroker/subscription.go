package simbroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// The capacity of the channel of deliveries.
const (
	minCapacity = 16
	maxCapacity = 1024
)

// subscription is the client's side of a channel.
type subscription struct {
	client  *Client
	conn    *conn
	name    string // name of the queue
	channel *channel
	out     chan broker.Delivery
	turn    chan struct{} // holds one token while Pause or Resume is in progress

	// The following fields are guarded by the lock of the Broker.
	ledger    ledger
	next      uint64 // number of the next delivery
	paused    bool
	over      bool
	abandoned bool // the client has closed the channel, or will close it once it is open
	pump      *pump
}

func newSubscription(v *conn, queue string, prefetch int) *subscription {
	return &subscription{
		client: v.client, conn: v, name: queue, next: 1, ledger: ledger{base: 1},
		out:  make(chan broker.Delivery, min(max(prefetch, minCapacity), maxCapacity)),
		turn: make(chan struct{}, 1),
	}
}

// Deliveries implements [broker.Subscription].
func (s *subscription) Deliveries() <-chan broker.Delivery { return s.out }

// arrive is the arrival of a delivery.
func (s *subscription) arrive(wire uint64, m *Message, redelivered bool) {
	switch {
	case s.over || wire < s.next: // a Pause may have returned the delivery while it was on its way
		return
	case wire > s.next:
		panic(fmt.Sprintf("simbroker: delivery %d of link %d arrived, want delivery %d", wire, s.channel.down, s.next))
	}
	s.next++
	d := broker.Delivery{Tag: s.ledger.add(wire, m), Body: bytes.Clone(m.Body), Redelivered: redelivered}
	if s.pump == nil {
		select {
		case s.out <- d:
			return
		default:
			s.pump = newPump(s)
		}
	}
	s.pump.list = append(s.pump.list, d)
}

// Ack implements [broker.Subscription].
func (s *subscription) Ack(tag uint64, mode broker.AckMode) error {
	s.client.broker.mu.Lock()
	defer s.client.broker.unlock()
	if err := s.check(tag); err != nil {
		return err
	}
	r := s.ledger.settle(tag, mode == broker.UpTo)
	if r.wire == 0 {
		return nil
	}
	if mode == broker.UpTo {
		s.channel.send(frame{op: ackUpTo, wire: r.wire}, Step{"ack up to", r.message.String})
	} else {
		s.channel.send(frame{op: ackOne, wire: r.wire}, Step{"ack", r.message.String})
	}
	return nil
}

// Requeue implements [broker.Subscription]. If a tag was never received, it settles nothing.
func (s *subscription) Requeue(tags ...uint64) error {
	s.client.broker.mu.Lock()
	defer s.client.broker.unlock()
	if len(tags) == 0 && s.over {
		return broker.ErrSubscriptionEnded
	}
	for _, tag := range tags {
		if err := s.check(tag); err != nil {
			return err
		}
	}
	var wires []uint64
	for _, tag := range slices.Sorted(slices.Values(tags)) {
		if r := s.ledger.settle(tag, false); r.wire != 0 {
			wires = append(wires, r.wire)
		}
	}
	s.requeue(wires)
	return nil
}

func (s *subscription) requeue(wires []uint64) {
	if len(wires) == 0 {
		return
	}
	note := func() string { return fmt.Sprintf("%s: %d", short(s.name), len(wires)) }
	s.channel.send(frame{op: requeue, wires: wires}, Step{"requeue", note})
}

// check returns an error if a tag was never received or can no longer be settled.
func (s *subscription) check(tag uint64) error {
	if s.over {
		return broker.ErrSubscriptionEnded
	}
	unread := len(s.out)
	if s.pump != nil {
		unread += len(s.pump.list) - 1 // the pump may just have sent the first one
	}
	if tag == 0 || tag > s.ledger.last()-uint64(unread) {
		s.client.broker.misused(s.client, fmt.Sprintf("delivery %d of %s was settled but never received", tag, short(s.name)))
		return fmt.Errorf("%w: delivery %d was never received", holdfast.ErrInvalid, tag)
	}
	return nil
}

// Pause implements [broker.Subscription].
func (s *subscription) Pause() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if over, paused := s.state(); over || paused {
		return endedOr(over)
	}
	var last uint64
	if err := s.request("pause", func(ch *channel) error {
		ch.stop()
		last = ch.last
		return nil
	}); err != nil {
		return err
	}
	b := s.client.broker
	b.mu.Lock()
	defer b.unlock()
	inFlight := s.next
	s.next = max(s.next, last+1) // ignore deliveries sent before the answer
	if p := s.pump; p != nil && !s.over {
		p.stop()
		b.unlock()
		<-p.done
		b.mu.Lock()
	}
	if s.over {
		return broker.ErrSubscriptionEnded
	}
	s.paused = true
	wires := s.ledger.withdraw(s.drain())
	for ; inFlight <= last; inFlight++ {
		wires = append(wires, inFlight)
	}
	s.requeue(wires)
	return nil
}

// drain removes the deliveries that the reader has not received, and returns their tags. A concurrent reader can
// receive a delivery later than a drained one. Then the tag of the drained one is never delivered.
func (s *subscription) drain() (tags []uint64) {
	for {
		select {
		case d := <-s.out:
			tags = append(tags, d.Tag)
			continue
		default:
		}
		if s.pump != nil {
			for _, d := range s.pump.list {
				tags = append(tags, d.Tag)
			}
			s.pump = nil
		}
		return tags
	}
}

// Resume implements [broker.Subscription].
func (s *subscription) Resume(prefetch int) error {
	if err := broker.CheckPrefetch(prefetch); err != nil {
		return err
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if over, paused := s.state(); over || !paused {
		return endedOr(over)
	}
	if err := s.request("resume", func(ch *channel) error {
		q := s.client.broker.queues[s.name]
		if q == nil { // as with RabbitMQ, this closes the channel
			closeChannels([]*channel{ch})
			return broker.ErrNoQueue
		}
		ch.consume(q, prefetch)
		return nil
	}); err != nil {
		return err
	}
	s.client.broker.mu.Lock()
	defer s.client.broker.unlock()
	s.paused = false
	return nil
}

func (s *subscription) state() (over, paused bool) {
	s.client.broker.mu.Lock()
	defer s.client.broker.unlock()
	return s.over, s.paused
}

func endedOr(over bool) error {
	if over {
		return broker.ErrSubscriptionEnded
	}
	return nil
}

// request sends a request over the channel. Any error ends the subscription. The contract gives these requests no
// context.
func (s *subscription) request(op string, effect func(*channel) error) error {
	b := s.client.broker
	ch := s.channel
	b.mu.Lock()
	sent := ch.sent
	b.unlock()
	var answer error
	step := Step{op, func() string { return short(s.name) }}
	err := s.client.call(context.Background(), s.conn, requestLimit, step, func(Fate) {
		if ch.conn.dead {
			answer = errLost
			return
		}
		ch.catchUp(sent)
		switch {
		case ch.closed || ch.notified: // the client was notified before this answer
			answer = errCancelled
		default:
			answer = effect(ch)
		}
	})
	if err == nil {
		err = answer
	}
	if err == nil {
		return nil
	}
	b.mu.Lock()
	defer b.unlock()
	if errors.Is(err, errLost) {
		s.conn.hangUp()
	}
	s.abandon()
	return fmt.Errorf("%w: %w", broker.ErrSubscriptionEnded, err)
}

// Close implements [broker.Subscription]. It waits up to two seconds until the broker has taken the unsettled messages
// back.
func (s *subscription) Close() error {
	b := s.client.broker
	b.mu.Lock()
	if s.over {
		b.unlock()
		return nil
	}
	s.abandoned = true
	s.end()
	b.unlock()
	err := s.client.call(context.Background(), s.conn, closeLimit, s.closeStep(), func(Fate) { s.channel.finish() })
	if err != nil {
		b.mu.Lock()
		defer b.unlock()
		s.postClose() // the call may be lost, but the close must not be
	}
	return nil
}

// abandon ends the subscription without waiting for the broker.
func (s *subscription) abandon() {
	if s.abandoned {
		return
	}
	s.abandoned = true
	s.end()
	s.postClose()
}

func (s *subscription) postClose() {
	if !s.conn.gone && s.channel != nil {
		s.client.post(s.channel.up, s.closeStep(), s.channel.finish)
	}
}

func (s *subscription) closeStep() Step {
	return Step{"close", func() string { return short(s.name) }}
}

// finish is the arrival of the client's close of the channel.
func (ch *channel) finish() {
	if ch.conn.dead || ch.finished {
		return
	}
	ch.catchUp(ch.sent)
	ch.finished = true
	if !ch.closed {
		closeChannels([]*channel{ch})
	}
}

// end ends the subscription on the client's side.
func (s *subscription) end() {
	if s.over {
		return
	}
	s.over = true
	s.conn.subs = without(s.conn.subs, s)
	if s.pump != nil && !s.pump.ended {
		s.pump.stop() // the pump closes out
		return
	}
	s.drain()
	close(s.out)
}
