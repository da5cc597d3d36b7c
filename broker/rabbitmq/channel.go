package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

const (
	// requestLimit is for questions to a queue, which may be electing a leader.
	requestLimit = 10 * time.Second
	// lingerLimit is how long the end of a channel may remain unconfirmed. Its messages
	// are nobody's meanwhile, so after that the whole connection goes.
	lingerLimit = 30 * time.Second
)

// channel is one AMQP channel. After its end nothing of it reaches the wire: RabbitMQ
// answers a frame on a closed channel by closing the connection, with all
// other channels.
type channel struct {
	session *session
	amqp    *amqp.Channel
	ended   chan *amqp.Error // closed at the end, with the reason before it, if there is one
	closed  chan struct{}    // closed when close has been carried out

	mu         sync.Mutex
	over       bool
	unanswered <-chan struct{} // a request that was given up, until its answer comes
}

func newChannel(s *session, ch *amqp.Channel) *channel {
	return &channel{session: s, amqp: ch, ended: ch.NotifyClose(make(chan *amqp.Error, 1)), closed: make(chan struct{})}
}

// request asks RabbitMQ something and waits for the answer until ctx is done or the limit
// is over. After an error the channel can only be closed. Only one request may
// be under way at a time.
func (c *channel) request(ctx context.Context, ask func(*amqp.Channel) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestLimit, fmt.Errorf("RabbitMQ at %s did not answer within %s", c.session.node, requestLimit))
	defer cancel()
	var err error
	answered := make(chan struct{})
	c.session.work.Go(func() {
		err = ask(c.amqp)
		close(answered)
	})
	select {
	case <-answered:
		return err
	case <-ctx.Done():
		c.mu.Lock()
		c.unanswered = answered
		c.mu.Unlock()
		return context.Cause(ctx)
	}
}

// send writes something that is not answered. The error is ErrOver if the channel has
// ended, or ErrInvalid if write says so before it writes.
func (c *channel) send(write func(*amqp.Channel) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return broker.ErrOver
	}
	err := write(c.amqp)
	if err == nil || errors.Is(err, holdfast.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", broker.ErrOver, plain(err))
}

// usable reports whether the channel was still open a moment ago.
func (c *channel) usable() bool { return !c.amqp.IsClosed() }

// reason says why the channel ended, if RabbitMQ ended it.
func (c *channel) reason() error {
	select {
	case err := <-c.ended:
		if err != nil {
			return plain(err)
		}
	default:
	}
	return errors.New("the channel was closed")
}

// close begins to close the channel and does not wait for it; the returned channel
// is closed when that has been done.
func (c *channel) close() <-chan struct{} {
	c.mu.Lock()
	first := !c.over
	c.over = true
	unanswered := c.unanswered
	c.mu.Unlock()
	if !first {
		return c.closed
	}
	c.session.work.Go(func() {
		defer close(c.closed)
		linger := time.AfterFunc(lingerLimit, func() {
			if c.session.blockedWhy() == "" {
				c.session.kill(errors.New("it does not close a channel"))
			}
		})
		defer linger.Stop()
		if unanswered != nil {
			<-unanswered // its answer would be taken for the answer to the close
		}
		_ = c.amqp.Close() // an error says that it is closed already
	})
	return c.closed
}
