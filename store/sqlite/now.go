package sqlite

import (
	"context"
	"time"
)

// Now implements store.Fencing. It looks whether the file is still the one that is open, and reads from it if
// somebody wrote to it, or a second later.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	const operation = "ask for the time"
	if err := s.gone(); err != nil {
		return time.Time{}, s.translate(ctx, operation, err)
	}
	q, now := question{what: operation}, s.now()
	if _, still := s.still.holds(q, now); still {
		return now, nil
	}
	file, certain := s.still.look()
	if _, err := list[numberRow](ctx, s, operation, "now"); err != nil {
		return time.Time{}, err
	}
	now = s.now()
	if certain {
		s.still.remember(q, file, now, now.Add(longestStill))
	}
	return now, nil
}

type numberRow struct{ N int64 }
