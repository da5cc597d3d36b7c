package sqlite

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Drained implements store.Work.
func (s *Store) Drained(ctx context.Context, sentinel holdfast.Sentinel) error {
	return s.write(ctx, "record a drained lane", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "drained", sentinel.Lane, sentinel.At.UnixMicro(), tx.now)
		return err
	})
}
