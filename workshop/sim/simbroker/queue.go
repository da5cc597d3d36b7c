package simbroker

import (
	"fmt"
	"iter"
	"maps"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// The arguments of an AMQP queue that this package uses.
const (
	argLimit    = "x-delivery-limit"
	argExchange = "x-dead-letter-exchange"
	argTarget   = "x-dead-letter-routing-key"
	argStrategy = "x-dead-letter-strategy"
)

// queue is a quorum queue with a delivery limit.
type queue struct {
	broker      *Broker
	name        string
	args        map[string]any
	limit       int64  // most returns of a message; negative if there is no limit
	target      string // queue for dead letters; "" if they are dropped
	atLeastOnce bool   // dead letters are kept until the target has them
	gone        bool

	returned fifo // returned messages, in the order of the returns
	fresh    fifo // messages that were never delivered
	dead     fifo // dead letters that wait for the target to exist

	channels []*channel  // channels that consume or consumed here, in the order of their creation
	turns    []*consumer // consumers with credit, the next one first
}

func newQueue(b *Broker, o broker.Object) (*queue, error) {
	q := &queue{broker: b, name: o.Name, args: maps.Clone(o.Args), limit: -1}
	var fits [4]bool
	limited, isLimited := o.Args[argLimit]
	exchange, hasExchange := o.Args[argExchange]
	target, hasTarget := o.Args[argTarget]
	if q.limit, fits[0] = limited.(int64); !isLimited {
		q.limit, fits[0] = -1, true
	}
	_, fits[1] = exchange.(string)
	q.target, fits[2] = target.(string)
	fits[1], fits[2] = fits[1] || !hasExchange, fits[2] || !hasTarget
	fits[3] = hasExchange || !hasTarget // RabbitMQ refuses a routing key without an exchange
	for _, fit := range fits {
		if !fit {
			return nil, fmt.Errorf("%w: %s cannot be created with arguments %v", holdfast.ErrConflict, o, o.Args)
		}
	}
	q.atLeastOnce = o.Args[argStrategy] == "at-least-once"
	return q, nil
}

func (q *queue) waiting() int { return q.returned.length() + q.fresh.length() }

func (q *queue) pop() *Message {
	if q.returned.length() > 0 {
		return q.returned.pop()
	}
	return q.fresh.pop()
}

// store adds a new message.
func (q *queue) store(m *Message) {
	q.fresh.push(m)
	if entered := q.broker.observer.Entered; entered != nil {
		entered(m)
	}
	q.dispatch()
}

// dispatch delivers waiting messages to the consumers with credit, in turn.
func (q *queue) dispatch() {
	for len(q.turns) > 0 && q.waiting() > 0 {
		c := q.turns[0]
		q.turns = append(q.turns[:0], q.turns[1:]...)
		c.inTurn = false
		c.deliver(q.pop())
		q.enlist(c)
	}
}

// enlist adds a consumer with credit behind the others.
func (q *queue) enlist(c *consumer) {
	if c.inTurn || !c.active || c.unacked >= c.prefetch {
		return
	}
	c.inTurn = true
	q.turns = append(q.turns, c)
}

// giveBack puts a delivered message back, whether or not the client has received it.
func (q *queue) giveBack(m *Message) {
	m.Holder = nil
	m.Returns++
	switch {
	case q.limit < 0 || int64(m.Returns) <= q.limit:
		q.returned.push(m)
	case q.target == "":
		q.broker.left(m, Dropped)
	default:
		q.deadLetter(m)
	}
}

// deadLetter moves a message to the target, keeps it, or drops it.
func (q *queue) deadLetter(m *Message) {
	target := q.broker.queues[q.target]
	switch {
	case target != nil:
		copied := *m
		copied.Queue, copied.Returns, copied.Dead = target.name, 0, false
		target.store(&copied)
		q.broker.left(m, DeadLettered)
	case q.atLeastOnce:
		m.Dead = true
		q.dead.push(m)
	default:
		q.broker.left(m, Dropped)
	}
}

// all yields every message: the waiting ones in the order in which they would be delivered, the dead letters, and then
// the unsettled ones.
func (q *queue) all() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		for _, f := range [...]*fifo{&q.returned, &q.fresh, &q.dead} {
			for _, m := range f.list[f.head:] {
				if !yield(m) {
					return
				}
			}
		}
		for _, ch := range q.channels {
			for _, e := range ch.unacked {
				if e.message != nil && !e.message.gone && !yield(e.message) {
					return
				}
			}
		}
	}
}

// remove deletes the queue with its messages and cancels its consumers.
func (q *queue) remove(why Reason) {
	b := q.broker
	for m := range q.all() {
		b.left(m, why)
	}
	q.gone = true
	q.returned, q.fresh, q.dead = fifo{}, fifo{}, fifo{}
	delete(b.queues, q.name)
	b.order = without(b.order, q)
	for _, ch := range q.channels {
		if ch.consumer.active {
			ch.stop()
			ch.cancelled()
		}
	}
}

// fifo is a first-in, first-out list of messages.
type fifo struct {
	list []*Message
	head int
}

func (f *fifo) length() int { return len(f.list) - f.head }

func (f *fifo) push(m *Message) {
	if f.head > 0 && len(f.list) == cap(f.list) && f.head >= len(f.list)/2 {
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, m)
}

func (f *fifo) pop() *Message {
	m := f.list[f.head]
	f.list[f.head] = nil
	f.head++
	if f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
	return m
}
