package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// PassedOn implements store.Work.
func (s *Store) PassedOn(ctx context.Context, tickets []holdfast.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	return s.write(ctx, "note tickets that are passed on", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "passed_on", pairs(tickets), tx.now)
		return err
	})
}
