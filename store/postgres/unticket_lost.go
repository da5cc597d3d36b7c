package postgres

import (
	"context"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast/store"
)

// UnticketLost implements store.Repair. It has to read all tasks if there is a proof to use. If that
// takes long, it does nothing for a while, so that it costs a hundredth of the time at most.
func (s *Store) UnticketLost(ctx context.Context, slack time.Duration) (int, error) {
	const operation = "unticket lost tasks"
	began := time.Now()
	if began.UnixNano() < s.lostAgain.Load() {
		return 0, nil
	}
	lanes, moments, err := s.proofs(ctx, operation, slack)
	if err != nil || len(lanes) == 0 {
		return 0, err
	}
	changed, err := s.inSteps(ctx, operation, walk{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "unticket_lost", r.after, r.through, r.size, lanes, moments, micros(slack))
	})
	if took := time.Since(began); took > time.Second && changed == 0 {
		s.lostAgain.Store(time.Now().Add(100 * took).UnixNano())
	}
	return changed, err
}

// proofs lists the lanes of which a sentinel has come out at least slack ago, and when it was sent.
func (s *Store) proofs(ctx context.Context, operation string, slack time.Duration) (lanes, moments pq.StringArray, err error) {
	var rows []struct{ Lane, Moment string }
	err = s.do(ctx, operation, func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "unticket_lost_proofs", micros(slack))
	})
	for _, row := range rows {
		lanes, moments = append(lanes, row.Lane), append(moments, row.Moment)
	}
	return lanes, moments, err
}
