package simbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
)

// groupSize is the most messages that one request publishes, as in the adapter for RabbitMQ.
const groupSize = 500

var (
	errRefused     = errors.New("the simulated broker refused messages")
	errUnconfirmed = errors.New("the simulated broker did not confirm")
)

// Publish implements [broker.Publisher].
func (c *Client) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	c.broker.mu.Lock()
	err := c.connErr()
	c.broker.unlock()
	if err == nil {
		own := copyMessages(messages)
		for done := 0; done < len(messages) && err == nil; done += groupSize {
			end := min(done+groupSize, len(messages))
			err = c.publish(ctx, own[done:end], outcomes[done:end])
		}
	}
	if err != nil {
		return outcomes, unavailable(err)
	}
	for i, outcome := range outcomes {
		if outcome == broker.Returned {
			return outcomes, fmt.Errorf("publish to %q: %w", messages[i].Queue, broker.ErrNoQueue)
		}
	}
	return outcomes, nil
}

// copyMessages copies messages, because frames can arrive after the caller has reused the bodies.
func copyMessages(messages []broker.Message) []Message {
	size := 0
	for _, m := range messages {
		size += len(m.Body)
	}
	bodies := make([]byte, 0, size)
	own := make([]Message, len(messages))
	for i, m := range messages {
		start := len(bodies)
		bodies = append(bodies, m.Body...)
		body := bodies[start:len(bodies):len(bodies)]
		content, err := message.Decode(body)
		own[i] = Message{Queue: m.Queue, Body: body, Content: content, Err: err}
	}
	return own
}

// answer is the answer to one publish group.
type answer struct {
	outcomes []broker.Outcome
	err      error // set if any outcome is Unknown
	lost     bool  // the connection is lost, too
	silent   bool  // some messages are for AMQP queues that confirm nothing
}

// publish publishes one publish group. It returns an error if an outcome remains unknown.
func (c *Client) publish(ctx context.Context, group []Message, outcomes []broker.Outcome) error {
	v, err := c.mayPublish()
	if err != nil {
		return err
	}
	a := &answer{outcomes: make([]broker.Outcome, len(group))}
	step := Step{"publish", func() string { return describeAll(group) }}
	if err := c.call(ctx, v, confirmLimit, step, func(f Fate) { v.store(group, f, a) }); err != nil {
		return err
	}
	copy(outcomes, a.outcomes)
	if a.silent {
		limited, cancel := context.WithTimeout(ctx, confirmLimit)
		defer cancel()
		<-limited.Done()
		return errUnconfirmed
	}
	if a.lost {
		return c.lost(v)
	}
	return a.err
}

// mayPublish returns the publishing connection. It returns an error if there is none, or if the broker accepts no
// messages.
func (c *Client) mayPublish() (*conn, error) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	v, err := c.connect(publishing)
	if err == nil && c.blocked != "" {
		err = unavailable(fmt.Errorf("the simulated broker accepts no messages: %s", c.blocked))
	}
	return v, err
}

// store is the arrival of a publish group at the broker.
func (v *conn) store(group []Message, f Fate, a *answer) {
	switch {
	case v.dead:
		a.lost = true
		return
	case f.Nacked:
		a.err = errRefused
		return
	}
	n := len(group)
	if f.Arrive >= 0 && f.Arrive < n {
		n = f.Arrive
	}
	var duplicates []Message
	if f.Twice {
		duplicates = slices.Clone(group[:n])
	}
	for i := range group[:n] {
		if v.client.broker.silent[group[i].Queue] {
			a.silent = true
			continue
		}
		a.outcomes[i] = v.client.broker.route(&group[i])
	}
	for i := range duplicates {
		if v.client.broker.silent[duplicates[i].Queue] {
			continue
		}
		v.client.broker.route(&duplicates[i])
	}
	if f.Unconfirmed {
		clear(a.outcomes)
		a.err = errUnconfirmed
	}
	if n < len(group) {
		a.lost = true
		expire([]*conn{v})
	}
}

func (b *Broker) route(m *Message) broker.Outcome {
	q := b.queues[m.Queue]
	if q == nil {
		return broker.Returned
	}
	q.store(m)
	return broker.Stored
}

// describeAll describes a publish group. It names an AMQP queue once for consecutive messages.
func describeAll(group []Message) string {
	var text strings.Builder
	for i := range group {
		if i == 0 || group[i].Queue != group[i-1].Queue {
			if i > 0 {
				text.WriteString(", ")
			}
			text.WriteString(short(group[i].Queue))
		} else {
			text.WriteString(";")
		}
		group[i].write(&text)
	}
	return text.String()
}
