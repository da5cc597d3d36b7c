package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

const (
	// messageBatch is how many messages are answered together, so that thousands of malformed ones cost tens of
	// confirms.
	messageBatch = 250
	// messageGap ends a batch when no further message comes for so long: they come in bursts.
	messageGap = 300 * time.Microsecond
)

// gather reads on, after a first delivery, while more come without a gap. The subscription may have ended
// meanwhile: whoever settles the deliveries is told.
func gather(sub broker.Subscription, first broker.Delivery) []broker.Delivery {
	batch := []broker.Delivery{first}
	timer := time.NewTimer(messageGap)
	defer timer.Stop()
	for len(batch) < messageBatch {
		select {
		case delivery, open := <-sub.Deliveries():
			if !open {
				return batch
			}
			batch = append(batch, delivery)
			timer.Reset(messageGap)
		case <-timer.C:
			return batch
		}
	}
	return batch
}

// letter is a message for the quarantine.
func (j *Janitor) letter(body []byte, reason string) broker.Message {
	return broker.Message{
		Queue: j.o.Topology.Quarantine(), Body: body,
		Headers: map[string]string{"holdfast-reason": reason, "holdfast-found-by": j.o.Name},
	}
}

// quarantine puts messages aside for a person and returns when they are confirmed.
func (j *Janitor) quarantine(ctx context.Context, messages []broker.Message) error {
	if len(messages) == 0 {
		return nil
	}
	j.o.Log.WithField("messages", len(messages)).WithField("reason", messages[0].Headers["holdfast-reason"]).Warn("messages go to the quarantine")
	err := j.publishAll(ctx, messages)
	if err == nil {
		j.see(holdfast.ObservedQuarantined, len(messages))
	}
	return err
}

// publishAll returns nil only if every message is confirmed.
func (j *Janitor) publishAll(ctx context.Context, letters []broker.Message) error {
	for parcel := range broker.Parcels(letters) {
		if _, err := j.o.Broker.Publish(ctx, parcel); err != nil {
			return err
		}
	}
	return nil
}

// ackAll settles deliveries one by one: others that came between them stay in hand.
func ackAll(sub broker.Subscription, deliveries []broker.Delivery) error {
	for _, d := range deliveries {
		if err := sub.Ack(d.Tag, broker.One); err != nil {
			return err
		}
	}
	return nil
}
