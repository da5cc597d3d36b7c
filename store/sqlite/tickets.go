package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
)

// ticketer is the role store.Tickets.
type ticketer struct{ *database }

// Park implements store.Tickets.
func (s *ticketer) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	if len(tickets) == 0 {
		return nil
	}
	return s.write(ctx, "park tasks", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "park", pairs(tickets), tx.now, micros(wait), clean(why))
		return err
	})
}

// PassedOn implements store.Tickets.
func (s *ticketer) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	return s.write(ctx, "note tickets that are passed on", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "passed_on", pairs(tickets), tx.now)
		return err
	})
}

// Drained implements store.Tickets.
func (s *ticketer) Drained(ctx context.Context, sentinel message.Sentinel) error {
	return s.write(ctx, "record a drained lane", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "drained", sentinel.Lane, sentinel.At.UnixMicro(), tx.now)
		return err
	})
}
