package rabbitmq

import (
	"context"
	"fmt"
	"maps"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Flags of all declarations and deletions.
const (
	durable        = true
	notAutoDelete  = false
	notInternal    = false
	evenIfUsed     = false // on quorum queues, if-unused and if-empty close the whole connection
	evenIfNotEmpty = false
)

// admin makes the requests of one call on the admin connection. When RabbitMQ refuses a request, the channel of the
// request ends.
type admin struct {
	session *session
	channel *channel // nil if the next request needs a new channel
}

func (b *Broker) withAdmin(ctx context.Context, do func(*admin) error) error {
	endCall, err := b.beginCall()
	if err != nil {
		return err
	}
	defer endCall()
	waitCtx, cancel := context.WithTimeout(ctx, b.options.DialTimeout)
	defer cancel()
	s, err := b.admin.wait(waitCtx)
	if err != nil {
		return err
	}
	a := &admin{session: s}
	defer func() {
		if a.channel != nil {
			a.channel.close()
		}
	}()
	return do(a)
}

func (a *admin) request(ctx context.Context, call func(*amqp.Channel) error) (err error) {
	if a.channel == nil {
		if a.channel, err = a.session.open(ctx); err != nil {
			return err
		}
	}
	if err = a.channel.request(ctx, call); err != nil {
		a.channel.close()
		a.channel = nil
	}
	return err
}

// Declare implements [broker.Admin].
func (b *Broker) Declare(ctx context.Context, objects []broker.Object) error {
	return b.withAdmin(ctx, func(a *admin) error {
		for _, o := range objects {
			if err := a.declare(ctx, o); err != nil {
				return err
			}
			if b.options.Declared != nil {
				b.options.Declared(o)
			}
		}
		return nil
	})
}

// Missing implements [broker.Admin].
func (b *Broker) Missing(ctx context.Context, objects []broker.Object) (missing []string, err error) {
	err = b.withAdmin(ctx, func(a *admin) error {
		for _, o := range objects {
			exists, _, err := a.inspect(ctx, o)
			if err != nil {
				return err
			}
			if !exists {
				missing = append(missing, o.Name)
			}
		}
		return nil
	})
	return missing, err
}

// Delete implements [broker.Admin].
func (b *Broker) Delete(ctx context.Context, objects []broker.Object) error {
	return b.withAdmin(ctx, func(a *admin) error {
		for _, o := range objects {
			err := a.request(ctx, func(ch *amqp.Channel) error {
				if o.Kind == broker.Exchange {
					return ch.ExchangeDelete(o.Name, evenIfUsed, waitForAnswer)
				}
				_, err := ch.QueueDelete(o.Name, evenIfUsed, evenIfNotEmpty, waitForAnswer)
				return err
			})
			if err != nil && !replied(err, amqp.NotFound) {
				return fmt.Errorf("delete %s: %w", o, unavailable(err))
			}
		}
		return nil
	})
}

// Depths implements [broker.Admin].
func (b *Broker) Depths(ctx context.Context, queues []string) (map[string]broker.Depth, error) {
	depths := make(map[string]broker.Depth, len(queues))
	err := b.withAdmin(ctx, func(a *admin) error {
		for _, name := range queues {
			exists, depth, err := a.inspect(ctx, broker.Object{Kind: broker.Queue, Name: name})
			if err != nil {
				return err
			}
			if exists {
				depths[name] = depth
			}
		}
		return nil
	})
	return depths, err
}

// inspect reports whether the object exists. It does not compare arguments.
func (a *admin) inspect(ctx context.Context, o broker.Object) (exists bool, depth broker.Depth, err error) {
	var queue amqp.Queue
	err = a.request(ctx, func(ch *amqp.Channel) (err error) {
		if o.Kind == broker.Exchange {
			return ch.ExchangeDeclarePassive(o.Name, amqp.ExchangeDirect, durable, notAutoDelete, notInternal, waitForAnswer, nil)
		}
		queue, err = ch.QueueDeclarePassive(o.Name, durable, notAutoDelete, notExclusive, waitForAnswer, nil)
		return err
	})
	switch {
	case replied(err, amqp.NotFound):
		return false, depth, nil
	case err != nil:
		return false, depth, fmt.Errorf("inspect %s: %w", o, unavailable(err))
	}
	return true, broker.Depth{Ready: queue.Messages, Consumers: queue.Consumers}, nil
}

// declare creates the object, or has RabbitMQ compare it with the existing object.
func (a *admin) declare(ctx context.Context, o broker.Object) error {
	args, err := table(o)
	if err != nil {
		return err
	}
	err = a.request(ctx, func(ch *amqp.Channel) error {
		if o.Kind == broker.Exchange {
			return ch.ExchangeDeclare(o.Name, amqp.ExchangeDirect, durable, notAutoDelete, notInternal, waitForAnswer, args)
		}
		_, err := ch.QueueDeclare(o.Name, durable, notAutoDelete, notExclusive, waitForAnswer, args)
		return err
	})
	switch {
	case replied(err, amqp.PreconditionFailed) && !limited(err):
		return fmt.Errorf("%w: %s cannot be declared, or exists with other arguments: %w", holdfast.ErrConflict, o, plain(err))
	case replied(err, amqp.AccessRefused):
		return holdfast.WithHint(fmt.Errorf("declare %s: %w", o, unavailable(err)), permissionHint)
	case err != nil:
		return fmt.Errorf("declare %s: %w", o, unavailable(err))
	}
	return nil
}

func table(o broker.Object) (amqp.Table, error) {
	args := make(amqp.Table, len(o.Args))
	maps.Copy(args, o.Args)
	return args, o.CheckArgs()
}
