package sqlite

import (
	"context"
	"time"
)

// Now implements store.Fencing. It checks that the path still names the open file, and reads from it.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	const operation = "ask for the time"
	if err := s.gone(); err != nil {
		return time.Time{}, s.translate(ctx, operation, err)
	}
	if _, err := list[numberRow](ctx, s, operation, "now"); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

type numberRow struct{ N int64 }
