package simbroker

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast/broker"
)

// Message is a message in a queue. It is the Broker's own: nobody may change it, or keep
// it beyond the call it was given to.
type Message struct {
	Queue   string
	Body    []byte
	Content message.Message // what the body says
	Err     error           // why it is malformed, if it is
	Returns int             // how often it was given back, its delivery count
	Holder  *Client         // whose subscription has it; nil while it waits
	Dead    bool            // came back too often, and waits for the queue of the dead letters

	gone bool // from its queue, but its delivery is not settled
}

// Redelivered is what its next delivery says.
func (m *Message) Redelivered() bool { return m.Returns > 0 }

// String says where it is and what it carries, as in "main.default 3/1 4/2". It only uses what
// never changes.
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
		fmt.Fprintf(text, " run %d page %d:", manifest.Run, manifest.Page)
		tickets = manifest.Tickets
	}
	for _, t := range tickets {
		fmt.Fprintf(text, " %d/%d", t.Task, t.Attempt)
	}
}

// short is a queue's name without the usual prefix.
func short(name string) string { return strings.TrimPrefix(name, broker.DefaultPrefix+".") }

// Messages yields every message of every queue: queues in the order in which they were declared, and of
// each what waits, in the order in which it would be delivered, its dead letters, and what consumers have,
// in the order in which these came. The Broker is locked meanwhile: the loop must not call it.
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

// Queues are the names of the queues, in the order in which they were declared.
func (b *Broker) Queues() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, len(b.order))
	for i, q := range b.order {
		names[i] = q.name
	}
	return names
}

// Subscriptions is how many consumers the broker knows that are not paused, those of half-open
// connections included.
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
	DeadLettered        // into another queue
	Dropped             // it came back too often, and there is nowhere to put it
	Deleted             // with its queue
	Wiped
	Purged
)

func (r Reason) String() string {
	return [...]string{"acked", "dead-lettered", "dropped", "deleted", "wiped", "purged"}[r]
}

// Observer is told what happens. The Broker is locked meanwhile: it must not be called. Each of
// them may be nil.
type Observer struct {
	// Entered is told of every message that was stored in a queue, dead letters included.
	Entered func(*Message)
	// Left is told of every message that left its queue for good. Who had it is still its holder.
	Left func(*Message, Reason)
	// Misused is told of what no correct client does: settling a delivery that it never received, or
	// saying anything on a channel that it has closed.
	Misused func(c *Client, what string)
	// Destroyed is told of every object that a client's Delete asks for, whether it exists or not.
	Destroyed func(*Client, broker.Object)
}

// Observe sets who is told.
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
