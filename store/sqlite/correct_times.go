package sqlite

import "context"

// noteDuty is the row of turns that has the newest recorded time.
const noteDuty = "clock"

// correctRange is how many ids one step looks at, so that its transaction takes some ten milliseconds.
const correctRange = 10_000

// CorrectTimes implements store.Repair. It records the time last, so that the next call repeats a call that failed.
func (s *Store) CorrectTimes(ctx context.Context) (bool, error) {
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

func (s *Store) correct(ctx context.Context, operation string) error {
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
			for _, name := range []string{"correct_tasks", "correct_attempts"} { // in this order: the first reads what the second changes
				if _, err := tx.exec(ctx, name, tx.now, first, through); err != nil {
					return err
				}
			}
			return nil
		})
		after = through
	}
	return err
}
