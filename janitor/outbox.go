package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast/store"
)

const (
	outboxEvery = 200 * time.Millisecond // also how late tasks of a caller's own transaction start at most
	outboxBatch = 20                     // receipts; each stands for up to a thousand tickets
)

// outbox publishes the tickets of tasks that are stored and whose producer died, could not
// reach the broker, or left them to the janitor.
func (j *Janitor) outbox(ctx context.Context) error {
	for {
		var publishErr error
		finished, lanes := 0, j.isolated.shared()
		n, err := j.dispatchReceipts(ctx, lanes, outboxBatch, func(tickets byLane) map[message.Ticket]bool {
			var confirmed map[message.Ticket]bool
			confirmed, publishErr = j.publishShared(ctx, tickets)
			finished = len(confirmed)
			return confirmed
		})
		switch {
		case err != nil:
			return err
		case len(j.isolated.shared().Except) > len(lanes.Except): // the next call reaches the receipts of other lanes
		case publishErr != nil && finished == 0: // else the others are put off, and the next ones reached
			return publishErr
		case n < outboxBatch:
			return nil
		}
	}
}

// dispatchReceipts publishes tickets of receipts and deletes those all of whose tickets are confirmed.
func (j *Janitor) dispatchReceipts(ctx context.Context, lanes store.Lanes, limit int, publish func(byLane) map[message.Ticket]bool) (int, error) {
	return j.o.Store.DispatchReceipts(ctx, lanes, limit, func(_ context.Context, receipts []store.Receipt) []bool {
		tickets := make(byLane)
		for _, r := range receipts {
			tickets.add(r.Lane, j.o.Topology.Main(r.Lane), r.Tickets...)
		}
		confirmed := publish(tickets)
		done := make([]bool, len(receipts))
		for i, r := range receipts {
			done[i] = allConfirmed(confirmed, r.Tickets)
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
