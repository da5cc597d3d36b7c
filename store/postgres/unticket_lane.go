package postgres

import "context"

// unticketStep is how many rows one statement changes, so that it locks them for a short time.
const unticketStep = 5000

// UnticketLane implements store.Repair. After an error some tasks are changed and
// others are not; calling it again does the rest.
func (s *Store) UnticketLane(ctx context.Context, lane string) (int, error) {
	return s.inSteps(ctx, "unticket lane "+lane, func(after int64) (step, error) {
		return one[step](ctx, s, s.db, "unticket_lane", lane, after, unticketStep)
	}, unticketStep)
}

// step is what one statement of several has done.
type step struct {
	Changed int
	Last    int64 // largest id it changed
}

// inSteps calls f with the last id of the call before until a call changes less than size rows.
func (s *Store) inSteps(ctx context.Context, operation string, f func(after int64) (step, error), size int) (int, error) {
	total, after := 0, int64(0)
	for {
		var did step
		err := s.do(ctx, operation, func() error {
			var err error
			did, err = f(after)
			return err
		})
		total += did.Changed
		if err != nil || did.Changed < size {
			return total, err
		}
		after = did.Last
	}
}
