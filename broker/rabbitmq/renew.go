package rabbitmq

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// RabbitMQ can forget a consumer without notice. This was observed on a 3.10.8 cluster: quorum queues with consumers on
// several nodes were deleted, and RabbitMQ did not cancel the consumers of one of them. After that queue was declared
// again, its messages waited while its old subscriptions looked like those of an empty queue. So a subscription that
// has received nothing for some time replaces its consumer. It does so sooner if RabbitMQ cancels another consumer of
// the session.

// soonRenewal is the wait after RabbitMQ cancelled another consumer. By then the queues should be declared again.
const soonRenewal = 3 * time.Second

// idleTimer signals its pump when the subscription has received nothing for limit.
type idleTimer struct {
	limit            time.Duration
	timer            *time.Timer
	idleSince        time.Time // time of the last delivery, renewal or creation; shorten moves it back
	siblingCancelled <-chan struct{}
}

func newIdleTimer(limit time.Duration, siblingCancelled <-chan struct{}) idleTimer {
	// The first wait is random, so that processes that start together do not renew together.
	first := limit/2 + time.Duration(rand.Int64N(int64(limit)))
	return idleTimer{limit: limit, timer: time.NewTimer(first), idleSince: time.Now(), siblingCancelled: siblingCancelled}
}

// expired is called when the timer fires. It reports whether nothing was received for the whole limit, and resets the
// timer.
func (t *idleTimer) expired() bool {
	left := t.limit - time.Since(t.idleSince)
	idle := left <= 0
	if idle {
		left, t.idleSince = t.limit, time.Now()
	}
	t.timer.Reset(left)
	return idle
}

// shorten reduces the wait to soonRenewal and sets the next channel to watch.
func (t *idleTimer) shorten(next <-chan struct{}) {
	t.siblingCancelled = next
	t.idleSince = time.Now().Add(min(soonRenewal, t.limit) - t.limit)
	t.timer.Reset(min(soonRenewal, t.limit))
}

// renewConsumer replaces the consumer. It does nothing if the subscription is paused or has unsettled messages: they
// show that the consumer worked, and their prefetch cannot be separated from that of a new consumer.
func (p *pump) renewConsumer(ctx context.Context) error {
	p.mu.Lock()
	unsettled := len(p.ledger.open)
	p.mu.Unlock()
	if p.in == nil || unsettled > 0 {
		return nil
	}
	if err := p.pause(ctx); err != nil {
		return err
	}
	return p.consume(ctx, p.prefetch)
}

// broadcast notifies all goroutines that wait for its next event.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// next returns a channel that is closed at the next notify.
func (r *broadcast) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ch == nil {
		r.ch = make(chan struct{})
	}
	return r.ch
}

func (r *broadcast) notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ch != nil {
		close(r.ch)
		r.ch = nil
	}
}
