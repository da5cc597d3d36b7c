package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// Signs implements store.Examiner.
func (s *Store) Signs(ctx context.Context, old time.Duration) (store.Signs, error) {
	rows, err := list[struct{ Receipts, Oldest, Turned int64 }](ctx, s, "look for the janitors", "signs", s.now().UnixMicro(), old.Microseconds())
	if err != nil || len(rows) == 0 {
		return store.Signs{}, err
	}
	return store.Signs{
		Receipts: rows[0].Receipts, Oldest: time.Duration(rows[0].Oldest) * time.Microsecond,
		Turned: time.Duration(rows[0].Turned) * time.Microsecond,
	}, nil
}
