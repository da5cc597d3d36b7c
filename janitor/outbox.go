package janitor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
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
		finished := 0
		n, err := j.o.Store.DispatchReceipts(ctx, outboxBatch, func(ctx context.Context, receipts []store.Receipt) []bool {
			byQueue := make(map[string][]holdfast.Ticket)
			for _, r := range receipts {
				queue := j.o.Topology.Main(r.Lane)
				byQueue[queue] = append(byQueue[queue], r.Tickets...)
			}
			var confirmed map[holdfast.Ticket]bool
			confirmed, publishErr = j.publishTickets(ctx, byQueue)
			done := make([]bool, len(receipts))
			for i, r := range receipts {
				if done[i] = allConfirmed(confirmed, r.Tickets); done[i] {
					finished++
				}
			}
			return done
		})
		switch {
		case err != nil:
			return err
		case publishErr != nil && finished == 0: // else the others are put off, and the next ones reached
			return publishErr
		case n < outboxBatch:
			return nil
		}
	}
}

func allConfirmed(confirmed map[holdfast.Ticket]bool, tickets []holdfast.Ticket) bool {
	for _, t := range tickets {
		if !confirmed[t] {
			return false
		}
	}
	return true
}
