package consumer

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	// patience is how long received messages may wait for capacity. After it, the intake returns them to their AMQP
	// queue, so that an idle worker can take them.
	patience = 250 * time.Millisecond
	// requeuedPatience replaces patience for requeued tickets. It is longer because they take precedence for free
	// capacity.
	requeuedPatience = 500 * time.Millisecond
	// maxProcessing is the maximum number of pages of an intake that are being claimed or published. One page can be
	// claimed while another waits for its confirm. If the broker confirms nothing, the intake stops at this limit.
	maxProcessing = 3
	maxPage       = 512 // tickets
	maxTicketless = 256 // messages without tickets in one page
	maxPrefetch   = 1000
)

// consume receives from an AMQP queue of a subqueue or type queue until ctx is done. When a subscription ends, consume
// opens another one. It has no subscription while the queue is paused, so the tickets stay in the AMQP queue. It sends
// tickets that the worker cannot take to the requeue queue of the subqueue or type queue.
func (s *session) consume(worker context.Context, amqpQueue, name string, by rank) {
	subqueue, _ := holdfast.SplitTypeQueue(name)
	queue, _ := holdfast.SplitSubqueue(subqueue)
	for worker.Err() == nil {
		ctx, stop := s.paused.whileOpen(worker, queue)
		s.consumeOpen(ctx, worker, amqpQueue, s.o.Topology.Requeue(name), by)
		stop()
		if worker.Err() == nil {
			s.setIntake(amqpQueue, errPaused)
			s.log.WithField("queue", queue).Info("queue paused: subscription ended")
			s.paused.awaitOpen(worker, queue)
		}
	}
}

// consumeOpen is consume for a queue that is not paused. A pause ends ctx. It does not end worker, so pages that were
// taken before the pause are processed to their end.
func (s *session) consumeOpen(ctx, worker context.Context, amqpQueue, requeue string, by rank) {
	log := s.log.WithField("queue", amqpQueue)
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		sub, err := s.o.Broker.Subscribe(ctx, amqpQueue, s.fullPrefetch())
		if err == nil {
			s.setIntake(amqpQueue, nil)
			began := time.Now()
			err = s.receive(ctx, worker, sub, requeue, by)
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
		s.setIntake(amqpQueue, err)
		log.WithError(err).Info("subscription ended, subscribing again")
		if pause.Wait(ctx) != nil {
			return
		}
	}
}

func (s *session) fullPrefetch() int { return min(2*s.o.Concurrency, maxPrefetch) }

// intake takes pages from one subscription.
type intake struct {
	s        *session
	rank     rank
	sub      broker.Subscription
	acks     *acks
	requeue  string        // the AMQP queue for tickets that the worker cannot take
	turns    chan struct{} // has one value for each page that is being processed
	estimate prefetchEstimate
	// lastDelivery is the time of the last delivery. idle reports whether no delivery arrived for some time before it.
	lastDelivery time.Time
	idle         bool
	prefetch     int // prefetch of the subscription; smaller than the estimate after a pause
}

// receive takes pages until the subscription ends or ctx is done. Its pages are processed until worker is done. When
// receive returns, each page is processed: its messages are acked, or the broker will deliver them again.
func (s *session) receive(ctx, worker context.Context, sub broker.Subscription, requeue string, by rank) error {
	in := &intake{
		s: s, rank: by, sub: sub, acks: &acks{sub: sub}, requeue: requeue,
		turns: make(chan struct{}, maxProcessing), estimate: newPrefetchEstimate(s.o.Concurrency, s.fullPrefetch()), prefetch: s.fullPrefetch(),
	}
	defer func() { // wait for the pages that are being processed
		for range maxProcessing {
			in.turns <- struct{}{}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case delivery, open := <-sub.Deliveries():
			if !open {
				return broker.ErrSubscriptionEnded
			}
			if err := in.take(ctx, worker, in.received(delivery)); err != nil {
				return err
			}
		}
	}
}

// received records a delivery and decodes it.
func (in *intake) received(d broker.Delivery) decoded {
	now := time.Now()
	in.idle, in.lastDelivery = now.Sub(in.lastDelivery) > idleAfter, now
	in.acks.received(d.Tag)
	return decode(d)
}

