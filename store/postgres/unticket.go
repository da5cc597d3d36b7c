package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Unticket implements store.Repair.
func (s *Store) Unticket(ctx context.Context, tickets []holdfast.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	tasks, attempts := pairs(tickets)
	changed := 0
	err := s.do(ctx, "unticket tasks", func() error {
		var err error
		changed, err = s.exec(ctx, s.db, "unticket", tasks, attempts)
		return err
	})
	return changed, err
}
