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

// pump moves deliveries from the driver to the reader, and carries out commands in between.
type pump struct {
	*subscription
	cancels <-chan string // consumers that RabbitMQ cancelled

	prefetch int                  // of the consumer
	consumer string               // its tag
	in       <-chan amqp.Delivery // nil while paused
	next     broker.Delivery      // read from in, not yet received by the reader
	holds    bool                 // whether there is a next
	quiet    quiet
}

// run ends with the subscription.
func (p *pump) run(ctx context.Context) {
	defer close(p.done)
	defer p.quiet.timer.Stop()
	err := p.serve(ctx)
	if errors.Is(err, errCancelled) {
		p.channel.session.cancelled.tell()
	}
	closed := p.channel.close() // before out, so that who sees its end cannot settle any more
	close(p.out)
	if err != nil {
		p.channel.session.options.Log.WithField("queue", p.queue).WithError(err).Info("subscription is over")
	}
	linger(closed)
}

// serve returns when the subscription is over: nil if that was asked for, else the reason.
func (p *pump) serve(ctx context.Context) error {
	for {
		in, out := p.in, chan<- broker.Delivery(nil)
		if p.holds {
			in, out = nil, p.out
		}
		select {
		case d, ok := <-in:
			if !ok {
				return p.ending()
			}
			p.hold(d)
		case out <- p.next:
			p.holds, p.next.Body = false, nil
		case c := <-p.commands:
			if err := p.carryOut(ctx, c); err != nil {
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
		case <-p.quiet.doubt:
			p.quiet.doubts(p.channel.session.cancelled.listen())
		case <-p.quiet.timer.C:
			if p.quiet.over() {
				if err := p.renewConsumer(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// ending says why the driver stopped to deliver.
func (p *pump) ending() error {
	select {
	case <-p.cancels:
		return errCancelled
	default:
		return p.channel.reason()
	}
}

// hold gives the delivery its tag before it is offered: its reader may settle it at once.
func (p *pump) hold(d amqp.Delivery) {
	p.quiet.heard = time.Now()
	p.mu.Lock()
	tag := p.ledger.add(d.DeliveryTag)
	p.mu.Unlock()
	p.next, p.holds = broker.Delivery{Tag: tag, Body: d.Body, Redelivered: d.Redelivered}, true
}

// carryOut returns an error if the subscription is over because of it.
func (p *pump) carryOut(ctx context.Context, c command) (err error) {
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
		c.done <- fmt.Errorf("%w: %w", broker.ErrOver, broker.ErrNoQueue)
	default:
		c.done <- fmt.Errorf("%w: %w", broker.ErrOver, plain(err))
	}
	return err
}

// consume starts a consumer under a new tag: under an old one late answers could be mixed up.
func (p *pump) consume(ctx context.Context, prefetch int) error {
	p.consumer, p.prefetch = newID(), prefetch
	return p.channel.request(ctx, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, unlimitedSize, perConsumer); err != nil {
			return err
		}
		p.in, err = ch.Consume(p.queue, p.consumer, manualAck, notExclusive, ownToo, waitForAnswer, nil)
		return err
	})
}

func (p *pump) pause(ctx context.Context) error {
	err := p.channel.request(ctx, func(ch *amqp.Channel) error { return ch.Cancel(p.consumer, waitForAnswer) })
	if err != nil {
		return err
	}
	// RabbitMQ sends nothing more after its answer, and the driver hands out what came
	// before it and then closes in.
	var back []uint64
	if p.holds {
		p.mu.Lock()
		back = append(back, p.ledger.withdraw())
		p.mu.Unlock()
		p.holds, p.next.Body = false, nil
	}
	for d := range p.in {
		back = append(back, d.DeliveryTag)
	}
	p.in = nil
	select {
	case <-p.cancels: // in the same moment as our own cancel
		return errCancelled
	default:
	}
	return p.channel.send(func(ch *amqp.Channel) error {
		for _, wire := range back {
			if err := ch.Nack(wire, single, toTheQueue); err != nil {
				return err
			}
		}
		return nil
	})
}
