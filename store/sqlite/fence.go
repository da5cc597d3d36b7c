package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// oldQuestion is how long after it was asked a question about leases is not answered any more.
const oldQuestion = 2 * time.Second

// Fence implements store.Fencing. There is no server that could be down, but the same happens to leases when the
// machine sleeps or its clock is set: from then on it counts as one that has just come up, as it does when the store
// is opened.
func (s *Store) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	const operation = "fence runs"
	first, err := list[momentRow](ctx, s, operation, "fence_first", s.now().UnixMicro())
	if err != nil || len(first) == 0 {
		return nil, err
	}
	if over := moment(first[0].At).Add(grace); !over.Before(s.now()) {
		return nil, nil
	}
	var fenced []holdfast.RunID
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		if s.clock.even() < settle || moment(tx.now).Sub(asked) >= oldQuestion {
			return nil
		}
		if _, err := tx.exec(ctx, "fence_ahead", tx.now); err != nil {
			return err
		}
		rows, err := all[struct{ ID holdfast.RunID }](ctx, tx, "fence", tx.now, micros(grace))
		for _, row := range rows {
			fenced = append(fenced, row.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(fenced)
	return fenced, nil
}
