package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast/broker"
)

var errCancelled = errors.New("RabbitMQ cancelled the consumer")

// pump moves deliveries from the driver to the reader and executes commands in between.
type pump struct {
	*subscription
	cancels <-chan string // tags of consumers that RabbitMQ cancelled

	prefetch int                  // prefetch of the consumer
	consumer string               // tag of the consumer
	in       <-chan amqp.Delivery // nil while paused
	next     broker.Delivery      // read from in, but not yet received by the reader
	hasNext  bool                 // whether next is set
	idle     idleTimer
}

// run returns when the subscription has ended.
func (p *pump) run(ctx context.Context) {
	defer close(p.done)
	defer p.idle.timer.Stop()
	err := p.serve(ctx)
	if errors.Is(err, errCancelled) {
		p.channel.session.consumerCancelled.notify()
	}
	closed := p.channel.close() // first, so that a reader that sees out closed cannot settle
	close(p.out)
	if err != nil {
		p.channel.session.options.Log.WithField("queue", p.queue).WithError(err).Info("subscription ended")
	}
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}

// serve runs the subscription until it ends. It returns nil after a call of Close, and otherwise the reason for the
// end.
func (p *pump) serve(ctx context.Context) error {
	for {
		in, out := p.in, chan<- broker.Delivery(nil)
		if p.hasNext {
			in, out = nil, p.out
		}
		select {
		case d, ok := <-in:
			if !ok {
				return p.endReason()
			}
			p.setNext(d)
		case out <- p.next:
			p.hasNext, p.next.Body = false, nil
		case c := <-p.commands:
			if err := p.execute(ctx, c); err != nil {
				return err
			}
		case <-p.stop:
			return nil
		case err := <-p.channel.ended:
			if err == nil {
				return errors.New("the channel was closed")
			}
			return plain(err)
		case <-p.cancels:
			return errCancelled
		case <-p.idle.siblingCancelled:
			p.idle.shorten(p.channel.session.consumerCancelled.next())
		case <-p.idle.timer.C:
			if p.idle.expired() {
				if err := p.renewConsumer(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// endReason returns why the driver closed the deliveries.
func (p *pump) endReason() error {
	select {
	case <-p.cancels:
		return errCancelled
	default:
		return p.channel.reason()
	}
}

// setNext records a delivery and its tag before the pump sends it, because the reader may settle it at once.
func (p *pump) setNext(d amqp.Delivery) {
	p.idle.idleSince = time.Now()
	p.mu.Lock()
	tag := p.ledger.add(d.DeliveryTag)
	p.mu.Unlock()
	p.next, p.hasNext = broker.Delivery{Tag: tag, Body: d.Body, Redelivered: d.Redelivered}, true
}

// execute executes a command. If it returns an error, the subscription must end.
func (p *pump) execute(ctx context.Context, c command) (err error) {
	switch {
	case c.prefetch == 0 && p.in != nil:
		err = p.pause(ctx)
	case c.prefetch > 0 && p.in == nil:
		err = p.consume(ctx, c.prefetch)
	}
	switch {
	case err == nil:
		c.done <- nil
	case replied(err, amqp.NotFound):
		c.done <- fmt.Errorf("%w: %w", broker.ErrSubscriptionEnded, broker.ErrNoQueue)
	default:
		c.done <- fmt.Errorf("%w: %w", broker.ErrSubscriptionEnded, plain(err))
	}
	return err
}

// consume starts a consumer. Each consumer has a new tag, so that late answers for an old consumer are recognized.
func (p *pump) consume(ctx context.Context, prefetch int) error {
	p.consumer, p.prefetch = newID(), prefetch
	return p.channel.request(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, unlimitedSize, perConsumer); err != nil {
			return err
		}
		p.in, err = ch.Consume(p.queue, p.consumer, manualAck, notExclusive, includeOwn, waitForAnswer, nil)
		return err
	})
}

func (p *pump) pause(ctx context.Context) error {
	err := p.channel.request(ctx, func(ch *amqp.Channel) error { return ch.Cancel(p.consumer, waitForAnswer) })
	if err != nil {
		return err
	}
	// RabbitMQ sends no deliveries after its reply. The driver passes on the deliveries that arrived before, and then
	// closes in.
	var back []uint64
	if p.hasNext {
		p.mu.Lock()
		back = append(back, p.ledger.withdraw())
		p.mu.Unlock()
		p.hasNext, p.next.Body = false, nil
	}
	for d := range p.in {
		back = append(back, d.DeliveryTag)
	}
	p.in = nil
	select {
	case <-p.cancels: // RabbitMQ cancelled the consumer at the same time
		return errCancelled
	default:
	}
	return p.channel.send(func(ch *amqp.Channel) error {
		for _, amqpTag := range back {
			if err := ch.Nack(amqpTag, single, requeue); err != nil {
				return err
			}
		}
		return nil
	})
}
