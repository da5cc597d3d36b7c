package simbroker

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
)

// Message is a message in an AMQP queue. It belongs to the Broker: a caller must not change it, or keep it beyond the
// call that received it.
type Message struct {
	Queue   string
	Body    []byte
	Content message.Message // the decoded body
	Err     error           // why the body could not be decoded, or nil
	Returns int             // the delivery count: how often the message was returned
	Holder  *Client         // client with the unsettled delivery; nil while the message waits
	Dead    bool            // the message was returned too often and waits for the dead-letter queue to exist

	gone bool // the message has left its queue, but its delivery is not settled
}

// Redelivered reports whether the next delivery of the message will be marked as redelivered.
func (m *Message) Redelivered() bool { return m.Returns > 0 }

// String returns the queue and the content of the message, as in "main.default 3/1 4/2". It depends only on fields that
// never change.
func (m *Message) String() string {
	var text strings.Builder
	text.WriteString(short(m.Queue))
	m.write(&text)
	return text.String()
}

func (m *Message) write(text *strings.Builder) {
	tickets := m.Content.Tickets
	switch manifest, sentinel := m.Content.Manifest, m.Content.Sentinel; {
	case m.Err != nil:
		text.WriteString(" malformed")
	case sentinel != nil:
		fmt.Fprintf(text, " sentinel %s", sentinel.At.Format(time.RFC3339Nano))
	case manifest != nil:
		fmt.Fprintf(text, " worker %d page %d:", manifest.Worker, manifest.Page)
		tickets = manifest.Tickets
	}
	for _, t := range tickets {
		fmt.Fprintf(text, " %d/%d", t.Task, t.Attempt)
	}
}

// short returns the name of an AMQP queue without the default prefix.
func short(name string) string { return strings.TrimPrefix(name, broker.DefaultPrefix+".") }

// Messages yields every message of every AMQP queue. The queues come in the order of their declarations. For each
// queue, it first yields the waiting messages in the order of their delivery. Then it yields the dead letters, and the
// unsettled messages in the order of their channels. The Broker is locked meanwhile: the loop must not call it.
func (b *Broker) Messages() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, q := range b.order {
			for m := range q.all() {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// Queues returns the names of the AMQP queues in the order of their declarations.
func (b *Broker) Queues() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, len(b.order))
	for i, q := range b.order {
		names[i] = q.name
	}
	return names
}

// Subscriptions returns the number of consumers at the broker that are not paused. It includes consumers of half-open
// connections.
func (b *Broker) Subscriptions() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.order {
		for _, ch := range q.channels {
			if ch.consumer.active {
				n++
			}
		}
	}
	return n
}

// Reason is why a message left its queue for good.
type Reason uint8

// The reasons.
const (
	Acked        Reason = iota
	DeadLettered        // moved to another queue
	Dropped             // returned too often, and there is no dead-letter queue
	Deleted             // the queue of the message was deleted
	Wiped
	Purged
)

func (r Reason) String() string {
	return [...]string{"acked", "dead-lettered", "dropped", "deleted", "wiped", "purged"}[r]
}

// Observer receives events of the Broker. The Broker is locked meanwhile: an observer must not call it. Each function
// may be nil.
type Observer struct {
	// Entered is called for every message that is stored in a queue, including dead letters.
	Entered func(*Message)
	// Left is called for every message that leaves its queue for good. Holder is still set.
	Left func(*Message, Reason)
	// Misused is called when a client makes a mistake: it settles a delivery that it never received, or sends something
	// on a channel that it has closed.
	Misused func(c *Client, what string)
	// Destroyed is called for every object that a client's Delete names, whether or not it exists.
	Destroyed func(*Client, broker.Object)
}

// Observe sets the observer.
func (b *Broker) Observe(o Observer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.observer = o
}

func (b *Broker) left(m *Message, why Reason) {
	m.gone = true
	if b.observer.Left != nil {
		b.observer.Left(m, why)
	}
	m.Holder, m.Dead = nil, false
}

func (b *Broker) misused(c *Client, what string) {
	if b.observer.Misused != nil {
		b.observer.Misused(c, what)
	}
}