// take starts a page with the first delivery and the deliveries that follow it at once. It waits until a page may start
// and until the tasks have capacity. Deliveries accumulate meanwhile, so pages grow with the load.
func (in *intake) take(ctx, worker context.Context, first decoded) error {
	limit := patience
	if in.rank.requeued {
		limit = requeuedPatience
	}
	select { // wait here first, because other intakes can use the capacity meanwhile
	case in.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p := in.s.newPage()
	p.requeued = in.rank.requeued
	next, found := in.addTicketless(p, first)
	if !found {
		in.start(worker, p)
		return nil
	}
	reserved := in.s.capacity.reserve(ctx, len(next.message.Tickets), maxPage, limit, in.rank)
	if reserved == 0 {
		in.start(worker, p)
		return in.pauseUntilFree(ctx, next.Delivery)
	}
	p.add(next)
	if !in.idle { // after an idle time, the first ticket does not wait for further ones
		in.gather(p, reserved)
	}
	in.estimate.add(len(p.tickets), len(p.tags))
	if more := len(p.tickets) - reserved; more > 0 && (in.rank.requeued || !in.s.capacity.canExceed(more)) {
		p.passOn(in.requeue, reserved)
	}
	p.into = in.s.capacity.assign(reserved, len(p.tickets), in.rank)
	err := in.restorePrefetch()
	in.start(worker, p)
	return err
}

// start processes a page in a goroutine.
func (in *intake) start(ctx context.Context, p *page) {
	in.s.receivers.Go(func() {
		defer func() { <-in.turns }()
		p.process(ctx, in.acks)
	})
}

// addTicketless adds deliveries without tickets to the page, and returns the first delivery with tickets. It returns
// false if there is none. Deliveries without tickets need no executor, so they do not wait for capacity.
func (in *intake) addTicketless(p *page, next decoded) (decoded, bool) {
	timer := time.NewTimer(gatherGap)
	defer timer.Stop()
	for len(next.message.Tickets) == 0 {
		p.add(next)
		if len(p.tags) == maxTicketless {
			return decoded{}, false
		}
		select {
		case delivery, open := <-in.sub.Deliveries():
			if !open {
				return decoded{}, false // receive sees the closed channel, too
			}
			next = in.received(delivery)
			timer.Reset(gatherGap)
		case <-timer.C:
			return decoded{}, false
		}
	}
	return next, true
}

const (
	// gatherGap is how long a page waits for a further delivery. Deliveries come in bursts, microseconds apart.
	gatherGap = 300 * time.Microsecond
	// idleAfter is a time without deliveries. After it, the next delivery probably arrives alone.
	idleAfter = 5 * time.Millisecond
)

// gather adds further deliveries to the page until the page has enough tickets or no delivery comes.
func (in *intake) gather(p *page, granted int) {
	timer := time.NewTimer(gatherGap)
	defer timer.Stop()
	for len(p.tickets) < granted {
		select {
		case delivery, open := <-in.sub.Deliveries():
			if !open {
				return // receive sees the closed channel, too
			}
			p.add(in.received(delivery))
			timer.Reset(gatherGap)
		case <-timer.C:
			return
		}
	}
}

// pauseUntilFree returns the untaken delivery and all prefetched deliveries to the AMQP queue. It pauses the
// subscription until there is capacity.
func (in *intake) pauseUntilFree(ctx context.Context, untaken broker.Delivery) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := in.sub.Pause(); err != nil {
		return err
	}
	if err := in.acks.requeue([]uint64{untaken.Tag}); err != nil {
		return err
	}
	by := rank{priority: in.rank.priority}
	free := in.s.capacity.reserve(ctx, 1, maxPage, 0, by)
	in.s.capacity.assign(free, 0, by) // gives the capacity back
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Prefetch only messages that can run now. If tasks are long, the others would return to the AMQP queue anyway, and
	// each return counts as a delivery of the message.
	in.prefetch = max(1, min(free, in.estimate.messages))
	return in.sub.Resume(in.prefetch)
}

// restorePrefetch sets the prefetch to the estimate. It raises the prefetch only when half of the executors have
// capacity.
func (in *intake) restorePrefetch() error {
	usual := in.estimate.messages
	if in.prefetch == usual || in.prefetch < usual && in.s.capacity.free() < in.s.o.Concurrency/2 {
		return nil
	}
	if err := in.sub.Pause(); err != nil {
		return err
	}
	in.prefetch = usual
	return in.sub.Resume(usual)
}
