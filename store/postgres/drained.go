package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Drained implements store.Work.
func (s *Store) Drained(ctx context.Context, sentinel holdfast.Sentinel) error {
	return s.do(ctx, "record a drained lane", func() error {
		_, err := s.exec(ctx, s.db, "drained", sentinel.Lane, sentinel.At)
		return err
	})
}
