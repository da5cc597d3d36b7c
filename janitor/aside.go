package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

const (
	// asideShare is the part of the time, one in so many, in which a janitor puts malformed messages aside. No task
	// waits for it, and a flood of them at full speed takes processors that healthy tasks need. A share, not a rate,
	// because it follows what the broker can do and what else it has to do.
	asideShare = 10
	// longestRest bounds the pause after a batch, however long that took, so that thousands of messages are a matter
	// of a minute; it is also the one after a failure.
	longestRest = time.Second
)

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

// turn has a token when the next batch may be put aside; whoever takes it must call put. There is one token for all
// queues, so that they have the share together.
func (a *asides) turn() <-chan struct{} {
	if len(a.waiting) == 0 {
		return nil
	}
	return a.j.turn
}

// put puts one batch aside and gives the turn back after a rest. What the broker does not take stays in hand, for to
// give it back would count against its deliveries. An error is the end of the subscription.
func (a *asides) put(ctx context.Context) error {
	began, rest := time.Now(), longestRest
	defer func() { time.AfterFunc(rest, func() { a.j.turn <- struct{}{} }) }()
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
	rest = min((asideShare-1)*time.Since(began), longestRest)
	return nil
}
