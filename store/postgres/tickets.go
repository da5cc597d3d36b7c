package postgres

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
	tasks, attempts := pairs(tickets)
	return s.do(ctx, "park tasks", func() error {
		_, err := s.exec(ctx, s.db, "park", tasks, attempts, micros(wait), clean(why))
		return err
	})
}

// PassedOn implements store.Tickets.
func (s *ticketer) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	tasks, attempts := pairs(tickets)
	return s.do(ctx, "note tickets that are passed on", func() error {
		_, err := s.exec(ctx, s.db, "passed_on", tasks, attempts)
		return err
	})
}

// Drained implements store.Tickets.
func (s *ticketer) Drained(ctx context.Context, sentinel message.Sentinel) error {
	return s.do(ctx, "record a drained lane", func() error {
		_, err := s.exec(ctx, s.db, "drained", sentinel.Lane, sentinel.At)
		return err
	})
}
