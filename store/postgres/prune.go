package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// pruneStep bounds the rows that one transaction deletes.
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
	if youngest == 0 || limit <= 0 {
		return 0, nil
	}
	var bound int64
	err := s.do(ctx, "prune tasks", func() error {
		row, err := one[struct{ Bound int64 }](ctx, s, s.db, "prune_bound", micros(youngest))
		bound = row.Bound
		return err
	})
	if err != nil || bound == 0 {
		return 0, err
	}
	return s.inSteps(ctx, "prune tasks", walk{through: bound, size: pruneStep, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "prune_tasks", r.after, r.through, r.size, micros(ages.Done), micros(ages.Cancelled), micros(ages.Archived))
	})
}
