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

// heldPause is how long a Show waits before it asks again for a name that another connection holds.
const heldPause = 100 * time.Millisecond

// sign is an exclusive queue that carries nothing.
type sign struct {
	conn *conn
	name string
	gone chan struct{} // closed when the client has noticed the end of the connection
	over atomic.Bool   // given up by the client
}

// Show implements [presence.Broker].
func (c *Client) Show(ctx context.Context, name string) (gone <-chan struct{}, release func(), err error) {
	for {
		v, err := c.await(ctx, administering)
		if err != nil {
			return nil, nil, fmt.Errorf("show %q: %w", name, err)
		}
		s, held, err := c.show(ctx, v, name)
		switch {
		case s != nil:
			return s.gone, s.release, nil
		case err != nil && (!errors.Is(err, errLost) || ctx.Err() != nil): // after a loss it waits for the next connection
			return nil, nil, fmt.Errorf("show %q: %w", name, err)
		case !held:
			continue
		}
		timer := time.NewTimer(heldPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, fmt.Errorf("show %q: another connection holds it: %w", name, unavailable(context.Cause(ctx)))
		}
	}
}

// show tries it once over one connection.
func (c *Client) show(ctx context.Context, v *conn, name string) (shown *sign, held bool, err error) {
	s := &sign{conn: v, name: name, gone: make(chan struct{})}
	taken := false // the effect's
	err = c.ask(ctx, v, "show", name, func() error {
		switch other := c.broker.signs[name]; {
		case s.over.Load(): // nobody waits for the answer any more
		case other != nil && !other.over.Load():
			taken = true
		default:
			c.broker.signs[name] = s
			v.signs = append(v.signs, s)
		}
		return nil
	})
	if err != nil {
		s.release()
		return nil, false, err
	}
	if taken {
		return nil, true, nil
	}
	c.broker.mu.Lock()
	defer c.broker.unlock()
	if v.gone { // the connection ended when the answer was there already
		return nil, false, unavailable(errLost)
	}
	v.shown = append(v.shown, s)
	return s, false, nil
}

// release may be called more than once. What it cannot tell the broker the end of the connection does.
func (s *sign) release() {
	if s.over.Swap(true) {
		return
	}
	c := s.conn.client
	c.broker.mu.Lock()
	s.conn.shown = without(s.conn.shown, s)
	c.broker.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = c.ask(ctx, s.conn, "hide", s.name, func() error {
		s.conn.dropSign(s)
		return nil
	})
}

// dropSign is the end of a sign at the broker.
func (v *conn) dropSign(s *sign) {
	if b := v.client.broker; b.signs[s.name] == s {
		delete(b.signs, s.name)
	}
	v.signs = without(v.signs, s)
}

// dropSigns is the same for all signs of a connection whose end the broker has noticed.
func (v *conn) dropSigns() {
	for len(v.signs) > 0 {
		v.dropSign(v.signs[0])
	}
}

// Shown implements [presence.Broker].
func (c *Client) Shown(ctx context.Context, name string) (bool, error) {
	shown := false
	err := c.administer(ctx, func(v *conn) error {
		answer := false
		err := c.ask(ctx, v, "shown", name, func() error {
			s := c.broker.signs[name]
			answer = s != nil && !s.over.Load()
			return nil
		})
		shown = answer && err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("ask for %q: %w", name, err)
	}
	return shown, nil
}
