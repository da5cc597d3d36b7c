package rabbitmq

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// RabbitMQ can forget a consumer without a word. Seen on a cluster of 3.10.8: quorum queues with consumers on several nodes
// were deleted; the consumers of some were cancelled, those of one were not, and when that queue had been declared
// anew its messages waited for subscriptions that were as quiet as those of an empty queue. So a subscription that has
// received nothing for a while takes a new consumer, and sooner when a consumer beside it was cancelled.

// soonAfter is when a subscription does so after a cancelled neighbour: the queues should be there again by then.
const soonAfter = 3 * time.Second

// quiet tells a pump when it has received nothing for too long.
type quiet struct {
	limit time.Duration
	timer *time.Timer
	heard time.Time // of the last delivery
	doubt <-chan struct{}
}

func newQuiet(limit time.Duration, doubt <-chan struct{}) quiet {
	// Not all at once: processes that start together would renew together for ever.
	first := limit/2 + time.Duration(rand.Int64N(int64(limit)))
	return quiet{limit: limit, timer: time.NewTimer(first), heard: time.Now(), doubt: doubt}
}

// over reports, when the timer has fired, whether it was quiet for the whole time; it sets the timer again.
func (q *quiet) over() bool {
	left := q.limit - time.Since(q.heard)
	if left <= 0 {
		left = q.limit
		q.heard = time.Now()
		q.timer.Reset(left)
		return true
	}
	q.timer.Reset(left)
	return false
}

// doubts shortens the wait.
func (q *quiet) doubts(next <-chan struct{}) {
	q.doubt = next
	q.heard = time.Now().Add(min(soonAfter, q.limit) - q.limit)
	q.timer.Reset(min(soonAfter, q.limit))
}

// renewConsumer replaces the consumer, unless there is a sign that it lives: messages in hand, which cannot be told from
// those of the new one's prefetch.
func (p *pump) renewConsumer(ctx context.Context) error {
	p.mu.Lock()
	inHand := len(p.ledger.open)
	p.mu.Unlock()
	if p.in == nil || inHand > 0 {
		return nil
	}
	if err := p.pause(ctx); err != nil {
		return err
	}
	return p.consume(ctx, p.prefetch)
}

// rumour is told by one and heard by all who listen at the time.
type rumour struct {
	mu   sync.Mutex
	told chan struct{}
}

// listen returns a channel that is closed when the next rumour is told.
func (r *rumour) listen() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = make(chan struct{})
	}
	return r.told
}

func (r *rumour) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told != nil {
		close(r.told)
		r.told = nil
	}
}
