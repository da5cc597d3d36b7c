package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/presence"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// A sign is an exclusive queue, which RabbitMQ deletes with the connection that declared it, and locks for all others until
// then. Signs have a link of their own: a question to a queue that hangs can cost a connection, and must not cost a sign.

var _ presence.Broker = (*Broker)(nil)

// The flags of a sign. Every version from 3.10 to 4.3 takes a transient queue if it is exclusive.
const (
	transient  = false // not durable
	exclusive  = true
	noAck      = true
	firstLook  = 5 * time.Millisecond // pauses until it is asked again whether a name is free
	rarestLook = 250 * time.Millisecond
)

// sign is one that is shown.
type sign struct {
	name    string
	channel *channel
	cancels <-chan string
	gone    chan struct{} // closed if it ended without a release
	stop    chan struct{} // closed by the release
	once    sync.Once
	done    chan struct{} // closed when it has ended and was taken back
}

// Show implements [presence.Broker]. It also waits while this Broker shows the name itself, or while there is a queue of that
// name which is no sign; the error has RabbitMQ's words. Release waits, for a moment, until RabbitMQ has deleted the queue.
func (b *Broker) Show(ctx context.Context, name string) (gone <-chan struct{}, release func(), err error) {
	leave, err := b.enter()
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	free, err := b.reserve(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("show the sign %q: %w", name, err)
	}
	s, err := b.show(ctx, name, free)
	if err != nil {
		return nil, nil, fmt.Errorf("show the sign %q: %w", name, err)
	}
	b.work.Go(func() {
		defer close(s.done)
		defer free()
		s.wait()
	})
	return s.gone, s.release, nil
}

// reserve makes sure that this Broker has one sign of a name. RabbitMQ would not mind two: they would be one and the same
// queue, and the first to be released would end both.
func (b *Broker) reserve(ctx context.Context, name string) (free func(), err error) {
	mine := make(chan struct{})
	for {
		other, taken := b.signs.LoadOrStore(name, mine)
		if !taken {
			return func() {
				b.signs.Delete(name)
				close(mine)
			}, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, unavailable(fmt.Errorf("this process shows it already: %w", ctx.Err()))
		}
	}
}

// show tries until ctx is done: the name may be another connection's, and connections come and go. It frees the name if it
// fails.
func (b *Broker) show(ctx context.Context, name string, free func()) (shown *sign, err error) {
	var doubtful *sign // that may have been declared, or may still be
	defer func() {
		switch {
		case doubtful != nil:
			b.work.Go(func() {
				defer free()
				doubtful.remove()
			})
		case err != nil:
			free()
		}
	}()
	pause := backoff.New(firstLook, rarestLook)
	for {
		session, err := b.presence.wait(ctx)
		if err != nil {
			return nil, err
		}
		s, err := declareSign(ctx, session, name)
		broken := new(net.OpError) // a write can fail before the driver knows that the connection has ended
		switch {
		case err == nil:
			return s, nil
		case session.conn.IsClosed(), errors.As(err, &broken), replied(err, amqp.ResourceLocked), replied(err, amqp.NotFound):
		case replied(err, amqp.PreconditionFailed):
			return nil, fmt.Errorf("%w: there is a queue of that name in another form: %w", holdfast.ErrConflict, plain(err))
		default:
			doubtful = s
			return nil, unavailable(err)
		}
		if pause.Wait(ctx) != nil {
			return nil, unavailable(err)
		}
	}
}

// declareSign makes the queue and consumes from it: nobody is told of the end of a queue that he does not consume. With an error
// it returns what it may have made, if it has come as far as that.
func declareSign(ctx context.Context, session *session, name string) (*sign, error) {
	ch, err := session.open(ctx)
	if err != nil {
		return nil, err
	}
	s := &sign{name: name, channel: ch, cancels: ch.amqp.NotifyCancel(make(chan string, 1)),
		gone: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	err = ch.request(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare(name, transient, notAutoDelete, exclusive, waitForAnswer, nil); err != nil {
			return err
		}
		deliveries, err := ch.Consume(name, newID(), noAck, exclusive, ownToo, waitForAnswer, nil)
		if err != nil {
			return err
		}
		session.work.Go(func() {
			for range deliveries { // a sign carries no messages: what somebody sends is dropped
			}
		})
		return nil
	})
	if err != nil {
		ch.close()
	}
	return s, err
}

// wait returns when the sign has ended and RabbitMQ has nothing of it any more.
func (s *sign) wait() {
	select {
	case <-s.stop:
	case <-s.channel.ended:
		close(s.gone)
	case <-s.cancels:
		close(s.gone)
	}
	s.remove()
}

func (s *sign) release() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// remove deletes the queue, unless the connection that it belongs to has ended. A request that hangs comes first. It is no
// failure if there is nothing to delete, if the queue is another connection's, or if it could not be made in the first place.
func (s *sign) remove() {
	session := s.channel.session
	closed := s.channel.close()
	late := fmt.Errorf("RabbitMQ at %s did not answer within %s", session.node, closeLimit)
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeLimit, late)
	defer cancel()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	a := &admin{session: session}
	err := a.ask(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(s.name, evenIfUsed, evenIfFull, waitForAnswer)
		return err
	})
	if a.channel != nil {
		a.channel.close()
	}
	if err != nil && !session.conn.IsClosed() && !replied(err, amqp.ResourceLocked) && !replied(err, amqp.AccessRefused) {
		session.options.Log.WithField("sign", s.name).WithError(plain(err)).
			Warn("a sign could not be taken back: others see it until this connection ends")
	}
}

// Shown implements [presence.Broker].
func (b *Broker) Shown(ctx context.Context, name string) (shown bool, err error) {
	err = b.administer(ctx, func(a *admin) error {
		err := a.ask(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name, transient, notAutoDelete, exclusive, waitForAnswer, nil)
			return err
		})
		switch {
		case replied(err, amqp.NotFound):
			return nil
		case err == nil, replied(err, amqp.ResourceLocked):
			shown = true
			return nil
		}
		return fmt.Errorf("look for the sign %q: %w", name, unavailable(err))
	})
	return shown, err
}
