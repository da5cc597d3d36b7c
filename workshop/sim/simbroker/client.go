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

// Client is the connection of one process to the broker. It is safe for concurrent use.
type Client struct {
	broker *Broker
	net    Network
	work   sync.WaitGroup // pumps

	// The following fields are guarded by the lock of the Broker.
	conns   [roles]*conn // connections as the client sees them; nil until first needed
	open    []*conn      // connections whose end the broker has not noticed
	closed  bool
	cut     bool
	blocked string
	changed chan struct{} // closed when connErr or blocked may have changed; nil if no call waits
}

var _ broker.Broker = (*Client)(nil)

var (
	errClosed    = errors.New("the simulated client was closed")
	errDown      = errors.New("the simulated broker is down")
	errCancelled = errors.New("the simulated broker cancelled the consumer")
	errCut       = errors.New("the simulated network does not reach the broker")
	errNoAnswer  = errors.New("no connection to the simulated broker in time")
)

func unavailable(cause error) error {
	if errors.Is(cause, holdfast.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", holdfast.ErrUnavailable, cause)
}

// connErr returns the reason why the client cannot connect, or nil.
func (c *Client) connErr() error {
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

// connect returns the connection for a role. It creates one if there is none.
func (c *Client) connect(r role) (*conn, error) {
	if err := c.connErr(); err != nil {
		return nil, unavailable(err)
	}
	if c.conns[r] == nil {
		c.conns[r] = &conn{client: c}
		c.open = append(c.open, c.conns[r])
	}
	return c.conns[r], nil
}

// await waits for a connection for a role and returns it.
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

// changes returns a channel that is closed at the next change.
func (c *Client) changes() <-chan struct{} {
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// wait waits for a change. If ctx ends at the same time, it returns an error.
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

// lost closes a connection after an answer has shown that the broker gave it up. It returns the error for the caller.
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
	err := c.connErr()
	return broker.Health{Connected: err == nil, Blocked: c.blocked, Server: "simulated", Err: err}
}

// Close implements [broker.Broker]. The broker takes the unsettled messages back when it receives the close. Without a
// close, it keeps them until Expire or Forget.
func (c *Client) Close() error {
	b := c.broker
	b.mu.Lock()
	if c.closed {
		b.unlock()
		c.work.Wait()
		return nil
	}
	reachable := c.connErr() == nil
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
		c.closeConns(ending)
	}
	return nil
}

// closeConns closes connections on the broker's side. Frames that were sent earlier arrive first.
func (c *Client) closeConns(ending []*conn) {
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
	// The call uses a new connection, because the client has closed its end of the others. If the call fails, the
	// simulator must end the connections at the broker.
	_ = c.call(context.Background(), &conn{client: c}, closeLimit, Step{"close client", none}, effect)
}

func none() string { return "" }
