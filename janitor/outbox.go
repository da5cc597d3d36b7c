package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	// outboxEvery is the interval of the outbox duty. It is the maximum delay for tasks that were stored without a
	// producer, or in a long transaction of a caller.
	outboxEvery = 200 * time.Millisecond
	outboxBatch = 20 // outbox entries, with up to a thousand tickets each
)

// outbox publishes the tickets of outbox entries that are older than their grace. Their producers have ended, could not
// reach the broker, or have left the tickets to the janitor.
func (j *Janitor) outbox(ctx context.Context) error {
	for {
		var publishErr error
		published, queues := 0, j.isolated.shared()
		n, err := j.dispatchOutbox(ctx, queues, outboxBatch, func(tickets byQueue) map[message.Ticket]bool {
			var confirmed map[message.Ticket]bool
			confirmed, publishErr = j.publishShared(ctx, tickets)
			published = len(confirmed)
			return confirmed
		})
		switch {
		case err != nil:
			return err
		case len(j.isolated.shared().Except) > len(queues.Except): // the next call reads entries of other queues instead
		case publishErr != nil && published == 0: // if some were published, the next call reads other entries
			return publishErr
		case n < outboxBatch:
			return nil
		}
	}
}

// dispatchOutbox calls publish with the tickets of at most limit outbox entries. It deletes an entry if publish returns
// all of its tickets. It returns the number of entries.
func (j *Janitor) dispatchOutbox(
	ctx context.Context, queues store.Queues, limit int, publish func(byQueue) map[message.Ticket]bool,
) (int, error) {
	return j.o.Store.DispatchOutbox(ctx, queues, limit, func(_ context.Context, entries []store.OutboxEntry) []bool {
		tickets := make(byQueue)
		for _, e := range entries {
			tickets.add(e.Queue, j.o.Topology.Main(e.Queue), e.Tickets...)
		}
		confirmed := publish(tickets)
		done := make([]bool, len(entries))
		for i, e := range entries {
			done[i] = allConfirmed(confirmed, e.Tickets)
		}
		return done
	})
}

func allConfirmed(confirmed map[message.Ticket]bool, tickets []message.Ticket) bool {
	for _, t := range tickets {
		if !confirmed[t] {
			return false
		}
	}
	return true
}
