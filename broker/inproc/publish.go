package inproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast/broker"
)

// publishBatch is the number of messages that Publish stores each time it acquires the lock.
const publishBatch = 256

// Publish implements [broker.Publisher]. An outcome is Unknown only if ctx is done or the broker is closed before
// Publish reaches that message.
func (b *Broker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	outcomes := make([]broker.Outcome, len(messages))
	var refused error
	for start := 0; start < len(messages); start += publishBatch {
		end := min(start+publishBatch, len(messages))
		err := b.publish(ctx, messages[start:end], outcomes[start:end])
		if err != nil && !errors.Is(err, broker.ErrNoQueue) {
			return outcomes, err
		}
		refused = cmp.Or(refused, err)
	}
	return outcomes, refused
}

func (b *Broker) publish(ctx context.Context, messages []broker.Message, outcomes []broker.Outcome) (refused error) {
	unlock, err := b.lock(ctx)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	defer unlock()
	var q *queue
	for i, m := range messages {
		if q == nil || q.name != m.Queue {
			if q != nil {
				q.wake()
			}
			q = b.queues[m.Queue]
		}
		if q == nil {
			outcomes[i] = broker.Returned
			if refused == nil {
				refused = fmt.Errorf("publish to %q: %w", m.Queue, broker.ErrNoQueue)
			}
			continue
		}
		q.fresh.push(0, m.Body)
		outcomes[i] = broker.Stored
	}
	if q != nil {
		q.wake()
	}
	return refused
}
