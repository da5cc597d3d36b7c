package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// keeper is the role store.Upkeep.
type keeper struct{ *database }

// noteDuty is the key of the row with the newest recorded time, in the table of turns.
const noteDuty = "clock"

// correctStep is the maximum number of rows, other than tasks, that one transaction of CorrectTimes corrects.
const correctStep = 1000

// correctRange is the number of ids that one step reads. Its transaction takes about ten milliseconds.
const correctRange = 10_000

// CorrectTimes implements store.Upkeep. It records the time last, so that the next call repeats the work of a failed
// call.
func (s *keeper) CorrectTimes(ctx context.Context) (bool, error) {
	const operation = "correct times"
	noted, err := list[numberRow](ctx, s, operation, "correct_noted", s.now().UnixMicro(), noteDuty)
	if err != nil {
		return false, err
	}
	setBack := noted[0].N > 0
	if setBack {
		if err := s.correct(ctx, operation); err != nil {
			return false, err
		}
	}
	_, err = s.change(ctx, operation, "correct_note", noteDuty)
	return setBack, err
}

// correct corrects the times after the clock was set back.
func (s *keeper) correct(ctx context.Context, operation string) error {
	// The order is the same as in the other adapter.
	for _, name := range []string{"correct_outbox", "correct_breakers", "correct_buckets", "correct_plan_items", "correct_plans"} {
		for n := correctStep; n == correctStep; {
			var err error
			if n, err = s.change(ctx, operation, name, correctStep); err != nil {
				return err
			}
		}
	}
	var err error
	for after := int64(0); err == nil; {
		var ids []struct{ First, Last int64 }
		ids, err = list[struct{ First, Last int64 }](ctx, s, operation, "correct_range", after)
		if err != nil || ids[0].First == 0 {
			return err
		}
		first, through := ids[0].First-1, min(ids[0].First-1+correctRange, ids[0].Last)
		err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			_, err := tx.exec(ctx, "correct_tasks", tx.now, first, through)
			return err
		})
		after = through
	}
	return err
}

// Turn implements store.Upkeep. Usually another call has taken the turn, and Turn only reads.
func (s *keeper) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	const operation = "take a turn"
	taken, err := list[numberRow](ctx, s, operation, "turn_taken", duty, s.now().UnixMicro(), micros(every))
	if err != nil || taken[0].N > 0 {
		return false, err
	}
	n, err := s.change(ctx, operation, "turn", duty, every)
	return n == 1, err
}

// pruneStep is the maximum number of rows that one transaction deletes. Such a transaction takes a few milliseconds.
const pruneStep = 500

// Prune implements store.Upkeep. After an error some rows are deleted and others are not.
func (s *keeper) Prune(ctx context.Context, ages store.PruneAges, limit int) (int, error) {
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
	n, err := s.prune(ctx, "prune unique keys", limit-total, "prune_keys", []any{s.now().UnixMicro()})
	if total += n; err != nil {
		return total, err
	}
	if ages.Answers > 0 {
		n, err := s.prune(ctx, "prune answers", limit-total, "prune_answers", []any{s.now().UnixMicro() - micros(ages.Answers)})
		if total += n; err != nil {
			return total, err
		}
	}
	if ages.Done > 0 {
		for _, name := range []string{"prune_plan_items", "prune_plans"} {
			n, err := s.prune(ctx, "prune plans", limit-total, name, []any{ages.Done})
			if total += n; err != nil {
				return total, err
			}
		}
	}
	if _, err := s.prune(ctx, "prune cancellations", limit, "prune_cancellations", nil); err != nil {
		return total, err
	}
	if ages.Workers <= 0 {
		return total, nil
	}
	n, err = s.prune(ctx, "prune workers", limit-total, "prune_workers", []any{s.now().UnixMicro() - micros(ages.Workers)})
	return total + n, err
}

// prune deletes at most limit rows in steps. It appends an argument to those of the statement: the maximum number of
// rows of the step.
func (s *keeper) prune(ctx context.Context, operation string, limit int, name string, args []any) (int, error) {
	total := 0
	for total < limit {
		size := min(pruneStep, limit-total)
		deleted, err := s.change(ctx, operation, name, append(args[:len(args):len(args)], size)...)
		if err != nil {
			return total, err
		}
		total += deleted
		if deleted < size {
			break
		}
	}
	return total, nil
}
