package sqlite

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
	return s.write(ctx, "park tasks", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "park", pairs(tickets), tx.now, micros(wait), clean(why))
		return err
	})
}
