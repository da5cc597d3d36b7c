package simbroker

import (
	"fmt"
	"iter"
	"maps"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Arguments of a queue that mean something here.
const (
	argLimit    = "x-delivery-limit"
	argExchange = "x-dead-letter-exchange"
	argTarget   = "x-dead-letter-routing-key"
	argStrategy = "x-dead-letter-strategy"
)

// queue is a quorum queue with a delivery limit.
type queue struct {
	broker *Broker
	name   string
	args   map[string]any
	limit  int64  // of returns; negative if there is none
	target string // of dead letters; "" if they are dropped
	keeps  bool   // dead letters until the target has them
	gone   bool

	returned fifo // given back, in the order of the returns
	fresh    fifo // never delivered
	dead     fifo // waiting for the target to exist

	channels []*channel  // that have or had a consumer here, in the order in which they came
	turns    []*consumer // those with credit, the next one first
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
			return nil, fmt.Errorf("%w: %s cannot be made with arguments %v", holdfast.ErrConflict, describe(o), o.Args)
		}
	}
	q.keeps = o.Args[argStrategy] == "at-least-once"
	return q, nil
}

func (q *queue) waiting() int { return q.returned.length() + q.fresh.length() }

func (q *queue) pop() *Message {
	if q.returned.length() > 0 {
		return q.returned.pop()
	}
	return q.fresh.pop()
}

// store takes in a new message.
func (q *queue) store(m *Message) {
	q.fresh.push(m)
	if entered := q.broker.observer.Entered; entered != nil {
		entered(m)
	}
	q.dispatch()
}

// dispatch assigns waiting messages to consumers in turn.
func (q *queue) dispatch() {
	for len(q.turns) > 0 && q.waiting() > 0 {
		c := q.turns[0]
		q.turns = append(q.turns[:0], q.turns[1:]...)
		c.inTurn = false
		c.deliver(q.pop())
		q.enlist(c)
	}
}

// enlist puts a consumer with credit behind the others.
func (q *queue) enlist(c *consumer) {
	if c.inTurn || !c.active || c.inHand >= c.prefetch {
		return
	}
	c.inTurn = true
	q.turns = append(q.turns, c)
}

// giveBack returns a message that was delivered, whether anybody saw it or not.
func (q *queue) giveBack(m *Message) {
	m.Holder = nil
	m.Returns++
	switch {
	case q.limit < 0 || int64(m.Returns) <= q.limit:
		q.returned.push(m)
	case q.target == "":
		q.broker.left(m, Dropped)
	default:
		q.bury(m)
	}
}

// bury dead-letters a message.
func (q *queue) bury(m *Message) {
	target := q.broker.queues[q.target]
	switch {
	case target != nil:
		again := *m
		again.Queue, again.Returns, again.Dead = target.name, 0, false
		target.store(&again)
		q.broker.left(m, DeadLettered)
	case q.keeps:
		m.Dead = true
		q.dead.push(m)
	default:
		q.broker.left(m, Dropped)
	}
}

// all yields every message: those that wait in the order in which they would be delivered, dead
// letters, and then those that consumers have.
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

// remove takes the queue with everything in it out of the Broker and cancels its consumers.
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

// fifo is a sequence of messages, first in first out.
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
