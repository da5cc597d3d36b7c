package consumer

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	// patience is how long received messages may wait for a free executor before they are
	// given back, so that an idle worker elsewhere can have them.
	patience = 250 * time.Millisecond
	// preferredPatience is the same for tickets that go first: they get the next place that is free.
	preferredPatience = 500 * time.Millisecond
	// pagesInFlight bounds the pages of one queue that are being claimed or mirrored: one
	// is claimed while another waits for its confirm. When the broker confirms nothing, the
	// intake stops here.
	pagesInFlight = 3
	maxPage       = 512 // tickets
	maxSkimmed    = 256 // messages without any that a page takes along
	maxPrefetch   = 1000
)

// consume receives from one queue, over one subscription after another, until ctx is done. Tickets it has to pass on go to
// the queue again.
func (s *session) consume(ctx context.Context, queue, again string, by rank) {
	log := s.log.WithField("queue", queue)
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		sub, err := s.o.Broker.Subscribe(ctx, queue, s.fullPrefetch())
		if err == nil {
			s.setIntake(queue, nil)
			began := time.Now()
			err = s.receive(ctx, sub, again, by)
			if closeErr := sub.Close(); closeErr != nil {
				log.WithError(closeErr).Debug("close subscription")
			}
			if time.Since(began) > 10*time.Second {
				pause.Reset()
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.setIntake(queue, err)
		log.WithError(err).Info("the subscription is over, subscribing again")
		if pause.Wait(ctx) != nil {
			return
		}
	}
}

func (s *session) fullPrefetch() int { return min(2*s.o.Concurrency, maxPrefetch) }

// intake is one subscription of one queue.
type intake struct {
	s     *session
	rank  rank
	sub   broker.Subscription
	acks  *acks
	again string // where tickets go that it cannot take
	turns chan struct{}
	ahead ahead
	// heard is when the last delivery came, and calm whether none had come for a while before it.
	heard time.Time
	calm  bool
	// prefetch is what the broker was last told: less than usual after a pause.
	prefetch int
}

// receive takes pages until the subscription is over or ctx is done, and returns
// when their messages are acked or left to be delivered again.
func (s *session) receive(ctx context.Context, sub broker.Subscription, again string, by rank) error {
	in := &intake{
		s: s, rank: by, sub: sub, acks: &acks{sub: sub}, again: again,
		turns: make(chan struct{}, pagesInFlight), ahead: newAhead(s.o.Concurrency, s.fullPrefetch()), prefetch: s.fullPrefetch(),
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
			if err := in.take(ctx, in.received(delivery)); err != nil {
				return err
			}
		}
	}
}

// received notes a delivery, and reads it.
func (in *intake) received(d broker.Delivery) reading {
	now := time.Now()
	in.calm, in.heard = now.Sub(in.heard) > calmAfter, now
	in.acks.received(d.Tag)
	return read(d)
}

// take finds a turn for a delivery's page and room for its tasks, gathers what else there is, and
// starts the page. Waiting for the turn first lets pages grow with the load.
func (in *intake) take(ctx context.Context, first reading) error {
	limit := patience
	if in.rank == preferred {
		limit = preferredPatience
	}
	select { // before the places, which other queues could use while this one waits for its turn
	case in.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p := in.s.newPage()
	next, found := in.skim(p, first)
	if !found {
		in.start(ctx, p)
		return nil
	}
	reserved := in.s.room.reserve(ctx, len(next.message.Tickets), maxPage, limit, in.rank)
	if reserved == 0 {
		in.start(ctx, p)
		return in.rest(ctx, next.Delivery)
	}
	p.add(next)
	if !in.calm { // after a calm a lone ticket waits for nobody: what comes next is the next page's
		in.gather(p, reserved)
	}
	in.ahead.see(len(p.tickets), len(p.tags))
	if more := len(p.tickets) - reserved; more > 0 && (in.rank == preferred || !in.s.room.bears(more)) {
		p.passOn(in.again, reserved)
	}
	p.into = in.s.room.settle(reserved, len(p.tickets), in.rank)
	err := in.widen()
	in.start(ctx, p)
	return err
}

// start processes a page, and gives its turn to the next one afterwards.
func (in *intake) start(ctx context.Context, p *page) {
	in.s.takers.Go(func() {
		defer func() { <-in.turns }()
		p.process(ctx, in.acks)
	})
}

// skim adds deliveries that carry no tickets to the page and returns the first one that does, if there is one: what
// needs no executor must not wait for one, with the tasks behind it.
func (in *intake) skim(p *page, next reading) (reading, bool) {
	timer := time.NewTimer(gatherGap)
	defer timer.Stop()
	for len(next.message.Tickets) == 0 {
		p.add(next)
		if len(p.tags) == maxSkimmed {
			return reading{}, false
		}
		select {
		case delivery, open := <-in.sub.Deliveries():
			if !open {
				return reading{}, false // receive sees it too
			}
			next = in.received(delivery)
			timer.Reset(gatherGap)
		case <-timer.C:
			return reading{}, false
		}
	}
	return next, true
}

// gatherGap ends a page when no further delivery comes for this long: they come
// in bursts, with microseconds in between.
const gatherGap = 300 * time.Microsecond

// calmAfter is how long no delivery came when the next one is alone, most likely.
const calmAfter = 5 * time.Millisecond

// gather reads further deliveries into the page until it is full or none comes.
func (in *intake) gather(p *page, granted int) {
	timer := time.NewTimer(gatherGap)
	defer timer.Stop()
	for len(p.tickets) < granted {
		select {
		case delivery, open := <-in.sub.Deliveries():
			if !open {
				return // receive sees it too
			}
			p.add(in.received(delivery))
			timer.Reset(gatherGap)
		case <-timer.C:
			return
		}
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
	free := in.s.room.reserve(ctx, 1, maxPage, 0, ordinary)
	in.s.room.settle(free, 0, ordinary) // it was only to know that there are some
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Only as much as can run now: with long tasks the rest would come back anyway, and each
	// return counts against a message's deliveries.
	in.prefetch = max(1, min(free, in.ahead.messages))
	return in.sub.Resume(in.prefetch)
}

// widen makes the prefetch the usual one again: a smaller one once half of the executors are free.
func (in *intake) widen() error {
	usual := in.ahead.messages
	if in.prefetch == usual || in.prefetch < usual && in.s.room.free() < in.s.o.Concurrency/2 {
		return nil
	}
	if err := in.sub.Pause(); err != nil {
		return err
	}
	in.prefetch = usual
	return in.sub.Resume(usual)
}
