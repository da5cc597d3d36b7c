package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

const (
	// patience is how long received messages may wait for a free executor before they are
	// given back, so that an idle worker elsewhere can have them.
	patience = 250 * time.Millisecond
	// pagesInFlight bounds the pages of one lane that are being claimed or mirrored: one
	// is claimed while another waits for its confirm. When the broker confirms nothing, the
	// intake stops here.
	pagesInFlight = 3
	maxPage       = 256 // tickets
	maxPrefetch   = 1000
)

// consume receives from one lane, over one subscription after another, until ctx is done.
func (s *session) consume(ctx context.Context, lane string) {
	log := s.log.WithField("lane", lane)
	pause := newPause()
	for ctx.Err() == nil {
		sub, err := s.o.Broker.Subscribe(ctx, s.o.Topology.Main(lane), s.fullPrefetch())
		if err == nil {
			s.setIntake(lane, "")
			began := time.Now()
			err = s.receive(ctx, sub)
			if closeErr := sub.Close(); closeErr != nil {
				log.WithError(closeErr).Debug("close subscription")
			}
			if time.Since(began) > 10*time.Second {
				pause = newPause()
			}
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, broker.ErrNoQueue) {
			s.setIntake(lane, "its queue does not exist yet; a janitor declares it, or: holdfast topology apply")
		} else {
			s.setIntake(lane, err.Error())
		}
		log.WithError(err).Info("the lane's subscription is over, subscribing again")
		if pause.wait(ctx) != nil {
			return
		}
	}
}

func (s *session) fullPrefetch() int { return min(2*s.o.Concurrency, maxPrefetch) }

// intake is one subscription of one lane.
type intake struct {
	s     *session
	sub   broker.Subscription
	acks  *acks
	turns chan struct{}
	// prefetch is what the broker was last told; less than full after a pause.
	prefetch int
}

// receive takes pages until the subscription is over or ctx is done, and returns
// when their messages are acked or left to be delivered again.
func (s *session) receive(ctx context.Context, sub broker.Subscription) error {
	in := &intake{
		s: s, sub: sub, acks: &acks{sub: sub},
		turns: make(chan struct{}, pagesInFlight), prefetch: s.fullPrefetch(),
	}
	defer func() { // wait for the pages on their way
		for range pagesInFlight {
			in.turns <- struct{}{}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case delivery, open := <-sub.Deliveries():
			if !open {
				return broker.ErrOver
			}
			if err := in.take(ctx, delivery); err != nil {
				return err
			}
		}
	}
}

// take finds room for a delivery, gathers others that are there already, and
// starts their page.
func (in *intake) take(ctx context.Context, first broker.Delivery) error {
	in.acks.received(first.Tag)
	granted := in.s.room.take(maxPage)
	if granted == 0 {
		if !in.s.room.wait(ctx, patience) {
			return in.rest(ctx, first)
		}
		if granted = in.s.room.take(maxPage); granted == 0 { // another lane was quicker
			granted = 1
			in.s.room.add(1)
		}
	}
	p := in.s.newPage()
	p.read(first)
	for len(p.tickets) < granted {
		delivery, more := in.next()
		if !more {
			break
		}
		in.acks.received(delivery.Tag)
		p.read(delivery)
	}
	in.s.room.add(len(p.tickets) - granted)
	if err := in.widen(); err != nil {
		return err
	}
	select {
	case in.turns <- struct{}{}:
	case <-ctx.Done():
		in.s.room.add(-len(p.tickets))
		return context.Cause(ctx)
	}
	in.s.takers.Go(func() {
		defer func() { <-in.turns }()
		p.process(ctx, in.acks)
	})
	return nil
}

// next returns a delivery that is there already.
func (in *intake) next() (broker.Delivery, bool) {
	select {
	case delivery, open := <-in.sub.Deliveries():
		return delivery, open
	default:
		return broker.Delivery{}, false
	}
}

// rest gives everything untaken back and stops receiving until there is room.
func (in *intake) rest(ctx context.Context, untaken broker.Delivery) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := in.sub.Pause(); err != nil {
		return err
	}
	if err := in.acks.giveBack([]uint64{untaken.Tag}); err != nil {
		return err
	}
	if !in.s.room.wait(ctx, 0) {
		return context.Cause(ctx)
	}
	// Only as much as can run now: with long tasks the rest would come back anyway.
	free, _ := in.s.room.free()
	in.prefetch = max(1, min(free, in.s.fullPrefetch()))
	return in.sub.Resume(in.prefetch)
}

// widen raises a lowered prefetch again once half of the executors are free.
func (in *intake) widen() error {
	full := in.s.fullPrefetch()
	if in.prefetch == full {
		return nil
	}
	if free, _ := in.s.room.free(); free < in.s.o.Concurrency/2 {
		return nil
	}
	if err := in.sub.Pause(); err != nil {
		return err
	}
	in.prefetch = full
	return in.sub.Resume(full)
}
