package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// CloseRun implements store.Leases.
func (s *Store) CloseRun(ctx context.Context, run holdfast.RunID, clean bool) error {
	err := s.do(ctx, "close run", func() error {
		_, err := s.exec(ctx, s.leases, "close_run", int64(run), clean)
		return err
	})
	s.renewers.end(run)
	if err == nil {
		s.heard.forget(run)
	}
	return err
}
