package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// quarantineEvery is the time between two batches of malformed messages that a janitor quarantines, over all its AMQP
// queues. These messages are not urgent, and a flood of them at full speed would take processor time from healthy
// tasks.
const quarantineEvery = 250 * time.Millisecond

// quarantiner keeps the malformed messages of one subscription until the janitor quarantines them. The janitor
// continues to read later messages, up to the prefetch limit.
type quarantiner struct {
	j       *Janitor
	sub     broker.Subscription
	waiting []malformed
}

// malformed is a delivery that could not be decoded, and the message to publish in its place.
type malformed struct {
	tag     uint64
	message broker.Message
}

func (q *quarantiner) add(d broker.Delivery, reason error) {
	q.waiting = append(q.waiting, malformed{d.Tag, q.j.o.Topology.Undecodable(d.Body, reason, q.j.o.Name)})
}

// tick returns a channel that has a value when the janitor may quarantine the next batch. It returns nil if no message
// waits. All subscriptions share one ticker, and with it the limit.
func (q *quarantiner) tick() <-chan time.Time {
	if len(q.waiting) == 0 { // without a receiver, the ticker wakes no goroutine
		return nil
	}
	return q.j.quarantineTicks
}

// flush quarantines one batch. Messages that the broker does not confirm wait for a later tick, because a requeue would
// count against their delivery limit. flush returns an error if the subscription has ended.
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
	for _, m := range batch { // one by one, because well-formed messages in between may stay unacknowledged
		if err := q.sub.Ack(m.tag, broker.One); err != nil {
			return err
		}
	}
	q.waiting = slices.Delete(q.waiting, 0, len(batch))
	return nil
}

// quarantine publishes messages to the quarantine queue, and messages of a newer version to the unread queue. It
// returns nil when the broker has confirmed all of them.
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
