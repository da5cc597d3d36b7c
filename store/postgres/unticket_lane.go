package postgres

import (
	"context"

	"github.com/holdfastq/holdfast/store"
)

const unticketStep = 5000

// UnticketLane implements store.Repair. After an error some tasks are changed and
// others are not; calling it again does the rest.
func (s *Store) UnticketLane(ctx context.Context, lane string) (int, error) {
	return s.inSteps(ctx, "unticket lane "+lane, walk{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "unticket_lane", r.after, r.through, r.size, lane)
	})
}
