package sqlite

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// keeper is the role store.Upkeep.
type keeper struct{ *database }

// noteDuty is the row of turns that has the newest recorded time.
const noteDuty = "clock"

// correctRange is how many ids one step looks at, so that its transaction takes some ten milliseconds.
const correctRange = 10_000

// CorrectTimes implements store.Upkeep. It records the time last, so that the next call repeats a call that failed.
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
	return setBack, s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "correct_note", tx.now, noteDuty)
		return err
	})
}

func (s *keeper) correct(ctx context.Context, operation string) error {
	// The outbox comes first: a task that an entry covers must not look older than the entry.
	err := s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "correct_outbox", tx.now)
		return err
	})
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

// Turn implements store.Upkeep. Nearly always somebody has taken the turn, and it only reads.
func (s *keeper) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
	const operation = "take a turn"
	taken, err := list[numberRow](ctx, s, operation, "turn_taken", duty, s.now().UnixMicro(), micros(every))
	if err != nil || taken[0].N > 0 {
		return false, err
	}
	mine := false
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		n, err := tx.exec(ctx, "turn", duty, tx.now, micros(every))
		mine = n == 1
		return err
	})
	return mine && err == nil, err
}

// pruneStep bounds the rows that one transaction deletes, so that it takes a few milliseconds.
const pruneStep = 500

// Prune implements store.Upkeep. After an error some rows are gone and others are not.
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
	if _, err := s.prune(ctx, "prune news", limit, "prune_news", nil); err != nil {
		return total, err
	}
	if ages.Runs <= 0 {
		return total, nil
	}
	n, err := s.prune(ctx, "prune runs", limit-total, "prune_runs", []any{s.now().UnixMicro() - micros(ages.Runs)})
	return total + n, err
}

// prune deletes at most limit rows in steps. The last argument of the statement is how many rows a step may delete.
func (s *keeper) prune(ctx context.Context, operation string, limit int, name string, args []any) (int, error) {
	total := 0
	for total < limit {
		size, deleted := min(pruneStep, limit-total), 0
		err := s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			var err error
			deleted, err = tx.exec(ctx, name, append(args[:len(args):len(args)], size)...)
			return err
		})
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
