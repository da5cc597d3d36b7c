package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// pruneStep bounds the rows that one transaction deletes, so that it takes a few milliseconds.
const pruneStep = 500

// Prune implements store.Repair. After an error some rows are gone and others are not.
func (s *Store) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	total := 0
	for _, kind := range []struct {
		state holdfast.State
		age   time.Duration
	}{{holdfast.Done, ages.Done}, {holdfast.Cancelled, ages.Cancelled}, {holdfast.Archived, ages.Archived}} {
		if kind.age <= 0 {
			continue
		}
		before := s.now().UnixMicro() - micros(kind.age)
		n, err := s.prune(ctx, "prune tasks", limit-total, "prune_tasks", []any{string(kind.state), before})
		total += n
		if err != nil {
			return total, err
		}
	}
	if _, err := s.prune(ctx, "prune news", limit, "prune_news", nil); err != nil {
		return total, err
	}
	if ages.Runs <= 0 {
		return total, nil
	}
	n, err := s.prune(ctx, "prune runs", limit-total, "prune_runs", []any{s.now().UnixMicro() - micros(ages.Runs)})
	return total + n, err
}

// prune deletes at most limit rows that the statement called name finds, in steps. The statement <name>_delete gets their ids
// and the same arguments once more.
func (s *Store) prune(ctx context.Context, operation string, limit int, name string, args []any) (int, error) {
	total := 0
	for total < limit {
		size := min(pruneStep, limit-total)
		rows, err := list[idRow](ctx, s, operation, name, append(args[:len(args):len(args)], size)...)
		if err != nil || len(rows) == 0 {
			return total, err
		}
		err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			n, err := tx.exec(ctx, name+"_delete", append([]any{numbers(idsOf(rows))}, args...)...)
			if err == nil {
				total += n
			}
			return err
		})
		if err != nil || len(rows) < size {
			return total, err
		}
	}
	return total, nil
}
