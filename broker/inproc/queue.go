package inproc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Arguments of a queue that mean something here.
const (
	argLimit  = "x-delivery-limit"
	argTarget = "x-dead-letter-routing-key"
)

// queue is guarded by the lock of its broker.
type queue struct {
	broker *Broker
	name   string
	args   map[string]any
	limit  int64  // of returns; negative if there is none
	target string // of dead letters; "" if they are dropped
	gone   bool   // deleted

	returned  fifo    // received and given back, in the order of the returns
	fresh     fifo    // never received
	withdrawn []offer // offered in vain, in the order in which they were taken from returned and fresh

	subs   []*subscription
	hungry []*subscription // whose pumps wait for a message, the longest waiting first
}

// offer is a letter that a pump holds out, and the place in the queue it was taken from.
type offer struct {
	letter
	place uint64 // among all that were ever taken from returned or fresh
}

func newQueue(b *Broker, o broker.Object) (*queue, error) {
	q := &queue{broker: b, name: o.Name, args: o.Args, limit: -1}
	if value, given := o.Args[argLimit]; given {
		limit, ok := value.(int64)
		if !ok {
			return nil, fmt.Errorf("%w: argument %s of %s is not a number", holdfast.ErrInvalid, argLimit, describe(o))
		}
		q.limit = limit
	}
	if value, given := o.Args[argTarget]; given {
		target, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("%w: argument %s of %s is not a name", holdfast.ErrInvalid, argTarget, describe(o))
		}
		q.target = target
	}
	return q, nil
}

// waiting is how many messages can be taken. Those that pumps hold out are not among them.
func (q *queue) waiting() int { return q.returned.length + q.fresh.length + len(q.withdrawn) }

func (q *queue) depth() broker.Depth {
	d := broker.Depth{Ready: q.waiting()}
	for _, s := range q.subs {
		if s.offering {
			d.Ready++
		}
		if s.prefetch > 0 {
			d.Consumers++
		}
	}
	return d
}

// take removes the first message of the queue. There must be one.
func (q *queue) take() offer {
	from := &q.fresh
	if q.returned.length > 0 {
		from = &q.returned
	}
	// What was withdrawn was in front of everything that is still in the fifo it came from.
	if len(q.withdrawn) > 0 && (from == &q.fresh || q.withdrawn[0].returns > 0) {
		o := q.withdrawn[0]
		q.withdrawn = slices.Delete(q.withdrawn, 0, 1)
		return o
	}
	o := offer{from.pop(), 0}
	o.place = from.taken
	return o
}

// restore puts an offer that nobody received back into its place.
func (q *queue) restore(o offer) {
	i, _ := slices.BinarySearchFunc(q.withdrawn, o, func(a, b offer) int {
		if (a.returns > 0) != (b.returns > 0) {
			return cmp.Compare(b.returns, a.returns) // returned ones go first, and 0 means never returned
		}
		return cmp.Compare(a.place, b.place)
	})
	q.withdrawn = slices.Insert(q.withdrawn, i, o)
}

// deaths counts the messages of one queue that were returned too often.
type deaths struct{ moved, dropped int }

// giveBack returns a message that was received.
func (q *queue) giveBack(x letter, d *deaths) {
	if q.gone {
		return
	}
	x.returns++
	if q.limit < 0 || x.returns <= uint64(q.limit) {
		q.returned.push(x.returns, x.body)
		return
	}
	if q.target == "" {
		d.dropped++
		return
	}
	target := q.broker.queues[q.target]
	if target == nil { // one more return too many does less harm than a loss
		q.returned.push(x.returns, x.body)
		return
	}
	d.moved++
	target.fresh.push(0, x.body)
	target.wake()
}

// report must be called without the lock.
func (q *queue) report(d deaths) {
	if d.moved > 0 {
		q.broker.log.WithField("queue", q.name).WithField("count", d.moved).WithField("to", q.target).
			Info("messages were given back too often and moved on")
	}
	if d.dropped > 0 {
		q.broker.log.WithField("queue", q.name).WithField("count", d.dropped).
			Warn("messages were given back too often and dropped")
	}
}

// wake gives everyone a turn who could take one of the waiting messages. Whoever was given
// one and does not take a message must call it again.
func (q *queue) wake() {
	n := min(q.waiting(), len(q.hungry))
	for _, s := range q.hungry[:n] {
		s.poke()
	}
	q.hungry = slices.Delete(q.hungry, 0, n)
}

// starve lets a subscription wait for a message, behind those that wait already.
func (q *queue) starve(s *subscription) {
	if !slices.Contains(q.hungry, s) {
		q.hungry = append(q.hungry, s)
	}
}

// sate ends the waiting of a subscription.
func (q *queue) sate(s *subscription) { q.hungry = without(q.hungry, s) }

func without(list []*subscription, s *subscription) []*subscription {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
