package simbroker

import (
	"context"
	"time"
)

// Network decides when frames arrive. It runs effects one at a time for the whole Broker.
//
// The Broker may be locked while it calls Post. Therefore Post must not call the Broker, or run an effect before it
// returns. Effects must not run under a lock that Post needs.
type Network interface {
	// Call carries a request, and the client waits for the answer. effect runs at the broker at most once. An error
	// means that the connection broke or ctx ended first; then the client cannot know whether effect has run or will
	// run.
	Call(ctx context.Context, step Step, effect func(Fate)) error
	// Post carries a frame without an answer. A link is one direction of one channel. The frames of one link arrive in
	// order and without gaps, until they cease to arrive. A frame that arrives after the end of its connection has no
	// effect.
	Post(link uint64, step Step, effect func())
}

// Step describes a frame, for traces.
type Step struct {
	Op string
	// Note returns a short, deterministic description. It may be called at any time.
	Note func() string
}

// Fate is the mishap of a publish call; other calls ignore it. The zero value loses everything; [Fine] loses nothing.
type Fate struct {
	// Arrive is the number of messages that arrive, in order; -1 means all. If not all arrive, the others are Unknown,
	// and the publisher loses its connection.
	Arrive      int
	Unconfirmed bool // the messages that arrived are stored, but all confirms are lost: all are Unknown
	Nacked      bool // no message is stored, and all are Unknown; common after a change of leaders
	Twice       bool // all are stored, and then all are stored again
}

// Fine returns the Fate of a call with which nothing goes wrong.
func Fine() Fate { return Fate{Arrive: -1} }

// The time limits of calls, as in the adapter for RabbitMQ.
const (
	confirmLimit = 5 * time.Second  // limit for the confirms of a publish call
	connectLimit = 5 * time.Second  // limit for the connection of an Admin
	requestLimit = 10 * time.Second // limit for other requests
	closeLimit   = 2 * time.Second  // limit for the broker's answer to a close
)

// post sends a frame. The Broker is locked now, and again when effect runs.
func (c *Client) post(link uint64, step Step, effect func()) {
	b := c.broker
	if c.net == nil {
		b.frames = append(b.frames, effect)
		return
	}
	c.net.Post(link, step, func() {
		b.mu.Lock()
		effect()
		b.unlock()
	})
}

// unlock carries out the frames of clients without a network, in order, and then unlocks the Broker.
func (b *Broker) unlock() {
	for i := 0; i < len(b.frames); i++ {
		b.frames[i]()
	}
	clear(b.frames)
	b.frames = b.frames[:0]
	b.mu.Unlock()
}

// call sends a request over a connection. The Broker is locked when effect runs. After an error, effect may still run
// later, so the caller must not read what effect writes.
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
