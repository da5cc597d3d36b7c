package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

// asideEvery is the time between two batches of malformed messages that a janitor puts aside, from all its queues
// together. No task waits for them, and a flood of them at full speed takes processors that healthy tasks need.
const asideEvery = 250 * time.Millisecond

// asides are the malformed messages of one subscription, in hand until they are put aside. What comes behind them is
// read meanwhile, as far as the prefetch goes.
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

// turn ticks when the next batch may be put aside. All queues share one ticker, so they share the limit.
func (a *asides) turn() <-chan time.Time {
	if len(a.waiting) == 0 { // a ticker that nobody listens to wakes nobody
		return nil
	}
	return a.j.aside
}

// put puts one batch aside. What the broker does not take stays in hand until a later tick: to give it back would count
// against its deliveries. An error is the end of the subscription.
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
	for _, m := range batch { // one by one: others that came between them stay in hand
		if err := a.sub.Ack(m.tag, broker.One); err != nil {
			return err
		}
	}
	a.waiting = slices.Delete(a.waiting, 0, len(batch))
	return nil
}
