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
	// requestLimit is the time limit of a request that a queue must answer. The queue may be electing a leader.
	requestLimit = 10 * time.Second
	// channelCloseLimit is the time limit of closing a channel. No other consumer gets its messages before the channel
	// is closed. After that time the session drops the whole connection.
	channelCloseLimit = 30 * time.Second
)

// channel is one AMQP channel. After its end it sends no frames, because RabbitMQ replies to a frame on a closed
// channel by closing the connection with all its channels.
type channel struct {
	session *session
	amqp    *amqp.Channel
	ended   chan *amqp.Error // receives the error that ended the channel, if any, and is then closed
	closed  chan struct{}    // closed when close has finished

	mu         sync.Mutex
	closing    bool
	unanswered <-chan struct{} // closed when the answer to an abandoned request arrives
}

func newChannel(s *session, ch *amqp.Channel) *channel {
	return &channel{session: s, amqp: ch, ended: ch.NotifyClose(make(chan *amqp.Error, 1)), closed: make(chan struct{})}
}

// request makes a call that waits for a reply. It returns when the reply arrives, when ctx is done, or after
// requestLimit. After an error the caller must close the channel. Only one request may be in progress at a time.
func (c *channel) request(ctx context.Context, call func(*amqp.Channel) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestLimit, fmt.Errorf("RabbitMQ at %s did not answer within %s", c.session.node, requestLimit))
	defer cancel()
	var err error
	answered := make(chan struct{})
	c.session.work.Go(func() {
		err = call(c.amqp)
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

// send makes a call that has no reply. It returns broker.ErrSubscriptionEnded if the channel has ended. If write
// returns holdfast.ErrInvalid, send returns that error, and nothing is written.
func (c *channel) send(write func(*amqp.Channel) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return broker.ErrSubscriptionEnded
	}
	err := write(c.amqp)
	if err == nil || errors.Is(err, holdfast.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", broker.ErrSubscriptionEnded, plain(err))
}

// usable reports whether the channel is open. The channel may end at any time after the call.
func (c *channel) usable() bool { return !c.amqp.IsClosed() }

// reason returns why RabbitMQ closed the channel, or a general error.
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

// close starts to close the channel and does not wait. It returns a channel that is closed when the AMQP channel is
// closed.
func (c *channel) close() <-chan struct{} {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	unanswered := c.unanswered
	c.mu.Unlock()
	if !first {
		return c.closed
	}
	c.session.work.Go(func() {
		defer close(c.closed)
		timer := time.AfterFunc(channelCloseLimit, func() {
			if c.session.blockedReason() == "" {
				c.session.kill(errors.New("a channel did not close in time"))
			}
		})
		defer timer.Stop()
		if unanswered != nil {
			<-unanswered // otherwise the driver would treat its answer as the reply to the close
		}
		_ = c.amqp.Close() // fails only if the channel is closed already
	})
	return c.closed
}
