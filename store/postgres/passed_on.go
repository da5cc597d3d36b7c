package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// PassedOn implements store.Work.
func (s *Store) PassedOn(ctx context.Context, tickets []holdfast.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	tasks, attempts := pairs(tickets)
	return s.do(ctx, "note tickets that are passed on", func() error {
		_, err := s.exec(ctx, s.db, "passed_on", tasks, attempts)
		return err
	})
}
