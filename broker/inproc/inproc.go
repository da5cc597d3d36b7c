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

// Options for a Broker; the zero value is usable.
type Options struct {
	// Log takes what happens to messages that are given back too often; nil discards it.
	Log logrus.FieldLogger
}

// Broker is a broker of its own, not a client of one: what one Broker holds, no other
// can see. It is safe for concurrent use.
type Broker struct {
	log  logrus.FieldLogger
	work sync.WaitGroup // the pump of every subscription

	// One lock for everything: what a message costs under it is much less than what it
	// costs to store a task, and a message can change its queue without a moment in neither.
	mu        sync.Mutex
	closed    bool
	queues    map[string]*queue
	exchanges map[string]map[string]any // their arguments
}

var _ broker.Broker = (*Broker)(nil)

var errClosed = fmt.Errorf("%w: the in-process broker was closed", holdfast.ErrUnavailable)

// Open returns a broker without any queue. It starts nothing; only subscriptions have
// goroutines.
func Open(options Options) *Broker {
	return &Broker{
		log:       logs.Limited(options.Log),
		queues:    make(map[string]*queue),
		exchanges: make(map[string]map[string]any),
	}
}

// Close implements [broker.Broker]. Everything in the broker is gone then.
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

// Interrupt ends every subscription, as the loss of a connection does with other brokers, and
// returns when their messages are back in their queues. It is a fault to inject: nothing in the
// program calls it, tests of the program can.
func (b *Broker) Interrupt() {
	b.mu.Lock()
	ended := b.stop()
	b.mu.Unlock()
	await(ended)
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

// enter takes the lock, unless the call comes too late; leave gives it back.
func (b *Broker) enter(ctx context.Context) (leave func(), err error) {
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

// stop has all subscriptions end and returns them.
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
	return slices.Clone(q.subs) // each of them takes itself off the list
}

// await waits until the subscriptions are over. It must be called without the lock.
func await(subs []*subscription) {
	for _, s := range subs {
		<-s.done
	}
}
