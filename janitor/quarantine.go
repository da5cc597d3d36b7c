package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// quarantineEvery is the time between two batches of malformed messages that a janitor quarantines, from all its AMQP
// queues together. No task waits for them. At full speed, a flood of them would take processor time from healthy tasks.
const quarantineEvery = 250 * time.Millisecond

// quarantiner holds the malformed messages of one subscription until the janitor quarantines them. Meanwhile the
// janitor reads the messages behind them, up to the prefetch limit.
type quarantiner struct {
	j       *Janitor
	sub     broker.Subscription
	waiting []malformed
}

// malformed is a delivery that could not be decoded, with the message to publish in its place.
type malformed struct {
	tag     uint64
	message broker.Message
}

func (q *quarantiner) add(d broker.Delivery, reason error) {
	q.waiting = append(q.waiting, malformed{d.Tag, q.j.o.Topology.Undecodable(d.Body, reason, q.j.o.Name)})
}

// tick returns a channel that has a value when the janitor may quarantine the next batch, or nil if no message waits.
// All subscriptions share one ticker, so they share the limit.
func (q *quarantiner) tick() <-chan time.Time {
	if len(q.waiting) == 0 { // a ticker without a receiver wakes no goroutine
		return nil
	}
	return q.j.quarantineTicks
}

// flush quarantines one batch. If the broker does not confirm the messages, they wait for a later tick: a requeue would
// count against their delivery limit. An error means that the subscription has ended.
func (q *quarantiner) flush(ctx context.Context) error {
	batch := q.waiting[:min(messageBatch, len(q.waiting))]
	messages := make([]broker.Message, len(batch))
	for i, m := range batch {
		messages[i] = m.message
	}
	if err := q.j.quarantine(ctx, messages); err != nil {
		if ctx.Err() == nil {
			q.j.failed(ctx, "quarantine", err, quarantineEvery)
		}
		return nil
	}
	q.j.succeeded(ctx, "quarantine")
	for _, m := range batch { // one by one, because well-formed messages between them may stay unacknowledged
		if err := q.sub.Ack(m.tag, broker.One); err != nil {
			return err
		}
	}
	q.waiting = slices.Delete(q.waiting, 0, len(batch))
	return nil
}

// quarantine publishes messages to the quarantine queue, and those of a newer version to the unread queue. It returns
// nil when the broker has confirmed all of them.
func (j *Janitor) quarantine(ctx context.Context, messages []broker.Message) error {
	if len(messages) == 0 {
		return nil
	}
	unread, reason, unreadQueue := 0, "", j.o.Topology.Unread()
	for _, m := range messages {
		if m.Queue == unreadQueue {
			unread++
		} else if reason == "" {
			reason = m.Headers["holdfast-reason"]
		}
	}
	malformed := len(messages) - unread
	if malformed > 0 {
		j.o.Log.WithField("messages", malformed).WithField("reason", reason).Warn("quarantining messages")
	}
	if unread > 0 {
		j.o.Log.WithField("messages", unread).Info("moving messages of a newer version to the unread queue")
	}
	if err := j.publishAll(ctx, messages); err != nil {
		return err
	}
	j.observe(holdfast.ObservedUnread, unread)
	j.observe(holdfast.ObservedQuarantined, malformed)
	return nil
}
