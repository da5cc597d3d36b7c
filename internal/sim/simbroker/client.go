package simbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Client is the broker as one process sees it. It is safe for concurrent use.
type Client struct {
	broker *Broker
	net    Network
	work   sync.WaitGroup // pumps

	// Guarded by the lock of the Broker.
	conns   [roles]*conn // as the client sees it; nil until somebody needs one
	open    []*conn      // as the broker sees it: those it has not noticed the end of
	closed  bool
	cut     bool
	blocked string
	changed chan struct{} // closed when any of the three, or the server's state, changes; nil if nobody waits
}

var _ broker.Broker = (*Client)(nil)

var (
	errClosed    = errors.New("the simulated client was closed")
	errDown      = errors.New("the simulated broker is down")
	errCancelled = errors.New("the simulated broker cancelled the consumer")
	errCut       = errors.New("the simulated network does not reach the broker")
	errNoAnswer  = errors.New("no connection to the simulated broker came about in time")
)

func unavailable(cause error) error {
	if errors.Is(cause, holdfast.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", holdfast.ErrUnavailable, cause)
}

// trouble says why there is no connection.
func (c *Client) trouble() error {
	switch {
	case c.closed:
		return errClosed
	case c.broker.down:
		return errDown
	case c.cut:
		return errCut
	}
	return nil
}

// connect returns the connection for a role, a new one if need be.
func (c *Client) connect(r role) (*conn, error) {
	if err := c.trouble(); err != nil {
		return nil, unavailable(err)
	}
	if c.conns[r] == nil {
		c.conns[r] = &conn{client: c}
		c.open = append(c.open, c.conns[r])
	}
	return c.conns[r], nil
}

// await returns the connection for a role as soon as there is one.
func (c *Client) await(ctx context.Context, r role) (*conn, error) {
	for {
		c.broker.mu.Lock()
		v, err := c.connect(r)
		if err == nil || c.closed {
			c.broker.unlock()
			return v, err
		}
		changed := c.changes()
		c.broker.unlock()
		if err := wait(ctx, changed); err != nil {
			return nil, err
		}
	}
}

// changes returns what to wait for until anything is different.
func (c *Client) changes() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// wait looks at ctx last, so that its end counts even if there was a change at the same moment.
func wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	return nil
}

func (c *Client) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// lost is how the client learns from an answer that the broker has given up its connection.
func (c *Client) lost(v *conn) error {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	v.hangUp()
	c.wake()
	return unavailable(errLost)
}

func (c *Client) hangUp() {
	for _, v := range c.conns {
		if v != nil {
			v.hangUp()
		}
	}
	c.wake()
}

// Health implements [broker.Admin].
func (c *Client) Health() broker.Health {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	err := c.trouble()
	return broker.Health{Connected: err == nil, Blocked: c.blocked, Server: "simulated", Err: err}
}

// Close implements [broker.Broker]. The broker takes the messages back once it hears of it, which may be
// later; if it never does, they are gone until Expire or Forget.
func (c *Client) Close() error {
	b := c.broker
	b.mu.Lock()
	if c.closed {
		b.unlock()
		c.work.Wait()
		return nil
	}
	reachable := c.trouble() == nil
	var ending []*conn
	for _, v := range c.conns {
		if v != nil {
			ending = append(ending, v)
		}
	}
	c.closed = true
	c.hangUp()
	b.unlock()
	c.work.Wait()
	if reachable && len(ending) > 0 {
		c.sayGoodbye(ending)
	}
	return nil
}

// sayGoodbye closes connections on the broker's side. Frames sent before arrive before.
func (c *Client) sayGoodbye(ending []*conn) {
	effect := func(Fate) {
		var open []*conn
		for _, v := range ending {
			if v.dead {
				continue
			}
			open = append(open, v)
			for _, ch := range slices.Clone(v.channels) {
				ch.catchUp(ch.sent)
			}
		}
		expire(open)
	}
	// Over a connection of its own, for the client's end of the others is closed.
	_ = c.call(context.Background(), &conn{client: c}, closeLimit, Step{"goodbye", none}, effect) // else the simulator tells it
}

func none() string { return "" }
