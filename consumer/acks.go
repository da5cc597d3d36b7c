package consumer

import (
	"cmp"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast/broker"
)

// acks settles the deliveries of one subscription in their order. It acks a delivery only when that delivery and all
// earlier ones are finished, so one ack can cover many deliveries. The broker may confirm manifests in any order, but
// acks never acks a delivery whose manifest is not confirmed.
type acks struct {
	sub broker.Subscription

	mu      sync.Mutex
	unacked []entry // oldest first
}

type entry struct {
	tag      uint64
	finished bool
	returned bool // the entry was settled by Requeue
}

// received records a delivery. Calls must be in the order of the tags.
func (a *acks) received(tag uint64) {
	a.mu.Lock()
	a.unacked = append(a.unacked, entry{tag: tag})
	a.mu.Unlock()
}

// finish marks deliveries as finished, and acks the oldest deliveries up to the first unfinished one.
func (a *acks) finish(tags []uint64) error {
	return a.settle(tags, func(e *entry) { e.finished = true })
}

// requeue returns deliveries to their AMQP queue.
func (a *acks) requeue(tags []uint64) error {
	if err := a.sub.Requeue(tags...); err != nil {
		return err
	}
	return a.settle(tags, func(e *entry) { e.finished, e.returned = true, true })
}

func (a *acks) settle(tags []uint64, mark func(*entry)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, tag := range tags {
		i, found := slices.BinarySearchFunc(a.unacked, tag, func(e entry, tag uint64) int { return cmp.Compare(e.tag, tag) })
		if found {
			mark(&a.unacked[i])
		}
	}
	var last uint64
	n := 0
	for n < len(a.unacked) && a.unacked[n].finished {
		if !a.unacked[n].returned {
			last = a.unacked[n].tag
		}
		n++
	}
	a.unacked = a.unacked[n:]
	if last == 0 {
		return nil
	}
	// Ack is called inside the lock, so that acks reach the broker in order.
	return a.sub.Ack(last, broker.UpTo)
}
