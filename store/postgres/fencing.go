package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// fencer is the role store.Fencing.
type fencer struct {
	*database
	sweeping atomic.Bool // Abandoned has found tasks at its last look at all
}

// Now implements store.Fencing. It uses the connections of the leases, which no other statement
// can exhaust.
func (s *fencer) Now(ctx context.Context) (time.Time, error) {
	var row struct{ Now time.Time }
	err := s.do(ctx, "ask for the time", func() error {
		var err error
		row, err = one[struct{ Now time.Time }](ctx, s, s.leases, "now")
		return err
	})
	return row.Now.UTC(), err
}

// Fence implements store.Fencing.
func (s *fencer) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	var rows []scan.ID
	err := s.do(ctx, "fence runs", func() error {
		rows = nil
		return s.all(ctx, s.leases, &rows, "fence", micros(grace), micros(settle), asked)
	})
	if err != nil {
		return nil, err
	}
	runs := make([]holdfast.RunID, len(rows))
	for i, row := range rows {
		runs[i] = holdfast.RunID(row.ID)
	}
	return runs, nil
}

// sweepEvery is how often one process reads all tasks although no run has ended that may own some: a row of runs may
// have been deleted by hand, and a run that was closed as clean may own some after all.
const sweepEvery = 10 * time.Minute

// Abandoned implements store.Fencing. Reading all tasks is dear, so it is done only after a run has ended that may own some.
//
// That it is not one look but several makes no difference: a run that was over before the first of
// them takes nothing any more, so behind the walk nothing of its own can appear.
func (s *fencer) Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error) {
	const operation = "find abandoned tasks"
	if limit <= 0 {
		return nil, nil
	}
	over, err := list[scan.ID](ctx, s, operation, "abandoned_runs", int64(run))
	if err != nil {
		return nil, err
	}
	if len(over) == 0 && run == 0 && !s.sweeping.Load() {
		if due, err := s.turn(ctx, "sweep all", sweepEvery); err != nil || !due {
			return nil, err
		}
	}
	var rows []scan.Task
	_, err = s.inSteps(ctx, operation, walk{size: limit, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		var found []scan.Task
		if err := s.all(ctx, tx, &found, "abandoned", r.after, r.through, r.size, int64(run)); err != nil || len(found) == 0 {
			return step{}, err
		}
		rows = append(rows[:r.changed], found...) // a step may be repeated
		return step{Changed: len(found), Last: int64(found[len(found)-1].ID)}, nil
	})
	if err != nil {
		return nil, err
	}
	if run == 0 {
		s.sweeping.Store(len(rows) > 0) // the caller hands them back, and there may be more
	}
	if len(rows) == 0 {
		err = s.sweptRuns(ctx, operation, over)
	}
	return scan.Tasks(rows), err
}

// sweptRuns notes that a look at all tasks has found none of these runs.
func (s *fencer) sweptRuns(ctx context.Context, operation string, over []scan.ID) error {
	if len(over) == 0 {
		return nil
	}
	return s.do(ctx, operation, func() error {
		_, err := s.exec(ctx, s.db, "abandoned_swept", numbers(scan.IDs(over)))
		return err
	})
}
