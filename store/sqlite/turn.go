package sqlite

import (
	"context"
	"time"
)

// Turn implements store.Repair. Nearly always somebody has taken the turn, and it only reads.
func (s *Store) Turn(ctx context.Context, duty string, every time.Duration) (bool, error) {
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
