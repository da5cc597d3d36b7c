package inproc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Queue arguments that have an effect.
const (
	argLimit  = "x-delivery-limit"
	argTarget = "x-dead-letter-routing-key"
)

// queue is guarded by the lock of its broker.
type queue struct {
	broker  *Broker
	name    string
	args    map[string]any
	limit   int64  // maximum number of requeues; negative for no limit
	target  string // queue for dead letters; "" means that they are dropped
	deleted bool

	requeued  fifo             // received and requeued, in the order of the requeues
	fresh     fifo             // never received
	withdrawn []pendingMessage // dequeued but not received, in queue order

	subs []*subscription
	idle []*subscription // subscriptions whose pumps wait for a message, longest waiting first
}

// pendingMessage is a message that a pump is trying to send, with its position in the queue.
type pendingMessage struct {
	message
	position uint64 // number of the message among those dequeued from the same fifo
}

func newQueue(b *Broker, o broker.Object) (*queue, error) {
	q := &queue{broker: b, name: o.Name, args: o.Args, limit: -1}
	if value, given := o.Args[argLimit]; given {
		limit, ok := value.(int64)
		if !ok {
			return nil, fmt.Errorf("%w: argument %s of %s is not a number", holdfast.ErrInvalid, argLimit, o)
		}
		q.limit = limit
	}
	if value, given := o.Args[argTarget]; given {
		target, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%w: argument %s of %s is not a string", holdfast.ErrInvalid, argTarget, o)
		}
		q.target = target
	}
	return q, nil
}

// available returns the number of messages that can be dequeued. It does not count the pending messages of the pumps.
func (q *queue) available() int { return q.requeued.length + q.fresh.length + len(q.withdrawn) }

func (q *queue) depth() broker.Depth {
	d := broker.Depth{Ready: q.available()}
	for _, s := range q.subs {
		if s.sending {
			d.Ready++
		}
		if s.prefetch > 0 {
			d.Consumers++
		}
	}
	return d
}

// dequeue removes and returns the first message of the queue. There must be one.
func (q *queue) dequeue() pendingMessage {
	from := &q.fresh
	if q.requeued.length > 0 {
		from = &q.requeued
	}
	// A withdrawn message comes before all messages that are still in its fifo.
	if len(q.withdrawn) > 0 && (from == &q.fresh || q.withdrawn[0].requeues > 0) {
		o := q.withdrawn[0]
		q.withdrawn = slices.Delete(q.withdrawn, 0, 1)
		return o
	}
	o := pendingMessage{from.pop(), 0}
	o.position = from.dequeued
	return o
}

// putBack returns a message that was dequeued but not received to its position in the queue.
func (q *queue) putBack(o pendingMessage) {
	i, _ := slices.BinarySearchFunc(q.withdrawn, o, func(a, b pendingMessage) int {
		if (a.requeues > 0) != (b.requeues > 0) {
			return cmp.Compare(b.requeues, a.requeues) // requeued messages first, because fresh ones have 0 requeues
		}
		return cmp.Compare(a.position, b.position)
	})
	q.withdrawn = slices.Insert(q.withdrawn, i, o)
}

// deadLetters counts the messages of one queue that exceeded its limit of requeues.
type deadLetters struct{ moved, dropped int }

// requeue returns a received message to the queue, or to the dead-letter target if it exceeds the limit.
func (q *queue) requeue(x message, d *deadLetters) {
	if q.deleted {
		return
	}
	x.requeues++
	if q.limit < 0 || x.requeues <= uint64(q.limit) {
		q.requeued.push(x.requeues, x.body)
		return
	}
	if q.target == "" {
		d.dropped++
		return
	}
	target := q.broker.queues[q.target]
	if target == nil { // one requeue beyond the limit does less harm than a lost message
		q.requeued.push(x.requeues, x.body)
		return
	}
	d.moved++
	target.fresh.push(0, x.body)
	target.wake()
}

// report logs the dead letters. The caller must not hold the lock.
func (q *queue) report(d deadLetters) {
	if d.moved > 0 {
		q.broker.log.WithField("queue", q.name).WithField("count", d.moved).WithField("to", q.target).
			Info("messages moved to the dead-letter queue: delivery limit exceeded")
	}
	if d.dropped > 0 {
		q.broker.log.WithField("queue", q.name).WithField("count", d.dropped).
			Warn("messages dropped: delivery limit exceeded and no dead-letter queue")
	}
}

// wake signals as many idle pumps as there are available messages, and removes them from the idle list. A pump that
// gets a signal and does not dequeue a message must call wake again.
func (q *queue) wake() {
	n := min(q.available(), len(q.idle))
	for _, s := range q.idle[:n] {
		s.signal()
	}
	q.idle = slices.Delete(q.idle, 0, n)
}

func without(list []*subscription, s *subscription) []*subscription {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
