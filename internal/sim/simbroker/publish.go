package simbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast/broker"
)

// window is how many messages are published at a time, as by the adapter for RabbitMQ.
const window = 500

var (
	errRefused     = errors.New("the simulated broker refused messages")
	errUnconfirmed = errors.New("the simulated broker did not confirm")
)

// Publish implements [broker.Publisher].
func (c *Client) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	c.broker.mu.Lock()
	err := c.trouble()
	c.broker.unlock()
	if err == nil {
		letters := read(messages)
		for done := 0; done < len(messages) && err == nil; done += window {
			end := min(done+window, len(messages))
			err = c.publish(ctx, letters[done:end], outcomes[done:end])
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

// read copies messages, because frames can arrive when the caller has got its bodies back.
func read(messages []broker.Message) []Message {
	size := 0
	for _, m := range messages {
		size += len(m.Body)
	}
	bodies := make([]byte, 0, size)
	letters := make([]Message, len(messages))
	for i, m := range messages {
		start := len(bodies)
		bodies = append(bodies, m.Body...)
		body := bodies[start:len(bodies):len(bodies)]
		content, err := message.Decode(body)
		letters[i] = Message{Queue: m.Queue, Body: body, Content: content, Err: err}
	}
	return letters
}

// answer is what becomes of messages that were published together.
type answer struct {
	outcomes []broker.Outcome
	err      error // if any is Unknown
	lost     bool  // and so is the connection
	silent   bool  // some are for queues that do not answer
}

// publish returns an error if an outcome remains unknown.
func (c *Client) publish(ctx context.Context, letters []Message, outcomes []broker.Outcome) error {
	v, err := c.mayPublish()
	if err != nil {
		return err
	}
	a := &answer{outcomes: make([]broker.Outcome, len(letters))}
	step := Step{"publish", func() string { return describeAll(letters) }}
	if err := c.call(ctx, v, confirmLimit, step, func(f Fate) { v.store(letters, f, a) }); err != nil {
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

// mayPublish returns the connection for messages. Without one, or while the broker takes no messages, it returns an error.
func (c *Client) mayPublish() (*conn, error) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	v, err := c.connect(publishing)
	if err == nil && c.blocked != "" {
		err = unavailable(fmt.Errorf("the simulated broker takes no messages: %s", c.blocked))
	}
	return v, err
}

// store is the arrival of messages at the broker.
func (v *conn) store(letters []Message, f Fate, a *answer) {
	switch {
	case v.dead:
		a.lost = true
		return
	case f.Nacked:
		a.err = errRefused
		return
	}
	n := len(letters)
	if f.Arrive >= 0 && f.Arrive < n {
		n = f.Arrive
	}
	var again []Message
	if f.Twice {
		again = slices.Clone(letters[:n])
	}
	for i := range letters[:n] {
		if v.client.broker.silent[letters[i].Queue] {
			a.silent = true
			continue
		}
		a.outcomes[i] = v.client.broker.route(&letters[i])
	}
	for i := range again {
		if v.client.broker.silent[again[i].Queue] {
			continue
		}
		v.client.broker.route(&again[i])
	}
	if f.Unconfirmed {
		clear(a.outcomes)
		a.err = errUnconfirmed
	}
	if n < len(letters) {
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

// describeAll names each queue once.
func describeAll(letters []Message) string {
	var text strings.Builder
	for i := range letters {
		if i == 0 || letters[i].Queue != letters[i-1].Queue {
			if i > 0 {
				text.WriteString(", ")
			}
			text.WriteString(short(letters[i].Queue))
		} else {
			text.WriteString(";")
		}
		letters[i].write(&text)
	}
	return text.String()
}
