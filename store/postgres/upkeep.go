package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
)

// keeper is the role store.Upkeep.
type keeper struct{ *database }

// noteDuty is the key of the row with the newest recorded time, in the table of turns.
const noteDuty = "clock"

// CorrectTimes implements store.Upkeep. It records the time last, so that the next call repeats the work of a failed
// call.
func (s *keeper) CorrectTimes(ctx context.Context) (bool, error) {
	const operation = "correct times"
	var noted struct{ Ahead bool }
	err := s.do(ctx, operation, func() error {
		var err error
		noted, err = one[struct{ Ahead bool }](ctx, s, s.db, "correct_noted", noteDuty)
		return err
	})
	if err != nil {
		return false, err
	}
	if noted.Ahead {
		// The outbox is corrected first, because a task must not seem older than its outbox entry. Breakers are
		// corrected before their buckets, because a check of a bucket copies the time of the next probe.
		for _, name := range []string{"correct_outbox", "correct_breakers", "correct_buckets"} {
			err := s.do(ctx, operation, func() error {
				_, err := s.exec(ctx, s.db, name)
				return err
			})
			if err != nil {
				return false, err
			}
		}
		_, err := s.inSteps(ctx, operation, rangeScan{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
			return one[step](ctx, s, tx, "correct_tasks", r.after, r.through, r.size)
		})
		if err != nil {
			return false, err
		}
	}
	return noted.Ahead, s.do(ctx, operation, func() error {
		_, err := s.exec(ctx, s.db, "correct_note", noteDuty)
		return err
	})
}

// Turn implements store.Upkeep.
func (s *keeper) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	return s.turn(ctx, duty, every)
}

// turn is Turn for all roles.
func (d *database) turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	n := 0
	err := d.do(ctx, "take a turn", func() error {
		var err error
		n, err = d.exec(ctx, d.db, "turn", duty, micros(every))
		return err
	})
	return n == 1, err
}

// ReportDuty implements store.Upkeep.
func (s *keeper) ReportDuty(ctx context.Context, f store.DutyFailure) error {
	return s.do(ctx, "report a duty", func() (err error) {
		if f.Error == "" {
			_, err = s.exec(ctx, s.db, "clear_duty", column.Text(f.Janitor), f.Duty)
		} else {
			_, err = s.exec(ctx, s.db, "report_duty", column.Text(f.Janitor), f.Duty, column.Text(f.Error), micros(f.For), micros(f.Valid))
		}
		return err
	})
}

// pruneStep is the maximum number of tasks that one transaction deletes.
const pruneStep = 1000

// Prune implements store.Upkeep. After an error some rows are deleted and others are not.
func (s *keeper) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	total, err := s.pruneTasks(ctx, ages, limit)
	if err != nil {
		return total, err
	}
	err = s.do(ctx, "prune workers", func() error {
		most := 0
		if ages.Workers > 0 {
			most = max(0, limit-total)
		}
		pruned, err := s.exec(ctx, s.db, "prune_workers", micros(ages.Workers), most)
		total += pruned
		return err
	})
	if err != nil || ages.Answers <= 0 {
		return total, err
	}
	err = s.do(ctx, "prune answers", func() error {
		pruned, err := s.exec(ctx, s.db, "prune_answers", micros(ages.Answers), max(0, limit-total))
		total += pruned
		return err
	})
	return total, err
}

func (s *keeper) pruneTasks(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
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
	return s.inSteps(ctx, "prune tasks", rangeScan{through: bound, size: pruneStep, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "prune_tasks", r.after, r.through, r.size, micros(ages.Done), micros(ages.Cancelled), micros(ages.Archived))
	})
}
