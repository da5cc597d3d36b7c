package postgres

import (
	"context"

	"github.com/holdfastq/holdfast/store"
)

// noteDuty is the row of turns that has the newest recorded time.
const noteDuty = "clock"

// CorrectTimes implements store.Repair. It records the time last, so that the next call repeats a call that failed.
func (s *Store) CorrectTimes(ctx context.Context) (bool, error) {
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
		// The outbox comes first: a task that an entry covers must not look older than the entry.
		err := s.do(ctx, operation, func() error {
			_, err := s.exec(ctx, s.db, "correct_outbox")
			return err
		})
		if err != nil {
			return false, err
		}
		_, err = s.inSteps(ctx, operation, walk{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
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
