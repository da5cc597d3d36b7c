package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast/broker"
)

// Flags of consumer requests.
const (
	perConsumer   = false // for basic.qos: prefetch per consumer, not for the whole channel
	manualAck     = false
	notExclusive  = false // quorum queues ignore exclusive
	includeOwn    = false // RabbitMQ ignores no-local
	single        = false // for basic.nack
	requeue       = true
	unlimitedSize = 0
)

// subscription is one channel with at most one consumer. Its pump makes all requests. Callers send settlements
// directly.
type subscription struct {
	channel  *channel
	queue    string
	out      chan broker.Delivery // unbuffered: a sent delivery has been received
	commands chan command
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when the pump has ended

	mu     sync.Mutex
	ledger ledger
}

// command is a Pause (prefetch 0) or a Resume (prefetch above 0).
type command struct {
	prefetch int
	done     chan<- error
}

// Subscribe implements [broker.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	if err := broker.CheckPrefetch(prefetch); err != nil {
		return nil, err
	}
	endCall, err := b.beginCall()
	if err != nil {
		return nil, err
	}
	defer endCall()
	for {
		s, err := b.consume.wait(ctx)
		if err != nil {
			return nil, err
		}
		sub, err := subscribe(ctx, s, queue, prefetch)
		switch {
		case err == nil:
			return sub, nil
		case replied(err, amqp.NotFound):
			return nil, fmt.Errorf("subscribe to %q: %w", queue, broker.ErrNoQueue)
		case ctx.Err() != nil || !s.conn.IsClosed():
			return nil, fmt.Errorf("subscribe to %q: %w", queue, unavailable(err))
		}
	}
}

func subscribe(ctx context.Context, s *session, queue string, prefetch int) (*subscription, error) {
	ch, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	p := &pump{
		subscription: &subscription{
			channel: ch, queue: queue,
			out: make(chan broker.Delivery), commands: make(chan command),
			stop: make(chan struct{}), done: make(chan struct{}),
		},
		cancels: ch.amqp.NotifyCancel(make(chan string, 8)),
		idle:    newIdleTimer(s.options.RenewAfter, s.consumerCancelled.next()),
	}
	if err := p.consume(ctx, prefetch); err != nil {
		ch.close()
		return nil, err
	}
	s.work.Go(func() { p.run(context.WithoutCancel(ctx)) })
	return p.subscription, nil
}

// Deliveries implements [broker.Subscription].
func (s *subscription) Deliveries() <-chan broker.Delivery { return s.out }

// Ack implements [broker.Subscription].
func (s *subscription) Ack(tag uint64, mode broker.AckMode) error {
	return s.channel.send(func(ch *amqp.Channel) error {
		amqpTag, err := s.settle(tag, mode)
		if err != nil || amqpTag == 0 {
			return err
		}
		return ch.Ack(amqpTag, mode == broker.UpTo)
	})
}

// Requeue implements [broker.Subscription]. It requeues the deliveries in the order of their tags.
func (s *subscription) Requeue(tags ...uint64) error {
	tags = slices.Sorted(slices.Values(tags))
	return s.channel.send(func(ch *amqp.Channel) error {
		for _, tag := range tags {
			amqpTag, err := s.settle(tag, broker.One)
			if err != nil {
				return err
			}
			if amqpTag == 0 {
				continue
			}
			if err := ch.Nack(amqpTag, single, requeue); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *subscription) settle(tag uint64, mode broker.AckMode) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.settle(tag, mode)
}

// Pause implements [broker.Subscription].
func (s *subscription) Pause() error { return s.command(0) }

// Resume implements [broker.Subscription].
func (s *subscription) Resume(prefetch int) error {
	if err := broker.CheckPrefetch(prefetch); err != nil {
		return err
	}
	return s.command(prefetch)
}

func (s *subscription) command(prefetch int) error {
	done := make(chan error, 1)
	select {
	case s.commands <- command{prefetch, done}:
		return <-done
	case <-s.done:
		return broker.ErrSubscriptionEnded
	}
}

// Close implements [broker.Subscription]. It waits, at most closeLimit, until RabbitMQ has requeued the unsettled
// messages.
func (s *subscription) Close() error {
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.done
	return nil
}
