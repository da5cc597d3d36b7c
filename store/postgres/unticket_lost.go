package postgres

import (
	"context"
	"time"
)

// UnticketLost implements store.Repair. It has to read all tasks. If that takes
// long, it does nothing for a while, so that it costs a hundredth of the time at most.
func (s *Store) UnticketLost(ctx context.Context, slack time.Duration) (int, error) {
	began := time.Now()
	if began.UnixNano() < s.lostAgain.Load() {
		return 0, nil
	}
	changed, err := s.inSteps(ctx, "unticket lost tasks", func(after int64) (step, error) {
		return one[step](ctx, s, s.db, "unticket_lost", micros(slack), after, unticketStep)
	}, unticketStep)
	if took := time.Since(began); took > time.Second && changed == 0 {
		s.lostAgain.Store(time.Now().Add(100 * took).UnixNano())
	}
	return changed, err
}
