package inproc

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/logs"
)

// Options configures a Broker. The zero value is ready to use.
type Options struct {
	// Log receives messages about dead letters. If Log is nil, they are discarded.
	Log logrus.FieldLogger
}

// Broker is a complete broker, not a client of one. Two Brokers share no queues. It is safe for concurrent use.
type Broker struct {
	log  logrus.FieldLogger
	work sync.WaitGroup // the pumps of all subscriptions

	// One lock guards all queues. A message can therefore move between queues atomically. Such a move takes much less
	// time than storing a task.
	mu        sync.Mutex
	closed    bool
	queues    map[string]*queue
	exchanges map[string]map[string]any // arguments by name
}

var _ broker.Broker = (*Broker)(nil)

var errClosed = fmt.Errorf("%w: the in-process broker is closed", holdfast.ErrUnavailable)

// Open returns a broker without queues. It starts no goroutine; each subscription starts one.
func Open(options Options) *Broker {
	return &Broker{
		log:       logs.Limited(options.Log),
		queues:    make(map[string]*queue),
		exchanges: make(map[string]map[string]any),
	}
}

// Close implements [broker.Broker]. It removes all queues, exchanges and messages.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.stop()
	b.mu.Unlock()
	b.work.Wait()
	b.mu.Lock()
	clear(b.queues)
	clear(b.exchanges)
	b.mu.Unlock()
	return nil
}

// Interrupt ends every subscription, as a lost connection does with other brokers. It returns when the unsettled
// messages are back in their queues. Only tests call Interrupt.
func (b *Broker) Interrupt() {
	b.mu.Lock()
	ended := b.stop()
	b.mu.Unlock()
	waitEnded(ended)
}

// Health implements [broker.Admin].
func (b *Broker) Health() broker.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	health := broker.Health{Connected: !b.closed, Server: "in-process"}
	if b.closed {
		health.Err = errClosed
	}
	return health
}

// lock acquires the lock and returns the function that releases it. It returns holdfast.ErrUnavailable if ctx is done
// or the broker is closed.
func (b *Broker) lock(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", holdfast.ErrUnavailable, context.Cause(ctx))
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, errClosed
	}
	return b.mu.Unlock, nil
}

// stop requests the end of all subscriptions and returns them. The pump of each subscription then ends it.
func (b *Broker) stop() (subs []*subscription) {
	for _, q := range b.queues {
		subs = append(subs, q.stop()...)
	}
	return subs
}

func (q *queue) stop() []*subscription {
	for _, s := range q.subs {
		s.stop()
	}
	return slices.Clone(q.subs) // a clone, because each subscription removes itself from q.subs
}

// waitEnded waits until the subscriptions have ended. The caller must not hold the lock.
func waitEnded(subs []*subscription) {
	for _, s := range subs {
		<-s.done
	}
}
