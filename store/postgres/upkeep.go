package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// keeper is the role store.Upkeep.
type keeper struct{ *database }

// noteDuty is the key of the row with the newest recorded time, in the table of turns.
const noteDuty = "clock"

// correctStep is the maximum number of rows, other than tasks, that one transaction of CorrectTimes corrects.
const correctStep = 1000

// CorrectTimes implements store.Upkeep. It records the time last, so that the next call repeats the work of a failed
// call.
func (s *keeper) CorrectTimes(ctx context.Context) (bool, error) {
	const operation = "correct times"
	noted, err := list[struct{ Ahead bool }](ctx, s, operation, "correct_noted", noteDuty)
	if err != nil {
		return false, err
	}
	if noted[0].Ahead {
		// The outbox is corrected first, because a task must not seem older than its outbox entry. Breakers are
		// corrected before their buckets, because a check of a bucket copies the time of the next probe.
		for _, name := range []string{"correct_outbox", "correct_breakers", "correct_buckets", "correct_plan_items", "correct_plans"} {
			for n := correctStep; n == correctStep; {
				if n, err = s.change(ctx, operation, name, correctStep); err != nil {
					return false, err
				}
			}
		}
		_, err := s.inSteps(ctx, operation, rangeScan{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
			return one[step](ctx, s, tx, "correct_tasks", r.after, r.through, r.size)
		})
		if err != nil {
			return false, err
		}
	}
	_, err = s.change(ctx, operation, "correct_note", noteDuty)
	return noted[0].Ahead, err
}

// Turn implements store.Upkeep.
func (s *keeper) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	return s.turn(ctx, duty, every)
}

// turn is Turn for all roles.
func (d *database) turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	n, err := d.change(ctx, "take a turn", "turn", duty, micros(every))
	return n == 1, err
}

// pruneStep is the maximum number of tasks that one transaction deletes.
const pruneStep = 1000

// expired is the age of a row that is deleted as soon as its own time has passed.
const expired = time.Microsecond

// Prune implements store.Upkeep. After an error some rows are deleted and others are not.
func (s *keeper) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
	total, err := s.pruneTasks(ctx, ages, limit)
	if err != nil {
		return total, err
	}
	most := 0
	if ages.Workers > 0 {
		most = max(0, limit-total)
	}
	workers, err := s.change(ctx, "prune workers", "prune_workers", micros(ages.Workers), most)
	if total += workers; err != nil {
		return total, err
	}
	for _, rows := range []struct {
		age             time.Duration
		operation, name string
	}{
		{expired, "prune unique keys", "prune_keys"},
		{ages.Answers, "prune answers", "prune_answers"}, {ages.Done, "prune items of plans", "prune_plan_items"}, {ages.Done, "prune plans", "prune_plans"},
	} {
		if rows.age <= 0 {
			continue
		}
		for n := pruneStep; n == pruneStep && total < limit; {
			var err error
			if n, err = s.change(ctx, rows.operation, rows.name, micros(rows.age), min(pruneStep, limit-total)); err != nil {
				return total, err
			}
			total += n
		}
	}
	return total, nil
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
	rows, err := list[struct{ Bound int64 }](ctx, s, "prune tasks", "prune_bound", micros(youngest))
	if err != nil || rows[0].Bound == 0 {
		return 0, err
	}
	return s.inSteps(ctx, "prune tasks", rangeScan{through: rows[0].Bound, size: pruneStep, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "prune_tasks", r.after, r.through, r.size, micros(ages.Done), micros(ages.Cancelled), micros(ages.Archived))
	})
}
