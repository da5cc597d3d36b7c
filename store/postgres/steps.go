package postgres

import (
	"context"
	"math"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast/store"
)

// rangeSize is how many ids one statement of a walk looks at. What bounds it must be the rows it reads
// and not those it finds: among tens of millions of tasks it may find none, and would never end in time.
const rangeSize = 50_000

// walk is a look at all tasks, in the order of their ids and in steps that are each a short transaction.
type walk struct {
	through int64 // last id to look at; 0 means the largest there is when the walk begins
	size    int   // a step changes at most so many rows, so that it locks them for a short time
	limit   int   // the walk ends when it has changed so many; 0 means no limit
}

// idRange is what one step looks at: the ids above after, up to through, and of the rows that
// match no more than size.
type idRange struct {
	after, through int64
	size           int
	changed        int // by the steps before
}

// step is what one step has done.
type step struct {
	Changed int
	Last    int64 // largest id it changed
}

// inSteps calls f for one range of ids after the other and returns how many rows were changed. A step
// that fails is undone; those before it stand.
func (s *Store) inSteps(ctx context.Context, operation string, w walk, f func(store.Tx, idRange) (step, error)) (int, error) {
	if w.limit == 0 {
		w.limit = math.MaxInt
	}
	total, after := 0, int64(0)
	for total < w.limit {
		var did step
		var looked idRange
		err := s.do(ctx, operation, func() error {
			return s.tx(ctx, func(tx *sqlx.Tx) error {
				var err error
				looked, err = s.nextRange(ctx, tx, &w, after)
				if err != nil || looked.through == 0 {
					return err
				}
				looked.size, looked.changed = min(w.size, w.limit-total), total
				did, err = f(tx, looked)
				return err
			})
		})
		if err != nil || looked.through == 0 {
			return total, err
		}
		total += did.Changed
		after = looked.through
		if did.Changed == looked.size { // there may be more in this range
			after = did.Last
		}
	}
	return total, nil
}

// nextRange returns the next ids to look at, none at the end of the walk. A gap costs nothing, however wide.
func (s *Store) nextRange(ctx context.Context, tx *sqlx.Tx, w *walk, after int64) (idRange, error) {
	if _, err := s.exec(ctx, tx, "steps_settings"); err != nil {
		return idRange{}, err
	}
	ids, err := one[struct{ First, Last int64 }](ctx, s, tx, "steps", after)
	if err != nil {
		return idRange{}, err
	}
	if w.through == 0 {
		w.through = ids.Last
	}
	if ids.First == 0 || ids.First > w.through {
		return idRange{}, nil
	}
	return idRange{after: ids.First - 1, through: min(ids.First-1+rangeSize, w.through)}, nil
}
