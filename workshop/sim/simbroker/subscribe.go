package simbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast/broker"
)

// Subscribe implements [broker.Subscriber].
func (c *Client) Subscribe(ctx context.Context, queue string, prefetch int) (broker.Subscription, error) {
	if err := broker.CheckPrefetch(prefetch); err != nil {
		return nil, err
	}
	for {
		v, err := c.await(ctx, consuming)
		if err != nil {
			return nil, err
		}
		s, err := c.subscribe(ctx, v, queue, prefetch)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errLost) || ctx.Err() != nil { // after a loss, it waits for the next connection
			return nil, fmt.Errorf("subscribe to %q: %w", queue, err)
		}
	}
}

// subscribe tries once, over one connection.
func (c *Client) subscribe(ctx context.Context, v *conn, queue string, prefetch int) (*subscription, error) {
	s := newSubscription(v, queue, prefetch)
	c.broker.mu.Lock()
	v.subs = append(v.subs, s)
	c.broker.unlock()
	var answer error
	err := c.call(ctx, v, requestLimit, Step{"subscribe", func() string { return short(queue) }}, func(Fate) {
		q := c.broker.queues[queue]
		switch {
		case v.dead:
			answer = errLost
		case s.abandoned: // the close of the channel follows at once
		case q == nil:
			answer = broker.ErrNoQueue
		default:
			v.openChannel(s, q, prefetch)
		}
	})
	if err == nil {
		err = answer
	}
	c.broker.mu.Lock()
	defer c.broker.unlock()
	switch {
	case errors.Is(err, broker.ErrNoQueue):
		s.end()
		return nil, err
	case errors.Is(err, errLost):
		v.hangUp()
		s.end()
	case err != nil:
		s.abandon()
	case s.over: // the connection ended after the answer
		err = errLost
	default:
		return s, nil
	}
	return nil, unavailable(err)
}
