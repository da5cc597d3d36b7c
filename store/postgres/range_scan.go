package postgres

import (
	"context"
	"math"

	"github.com/jmoiron/sqlx"

	"github.com/holdfastq/holdfast/store"
)

// rangeSize is the number of ids that one statement of a range scan reads. It limits the rows that are read, not the
// rows that match. Among tens of millions of tasks, none may match, and a statement without this limit would exceed its
// time limit.
const rangeSize = 50_000

// rangeScan is a scan of all tasks in the order of their ids, in steps. Each step is a short transaction.
type rangeScan struct {
	through int64 // the last id to read; 0 means the highest id at the start of the scan
	size    int   // the maximum number of rows that a step changes; it keeps locks short
	limit   int   // the scan ends after this number of changed rows; 0 means no limit
}

// idRange is the input of one step: the ids above after, up to the id through.
type idRange struct {
	after, through int64
	size           int // the maximum number of matching rows
	changed        int // the number of rows that earlier steps have changed
}

// step is the result of one step.
type step struct {
	Changed int
	Last    int64 // the largest id that the step changed
}

// inSteps calls f for each range of ids in turn, and returns the number of changed rows. If a step fails, it is rolled
// back, and the steps before it remain committed.
func (d *database) inSteps(ctx context.Context, operation string, scan rangeScan, f func(store.Tx, idRange) (step, error)) (int, error) {
	if scan.limit == 0 {
		scan.limit = math.MaxInt
	}
	total, after := 0, int64(0)
	for total < scan.limit {
		var result step
		var scanned idRange
		err := d.do(ctx, operation, func() error {
			return d.tx(ctx, func(tx *sqlx.Tx) error {
				var err error
				scanned, err = d.nextRange(ctx, tx, &scan, after)
				if err != nil || scanned.through == 0 {
					return err
				}
				scanned.size, scanned.changed = min(scan.size, scan.limit-total), total
				result, err = f(tx, scanned)
				return err
			})
		})
		if err != nil || scanned.through == 0 {
			return total, err
		}
		total += result.Changed
		after = scanned.through
		if result.Changed == scanned.size { // there may be more rows in this range
			after = result.Last
		}
	}
	return total, nil
}

// nextRange returns the next ids to read, or the zero value at the end of the scan. It skips a gap of any width at no
// cost.
func (d *database) nextRange(ctx context.Context, tx *sqlx.Tx, scan *rangeScan, after int64) (idRange, error) {
	if _, err := d.exec(ctx, tx, "steps_settings"); err != nil {
		return idRange{}, err
	}
	ids, err := one[struct{ First, Last int64 }](ctx, d, tx, "steps", after)
	if err != nil {
		return idRange{}, err
	}
	if scan.through == 0 {
		scan.through = ids.Last
	}
	if ids.First == 0 || ids.First > scan.through {
		return idRange{}, nil
	}
	return idRange{after: ids.First - 1, through: min(ids.First-1+rangeSize, scan.through)}, nil
}
