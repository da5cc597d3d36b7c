package postgres

import (
	"context"
	"time"
)

// Now implements store.Fencing. It uses the connections of the leases, which no other statement
// can exhaust.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var row struct{ Now time.Time }
	err := s.do(ctx, "ask for the time", func() error {
		var err error
		row, err = one[struct{ Now time.Time }](ctx, s, s.leases, "now")
		return err
	})
	return row.Now.UTC(), err
}
