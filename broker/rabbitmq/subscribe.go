package rabbitmq

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// The flags of the requests of a consumer.
const (
	perConsumer   = false // of basic.qos: not one prefetch for the whole channel
	manualAck     = false
	notExclusive  = false // quorum queues ignore it
	ownToo        = false // RabbitMQ ignores no-local
	single        = false // of basic.nack
	toTheQueue    = true
	unlimitedSize = 0
)

// subscription is one channel with at most one consumer. Its pump goroutine makes all requests;
// settlements go to the wire directly.
type subscription struct {
	channel  *channel
	queue    string
	out      chan broker.Delivery // not buffered: what left it was received by somebody
	commands chan command
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{} // closed when the pump has ended

	mu     sync.Mutex
	ledger ledger
}

// command is a Pause (prefetch 0) or a Resume.
type command struct {
	prefetch int
	done     chan<- error
}

// Subscribe implements [broker.Subscriber].
func (b *Broker) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	if err := checkPrefetch(prefetch); err != nil {
		return nil, err
	}
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
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

func checkPrefetch(prefetch int) error {
	if prefetch < 1 || prefetch > 65535 {
		return fmt.Errorf("%w: prefetch %d is not within 1 and 65535", holdfast.ErrInvalid, prefetch)
	}
	return nil
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
		quiet:   newQuiet(s.options.RenewAfter, s.cancelled.listen()),
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
		wire, err := s.settle(tag, mode)
		if err != nil || wire == 0 {
			return err
		}
		return ch.Ack(wire, mode == broker.UpTo)
	})
}

// Requeue implements [broker.Subscription]. The deliveries keep their order.
func (s *subscription) Requeue(tags ...uint64) error {
	tags = slices.Sorted(slices.Values(tags))
	return s.channel.send(func(ch *amqp.Channel) error {
		for _, tag := range tags {
			wire, err := s.settle(tag, broker.One)
			if err != nil {
				return err
			}
			if wire == 0 {
				continue
			}
			if err := ch.Nack(wire, single, toTheQueue); err != nil {
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
	if err := checkPrefetch(prefetch); err != nil {
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
		return broker.ErrOver
	}
}

// Close implements [broker.Subscription]. It waits, for a moment, until RabbitMQ has
// taken the unsettled messages back.
func (s *subscription) Close() error {
	s.stopOnce.Do(func() { close(s.stop) })
	<-s.done
	return nil
}

// linger lets Close wait for the channel's end, as long as that may reasonably take.
func linger(closed <-chan struct{}) {
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}
