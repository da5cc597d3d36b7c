package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/broker"
)

const (
	// messageBatch is the maximum number of messages that the janitor handles together. With batches, thousands of
	// malformed messages cost only tens of confirms.
	messageBatch = 250
	// messageGap is the time without a message that ends a batch. Messages arrive in bursts.
	messageGap = 300 * time.Microsecond
)

// gather returns the first delivery and the deliveries that follow it without a gap. It also returns when the
// subscription has ended; then settling the deliveries returns an error.
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

// publishAll publishes messages. It returns nil only if the broker has confirmed all of them.
func (j *Janitor) publishAll(ctx context.Context, messages []broker.Message) error {
	for group := range broker.PublishGroups(messages) {
		if _, err := j.o.Broker.Publish(ctx, group); err != nil {
			return err
		}
	}
	return nil
}

// ackAll acknowledges deliveries one by one, because deliveries between them may stay unacknowledged.
func ackAll(sub broker.Subscription, deliveries []broker.Delivery) error {
	for _, d := range deliveries {
		if err := sub.Ack(d.Tag, broker.One); err != nil {
			return err
		}
	}
	return nil
}
