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
	sweeping atomic.Bool // the last scan of Abandoned for all workers has found tasks
}

// Now implements store.Fencing. It uses the connections of the leases, which other statements cannot exhaust.
func (s *fencer) Now(ctx context.Context) (time.Time, error) {
	rows, err := listOn[struct{ Now time.Time }](ctx, s, s.leases, "read the store's clock", "now")
	if err != nil {
		return time.Time{}, err
	}
	return rows[0].Now, nil
}

// Fence implements store.Fencing.
func (s *fencer) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error) {
	rows, err := listOn[scan.ID](ctx, s, s.leases, "fence workers", "fence", micros(grace), micros(settle), asked)
	if err != nil {
		return nil, err
	}
	return scan.IDs[holdfast.WorkerID](rows), nil
}

// sweepEvery is the time between two scans of all tasks by one process while no ended worker may own tasks. A person
// may have deleted a row of workers, or a worker that was deregistered as clean may own tasks by mistake.
const sweepEvery = 10 * time.Minute

// Abandoned implements store.Fencing. Reading all tasks is expensive, so Abandoned does it only if an ended worker may
// own tasks.
//
// The scan is several statements, not one snapshot. It still finds all tasks: a worker that has ended before the scan
// claims no more tasks, so none of its tasks can appear behind the scan.
func (s *fencer) Abandoned(ctx context.Context, worker holdfast.WorkerID, limit int) ([]holdfast.Task, error) {
	const operation = "find abandoned tasks"
	if limit <= 0 {
		return nil, nil
	}
	ended, err := list[scan.ID](ctx, s, operation, "abandoned_workers", int64(worker))
	if err != nil {
		return nil, err
	}
	if len(ended) == 0 && worker == 0 && !s.sweeping.Load() {
		if due, err := s.turn(ctx, "sweep all", sweepEvery); err != nil || !due {
			return nil, err
		}
	}
	var rows []scan.Task
	_, err = s.inSteps(ctx, operation, rangeScan{size: limit, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		var found []scan.Task
		if err := s.all(ctx, tx, &found, "abandoned", r.after, r.through, r.size, int64(worker)); err != nil || len(found) == 0 {
			return step{}, err
		}
		rows = append(rows[:r.changed], found...) // if a step is repeated, its new rows replace the old ones
		return step{Changed: len(found), Last: int64(found[len(found)-1].ID)}, nil
	})
	if err != nil {
		return nil, err
	}
	if worker == 0 {
		s.sweeping.Store(len(rows) > 0) // the next call continues the search, after the caller has taken these tasks back
	}
	if len(rows) == 0 {
		err = s.markSwept(ctx, operation, ended)
	}
	return scan.Tasks(rows), err
}

// markSwept records that a scan of all tasks has found no task of these workers.
func (s *fencer) markSwept(ctx context.Context, operation string, ended []scan.ID) error {
	if len(ended) == 0 {
		return nil
	}
	_, err := s.change(ctx, operation, "abandoned_swept", numbers(scan.IDs[holdfast.WorkerID](ended)))
	return err
}
