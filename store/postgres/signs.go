package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// Signs implements store.Examiner.
func (s *Store) Signs(ctx context.Context, old time.Duration) (store.Signs, error) {
	type row struct {
		Receipts, Oldest, Turned int64
		Setback                  sql.NullTime
	}
	var found row
	err := s.do(ctx, "look for the janitors", func() error {
		var err error
		found, err = one[row](ctx, s, s.db, "signs", micros(old))
		return err
	})
	if err != nil {
		return store.Signs{}, err
	}
	return store.Signs{
		Receipts: found.Receipts, Oldest: time.Duration(found.Oldest) * time.Microsecond,
		Turned: time.Duration(found.Turned) * time.Microsecond, SetBack: found.Setback.Time,
	}, nil
}
