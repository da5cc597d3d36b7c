package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

// asideEvery is the time between two batches of malformed messages that a janitor quarantines, from all its queues
// together. No task waits for them. To quarantine a flood of them at full speed takes processor time that healthy tasks
// need.
const asideEvery = 250 * time.Millisecond

// asides are the malformed messages of one subscription. The janitor keeps them until it quarantines them, and
// meanwhile reads the messages behind them, as far as the prefetch goes.
type asides struct {
	j       *Janitor
	sub     broker.Subscription
	waiting []malformed
}

type malformed struct {
	tag    uint64
	letter broker.Message
}

func (a *asides) add(d broker.Delivery, reason string) {
	a.waiting = append(a.waiting, malformed{d.Tag, a.j.letter(d.Body, reason)})
}

// turn ticks when the janitor may quarantine the next batch. All queues share one ticker, so they share the limit.
func (a *asides) turn() <-chan time.Time {
	if len(a.waiting) == 0 { // without a receiver the ticker wakes no goroutine
		return nil
	}
	return a.j.aside
}

// put quarantines one batch. If the broker does not take a message, it stays here until a later tick, because giving it
// back would count against its delivery limit. An error ends the subscription.
func (a *asides) put(ctx context.Context) error {
	batch := a.waiting[:min(messageBatch, len(a.waiting))]
	letters := make([]broker.Message, len(batch))
	for i, m := range batch {
		letters[i] = m.letter
	}
	if err := a.j.quarantine(ctx, letters); err != nil {
		if ctx.Err() == nil {
			a.j.o.Log.WithError(err).WithField("duty", "quarantine").Warn("a duty failed, trying again")
		}
		return nil
	}
	for _, m := range batch { // one by one: other messages between them stay unacknowledged
		if err := a.sub.Ack(m.tag, broker.One); err != nil {
			return err
		}
	}
	a.waiting = slices.Delete(a.waiting, 0, len(batch))
	return nil
}
