package sqlite

import (
	"context"
	"math"
	"time"
)

// UnticketLost implements store.Repair. An index finds the tasks, so it costs little if there are none.
func (s *repairer) UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error) {
	const operation = "unticket lost tasks"
	lanes, err := s.proofs(ctx, operation, slack)
	if err != nil {
		return 0, 0, err
	}
	for _, lane := range lanes {
		// The ticket of a new task goes out a moment after the row says so: see dispatch_receipts_settle.
		before := lane.ProvedThrough - micros(min(slack, 10*time.Second))
		if lane.Uncertain != 0 {
			before = min(before, lane.Uncertain)
		}
		n, err := s.unticketBefore(ctx, operation, lane.Name, before, false)
		if lane.Full { // its worker may hold or return the same ticket whenever a sentinel goes past it
			doubtful += n
		} else {
			lost += n
		}
		if err != nil {
			return lost, doubtful, err
		}
		// The tickets of these went to the requeue queue, about which the sentinel proves nothing.
		again := min(before, lane.ProvedThrough-micros(10*min(slack, math.MaxInt64/10)))
		n, err = s.unticketBefore(ctx, operation, lane.Name, again, true)
		doubtful += n
		if err != nil {
			return lost, doubtful, err
		}
	}
	return lost, doubtful, nil
}

// unticketBefore makes the tasks of a lane due that were ticketed before a time and whose Again is as given.
func (s *repairer) unticketBefore(ctx context.Context, operation, lane string, before int64, again bool) (int, error) {
	return s.unticketInSteps(ctx, operation, func(ctx context.Context, from ticketedRow) ([]ticketedRow, error) {
		return list[ticketedRow](ctx, s, operation, "unticket_find", lane, from.At, int64(from.ID), before, again, unticketStep)
	})
}

// provedLane is a lane of which sentinels came out. Times are in microseconds, 0 for one that is missing.
type provedLane struct {
	Name           string
	DrainedThrough int64 `db:"drained_through"`
	DrainedAt      int64 `db:"drained_at"`
	HeldThrough    int64 `db:"held_through"`
	HeldAt         int64 `db:"held_at"`
	ProvedThrough  int64 `db:"proved_through"`
	// Uncertain is when the oldest receipt of the lane was stored. Tasks since then have perhaps never had
	// a ticket; the receipt will give them one.
	Uncertain int64
	Full      bool // a live run says that all its executors are busy; the same for every lane
}

// proofs returns the lanes of which something is proved: a sentinel has come out, and so has another one that was sent at
// least slack after that.
//
// The newest sentinel of a busy lane has always come out just now. So an older one is held, and only replaced when it has
// become a proof.
func (s *repairer) proofs(ctx context.Context, operation string, slack time.Duration) ([]provedLane, error) {
	lanes, err := list[provedLane](ctx, s, operation, "unticket_lost_lanes")
	if err != nil {
		return nil, err
	}
	var proved []provedLane
	var hold []string
	for _, lane := range lanes {
		isProof := lane.HeldAt != 0 && lane.DrainedThrough-lane.HeldAt >= micros(slack)
		if (lane.HeldAt == 0 || isProof) && (lane.HeldAt != lane.DrainedAt || lane.ProvedThrough != lane.HeldThrough) {
			hold = append(hold, lane.Name)
		}
		if isProof {
			lane.ProvedThrough = lane.HeldThrough
		}
		if lane.ProvedThrough != 0 {
			proved = append(proved, lane)
		}
	}
	if len(hold) > 0 {
		err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			_, err := tx.exec(ctx, "unticket_lost_hold", words(hold), micros(slack))
			return err
		})
	}
	return proved, err
}
