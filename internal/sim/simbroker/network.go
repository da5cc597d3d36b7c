package simbroker

import (
	"context"
	"time"
)

// Network decides when frames arrive. It runs effects one at a time over the whole Broker.
//
// The Broker may be locked while Post is called: Post must not call the Broker, nor run an effect
// before it returns, and effects must not run under a lock that Post needs.
type Network interface {
	// Call is a request that the client waits for: effect runs at the broker at most once; an
	// error means that the connection broke or ctx ended first, and the client
	// cannot know whether effect ran, or will.
	Call(ctx context.Context, step Step, effect func(Fate)) error
	// Post is a frame nobody waits for. Frames of one lane (a direction of one channel) arrive in
	// order, none left out, until they cease to arrive. What arrives after the end of its connection does nothing.
	Post(lane uint64, step Step, effect func())
}

// Step says what a frame is, for traces.
type Step struct {
	Op string
	// Note is short and deterministic, and may be called at any time.
	Note func() string
}

// Fate is what the simulator wants to go wrong with a call to publish; other calls ignore it. The zero
// value loses everything, [Fine] nothing.
type Fate struct {
	Arrive      int  // how many of the messages arrive, in order; -1: all. The rest are Unknown and the connection of the publisher is gone.
	Unconfirmed bool // those that arrived are stored but the confirms get lost: Unknown for all
	Nacked      bool // nothing is stored, all are Unknown; ordinary after a change of leaders
	Twice       bool // all are stored, and then all once more
}

// Fine is the fate of a call with which nothing goes wrong.
func Fine() Fate { return Fate{Arrive: -1} }

// The limits of calls are those of the adapter for RabbitMQ.
const (
	confirmLimit = 5 * time.Second  // of a publish
	connectLimit = 5 * time.Second  // how long an Admin waits for a connection
	requestLimit = 10 * time.Second // of other requests
	closeLimit   = 2 * time.Second  // how long a Close waits for the broker
)

// post sends a frame. The Broker is locked, also when the effect runs.
func (c *Client) post(lane uint64, step Step, effect func()) {
	b := c.broker
	if c.net == nil {
		b.frames = append(b.frames, effect)
		return
	}
	c.net.Post(lane, step, func() {
		b.mu.Lock()
		effect()
		b.unlock()
	})
}

// unlock first carries out the frames of clients without a network, in order.
func (b *Broker) unlock() {
	for i := 0; i < len(b.frames); i++ {
		b.frames[i]()
	}
	clear(b.frames)
	b.frames = b.frames[:0]
	b.mu.Unlock()
}

// call makes a request over a connection. The Broker is locked when the effect runs. After an error the effect
// may still run, so that nothing it writes may be read.
func (c *Client) call(ctx context.Context, via *conn, limit time.Duration, step Step, effect func(Fate)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b := c.broker
	if c.net == nil {
		b.mu.Lock()
		defer b.unlock()
		if via.gone {
			return errLost
		}
		effect(Fine())
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.mu.Lock()
	if via.gone {
		b.unlock()
		return errLost
	}
	waiting := via.wait(cancel)
	b.unlock()
	err := c.net.Call(ctx, step, func(f Fate) {
		b.mu.Lock()
		effect(f)
		b.unlock()
	})
	b.mu.Lock()
	via.arrived(waiting)
	if err != nil && via.gone {
		err = errLost
	}
	b.unlock()
	return err
}
