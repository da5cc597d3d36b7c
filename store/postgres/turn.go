package postgres

import (
	"context"
	"time"
)

// Turn implements store.Repair.
func (s *Store) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	n := 0
	err := s.do(ctx, "take a turn", func() error {
		var err error
		n, err = s.exec(ctx, s.db, "turn", duty, micros(every))
		return err
	})
	return n == 1, err
}
