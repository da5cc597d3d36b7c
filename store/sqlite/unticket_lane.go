package sqlite

import (
	"context"
	"math"

	"github.com/holdfastq/holdfast"
)

// unticketStep bounds the tasks that one transaction changes, so that it takes some ten milliseconds; each waits
// for the disk once.
const unticketStep = 2000

// UnticketLane implements store.Repair. After an error some tasks are changed and
// others are not; calling it again does the rest.
func (s *Store) UnticketLane(ctx context.Context, lane string) (int, error) {
	operation := "unticket lane " + lane
	// Those that get a new ticket while it is under way are not looked at again.
	last, err := list[struct{ At int64 }](ctx, s, operation, "unticket_lane_last", lane)
	if err != nil || len(last) == 0 {
		return 0, err
	}
	return s.unticketInSteps(ctx, operation, func(ctx context.Context, from ticketedRow) ([]ticketedRow, error) {
		return list[ticketedRow](ctx, s, operation, "unticket_lane", lane, from.At, int64(from.ID), last[0].At, unticketStep)
	})
}

// ticketedRow is a task and when it got its ticket.
type ticketedRow struct {
	ID holdfast.TaskID
	At int64
}

// unticketInSteps makes due what find returns, until that is less than a full step. find returns tasks in the order
// of (At, ID), behind from; it only reads, and what moved on before it is changed is left alone.
func (s *Store) unticketInSteps(ctx context.Context, operation string, find func(ctx context.Context, from ticketedRow) ([]ticketedRow, error)) (int, error) {
	total := 0
	from := ticketedRow{At: math.MinInt64}
	for {
		rows, err := find(ctx, from)
		if err != nil || len(rows) == 0 {
			return total, err
		}
		found := make([][]int64, len(rows))
		for i, row := range rows {
			found[i] = []int64{int64(row.ID), row.At}
		}
		err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			changed, err := tx.exec(ctx, "unticket_ids", tuples(found), tx.now)
			if err == nil {
				total += changed
			}
			return err
		})
		if err != nil || len(rows) < unticketStep {
			return total, err
		}
		from = rows[len(rows)-1]
	}
}
