package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Unticket implements store.Repair.
func (s *Store) Unticket(ctx context.Context, tickets []holdfast.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	changed := 0
	err := s.write(ctx, "unticket tasks", func(ctx context.Context, tx *transaction) error {
		var err error
		changed, err = tx.exec(ctx, "unticket", pairs(tickets), tx.now)
		return err
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}
