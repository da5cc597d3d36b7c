package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Park implements store.Work.
func (s *Store) Park(ctx context.Context, tickets []holdfast.Ticket, wait time.Duration, why string) error {
	if len(tickets) == 0 {
		return nil
	}
	tasks, attempts := pairs(tickets)
	return s.do(ctx, "park tasks", func() error {
		_, err := s.exec(ctx, s.db, "park", tasks, attempts, micros(wait), clean(why))
		return err
	})
}
