package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

const pruneStep = 1000

// Prune implements store.Repair. After an error some rows are gone and others are not.
func (s *Store) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	total, err := s.pruneTasks(ctx, ages, limit)
	if err != nil {
		return total, err
	}
	err = s.do(ctx, "prune runs", func() error {
		if _, err := s.exec(ctx, s.db, "prune_news"); err != nil {
			return err
		}
		if ages.Runs <= 0 || total >= limit {
			return nil
		}
		runs, err := s.exec(ctx, s.db, "prune_runs", micros(ages.Runs), limit-total)
		total += runs
		return err
	})
	return total, err
}

func (s *Store) pruneTasks(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	youngest := time.Duration(0)
	for _, age := range []time.Duration{ages.Done, ages.Cancelled, ages.Archived} {
		if age > 0 && (youngest == 0 || age < youngest) {
			youngest = age
		}
	}
	if youngest == 0 {
		return 0, nil
	}
	var bound int64
	err := s.do(ctx, "prune tasks", func() error {
		row, err := one[struct{ Bound int64 }](ctx, s, s.db, "prune_bound", micros(youngest))
		bound = row.Bound
		return err
	})
	total, after := 0, int64(0)
	for err == nil && total < limit {
		var did step
		size := min(pruneStep, limit-total)
		err = s.do(ctx, "prune tasks", func() error {
			var err error
			did, err = one[step](ctx, s, s.db, "prune_tasks", after, bound, micros(ages.Done), micros(ages.Cancelled), micros(ages.Archived), size)
			return err
		})
		total += did.Changed
		if did.Changed < size {
			break
		}
		after = did.Last
	}
	return total, err
}
