package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/presence"
)

// A presence is an exclusive queue. RabbitMQ locks it for all other connections and deletes it when the connection that
// declared it ends. Presence queues have a link of their own: a request that hangs can cost a connection, and must not
// cost a presence.

var _ presence.Broker = (*Broker)(nil)

// The flags of a presence queue. RabbitMQ 3.10 to 4.3 supports transient queues if they are exclusive.
const (
	transient = false // not durable
	exclusive = true
	noAck     = true
	minPoll   = 5 * time.Millisecond // pauses between attempts to acquire a name
	maxPoll   = 250 * time.Millisecond
)

// presenceQueue is a presence of this Broker.
type presenceQueue struct {
	name    string
	channel *channel
	cancels <-chan string
	lost    chan struct{} // closed if the presence ended without a release
	stop    chan struct{} // closed by release
	once    sync.Once
	done    chan struct{} // closed when the presence has ended and its queue is deleted
}

// Acquire implements [presence.Broker]. It also waits while this Broker itself has the name, or while a queue with that
// name exists that is not a presence queue. Its errors contain RabbitMQ's reply. release waits a limited time until
// RabbitMQ has deleted the queue.
func (b *Broker) Acquire(ctx context.Context, name string) (lost <-chan struct{}, release func(), err error) {
	endCall, err := b.beginCall()
	if err != nil {
		return nil, nil, err
	}
	defer endCall()
	free, err := b.reserve(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("acquire presence %q: %w", name, err)
	}
	s, err := b.acquire(ctx, name, free)
	if err != nil {
		return nil, nil, fmt.Errorf("acquire presence %q: %w", name, err)
	}
	b.work.Go(func() {
		defer close(s.done)
		defer free()
		s.wait()
	})
	return s.lost, s.release, nil
}

// reserve ensures that this Broker has at most one presence of a name. RabbitMQ would accept a second declaration: both
// would be the same queue, and the first release would end both. reserve waits until the name is free or ctx is done.
func (b *Broker) reserve(ctx context.Context, name string) (free func(), err error) {
	mine := make(chan struct{})
	for {
		other, taken := b.presences.LoadOrStore(name, mine)
		if !taken {
			return func() {
				b.presences.Delete(name)
				close(mine)
			}, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, unavailable(fmt.Errorf("this process holds it already: %w", ctx.Err()))
		}
	}
}

// acquire tries to declare the presence queue until ctx is done. A try fails if another connection has the name or a
// connection is lost. If acquire fails, it calls free.
func (b *Broker) acquire(ctx context.Context, name string, free func()) (present *presenceQueue, err error) {
	var uncertain *presenceQueue // a queue that may have been declared, or may still be declared
	defer func() {
		switch {
		case uncertain != nil:
			b.work.Go(func() {
				defer free()
				uncertain.remove()
			})
		case err != nil:
			free()
		}
	}()
	pause := backoff.New(minPoll, maxPoll)
	for {
		session, err := b.presence.wait(ctx)
		if err != nil {
			return nil, err
		}
		s, err := declarePresence(ctx, session, name)
		broken := new(net.OpError) // a write can fail before the driver reports the end of the connection
		switch {
		case err == nil:
			return s, nil
		case session.conn.IsClosed(), errors.As(err, &broken), replied(err, amqp.ResourceLocked), replied(err, amqp.NotFound):
		case replied(err, amqp.PreconditionFailed) && !limited(err):
			return nil, fmt.Errorf("%w: a queue of that name exists with other properties: %w", holdfast.ErrConflict, plain(err))
		default:
			uncertain = s
			return nil, unavailable(err)
		}
		if pause.Wait(ctx) != nil {
			return nil, unavailable(err)
		}
	}
}

// declarePresence declares the queue and consumes from it, because RabbitMQ reports the deletion of a queue only to its
// consumers. If it fails after opening a channel, it also returns the queue, which may have been declared.
func declarePresence(ctx context.Context, session *session, name string) (*presenceQueue, error) {
	ch, err := session.open(ctx)
	if err != nil {
		return nil, err
	}
	s := &presenceQueue{name: name, channel: ch, cancels: ch.amqp.NotifyCancel(make(chan string, 1)),
		lost: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	err = ch.request(ctx, func(ch *amqp.Channel) error {
		if _, err := ch.QueueDeclare(name, transient, notAutoDelete, exclusive, waitForAnswer, nil); err != nil {
			return err
		}
		deliveries, err := ch.Consume(name, newID(), noAck, exclusive, includeOwn, waitForAnswer, nil)
		if err != nil {
			return err
		}
		session.work.Go(func() {
			for range deliveries { // a presence queue carries no messages: drop any that arrive
			}
		})
		return nil
	})
	if err != nil {
		ch.close()
	}
	return s, err
}

// wait returns when the presence has ended and its queue is deleted.
func (s *presenceQueue) wait() {
	select {
	case <-s.stop:
	case <-s.channel.ended:
		close(s.lost)
	case <-s.cancels:
		close(s.lost)
	}
	s.remove()
}

func (s *presenceQueue) release() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// remove deletes the queue, unless its connection has ended. It first waits a limited time for a request that hangs. It
// logs no warning if the queue does not exist, belongs to another connection, or could not be declared.
func (s *presenceQueue) remove() {
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
	err := a.request(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(s.name, evenIfUsed, evenIfNotEmpty, waitForAnswer)
		return err
	})
	if a.channel != nil {
		a.channel.close()
	}
	if err != nil && !session.conn.IsClosed() && !replied(err, amqp.ResourceLocked) && !replied(err, amqp.AccessRefused) {
		session.options.Log.WithField("sign", s.name).WithError(plain(err)).
			Warn("cannot delete presence queue: other processes see it until this connection ends")
	}
}

// Present implements [presence.Broker].
func (b *Broker) Present(ctx context.Context, name string) (present bool, err error) {
	err = b.withAdmin(ctx, func(a *admin) error {
		err := a.request(ctx, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name, transient, notAutoDelete, exclusive, waitForAnswer, nil)
			return err
		})
		switch {
		case replied(err, amqp.NotFound):
			return nil
		case err == nil, replied(err, amqp.ResourceLocked):
			present = true
			return nil
		}
		return fmt.Errorf("look up presence %q: %w", name, unavailable(err))
	})
	return present, err
}
