package consumer

import (
	"cmp"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast/broker"
)

// acks settles the deliveries of one subscription in the order they came: a
// delivery is acked only when it and all before it are finished, so one ack can
// cover many. Confirms may come in any order; a tag of a page whose
// manifest is not confirmed is never inside an acked prefix.
type acks struct {
	sub broker.Subscription

	mu    sync.Mutex
	queue []entry // received and not yet acked, oldest first
}

type entry struct {
	tag      uint64
	finished bool
	returned bool // given back by Requeue: settled already
}

// received notes a delivery; calls are in the order of the tags.
func (a *acks) received(tag uint64) {
	a.mu.Lock()
	a.queue = append(a.queue, entry{tag: tag})
	a.mu.Unlock()
}

// finish acks what it can now that these deliveries are finished.
func (a *acks) finish(tags []uint64) error {
	return a.settle(tags, func(e *entry) { e.finished = true })
}

// giveBack returns deliveries to the queue.
func (a *acks) giveBack(tags []uint64) error {
	if err := a.sub.Requeue(tags...); err != nil {
		return err
	}
	return a.settle(tags, func(e *entry) { e.finished, e.returned = true, true })
}

func (a *acks) settle(tags []uint64, mark func(*entry)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, tag := range tags {
		i, found := slices.BinarySearchFunc(a.queue, tag, func(e entry, tag uint64) int { return cmp.Compare(e.tag, tag) })
		if found {
			mark(&a.queue[i])
		}
	}
	var last uint64
	n := 0
	for n < len(a.queue) && a.queue[n].finished {
		if !a.queue[n].returned {
			last = a.queue[n].tag
		}
		n++
	}
	a.queue = a.queue[n:]
	if last == 0 {
		return nil
	}
	// Inside the lock, so that acks reach the broker in order.
	return a.sub.Ack(last, broker.UpTo)
}
