package simbroker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/presence"
)

var _ presence.Broker = (*Client)(nil)

// takenPause is how long Acquire waits before it tries again to get a name that another connection holds.
const takenPause = 100 * time.Millisecond

// presenceQueue is an exclusive AMQP queue without messages. It exists as long as the connection that declared it.
type presenceQueue struct {
	conn *conn
	name string
	gone chan struct{} // closed when the client has noticed the end of the connection
	over atomic.Bool   // released by the client
}

// Acquire implements [presence.Broker].
func (c *Client) Acquire(ctx context.Context, name string) (gone <-chan struct{}, release func(), err error) {
	for {
		v, err := c.await(ctx, administering)
		if err != nil {
			return nil, nil, fmt.Errorf("acquire presence %q: %w", name, err)
		}
		s, taken, err := c.acquire(ctx, v, name)
		switch {
		case s != nil:
			return s.gone, s.release, nil
		case err != nil && (!errors.Is(err, errLost) || ctx.Err() != nil): // after a loss, it tries again
			return nil, nil, fmt.Errorf("acquire presence %q: %w", name, err)
		case !taken:
			continue
		}
		timer := time.NewTimer(takenPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, fmt.Errorf("acquire presence %q: another connection holds it: %w", name, unavailable(context.Cause(ctx)))
		}
	}
}

// acquire tries once, over one connection. taken reports that another connection holds the name.
func (c *Client) acquire(ctx context.Context, v *conn, name string) (acquired *presenceQueue, taken bool, err error) {
	s := &presenceQueue{conn: v, name: name, gone: make(chan struct{})}
	answer := false // written by the effect, possibly after an error
	err = c.query(ctx, v, "acquire presence", name, func() error {
		switch other := c.broker.presenceQueues[name]; {
		case s.over.Load(): // the client no longer waits for the answer
		case other != nil && !other.over.Load():
			answer = true
		default:
			c.broker.presenceQueues[name] = s
			v.presenceQueues = append(v.presenceQueues, s)
		}
		return nil
	})
	if err != nil {
		s.release()
		return nil, false, err
	}
	if answer {
		return nil, true, nil
	}
	c.broker.mu.Lock()
	defer c.broker.unlock()
	if v.gone { // the connection ended after the answer
		return nil, false, unavailable(errLost)
	}
	v.acquired = append(v.acquired, s)
	return s, false, nil
}

// release releases the presence. It may be called more than once. If the broker does not receive the release, the end
// of the connection has the same effect.
func (s *presenceQueue) release() {
	if s.over.Swap(true) {
		return
	}
	c := s.conn.client
	c.broker.mu.Lock()
	s.conn.acquired = without(s.conn.acquired, s)
	c.broker.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = c.query(ctx, s.conn, "release presence", s.name, func() error {
		s.conn.dropPresence(s)
		return nil
	})
}

// dropPresence deletes a presence queue at the broker.
func (v *conn) dropPresence(s *presenceQueue) {
	if b := v.client.broker; b.presenceQueues[s.name] == s {
		delete(b.presenceQueues, s.name)
	}
	v.presenceQueues = without(v.presenceQueues, s)
}

// dropAllPresence deletes all presence queues of a connection whose end the broker has noticed.
func (v *conn) dropAllPresence() {
	for len(v.presenceQueues) > 0 {
		v.dropPresence(v.presenceQueues[0])
	}
}

// Present implements [presence.Broker].
func (c *Client) Present(ctx context.Context, name string) (bool, error) {
	present := false
	err := c.withConn(ctx, func(v *conn) error {
		answer := false
		err := c.query(ctx, v, "query presence", name, func() error {
			s := c.broker.presenceQueues[name]
			answer = s != nil && !s.over.Load()
			return nil
		})
		present = answer && err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("query presence %q: %w", name, err)
	}
	return present, nil
}
