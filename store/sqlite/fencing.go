package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// fencer is the role store.Fencing.
type fencer struct{ *database }

// Now implements store.Fencing. It checks that the path still names the open file, and reads the file.
func (s *fencer) Now(ctx context.Context) (time.Time, error) {
	const operation = "read the store's clock"
	if err := s.checkFile(ctx); err != nil {
		return time.Time{}, s.translate(ctx, operation, err)
	}
	if _, err := list[numberRow](ctx, s, operation, "now"); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

type numberRow struct{ N int64 }

// staleCall is the age from which Fence ignores a call, as the contract requires.
const staleCall = 2 * time.Second

// Fence implements store.Fencing. There is no server, so settle begins when the store is opened. It begins again at
// each jump of the clock, because leases expire while the machine sleeps or its clock is set.
func (s *fencer) Fence(ctx context.Context, calledAt time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error) {
	const operation = "fence workers"
	first, err := list[timeRow](ctx, s, operation, "fence_first", s.now().UnixMicro())
	if err != nil || len(first) == 0 {
		return nil, err
	}
	if expired := timeOf(first[0].At).Add(grace); !expired.Before(s.now()) {
		return nil, nil
	}
	var fenced []holdfast.WorkerID
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		// A worker whose renewal waits to write is live. This call may have waited for another process for longer than
		// the lease, and the renewal waits behind it.
		if s.writer.early.Load() > 0 || s.clock.steady() < settle || timeOf(tx.now).Sub(calledAt) >= staleCall {
			return nil
		}
		if _, err := tx.exec(ctx, "fence_ahead", tx.now); err != nil {
			return err
		}
		rows, err := all[scan.ID](ctx, tx, "fence", tx.now, micros(grace))
		fenced = scan.IDs[holdfast.WorkerID](rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(fenced)
	return fenced, nil
}

// Abandoned implements store.Fencing.
func (s *fencer) Abandoned(ctx context.Context, worker holdfast.WorkerID, limit int) ([]holdfast.Task, error) {
	const operation = "find abandoned tasks"
	if limit <= 0 {
		return nil, nil
	}
	// Abandoned reads the workers first. A worker that has ended before Abandoned reads the tasks claims no more tasks.
	ended, err := list[scan.ID](ctx, s, operation, "abandoned_workers", int64(worker))
	if err != nil {
		return nil, err
	}
	rows, err := list[scan.Task](ctx, s, operation, "abandoned", int64(worker), limit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 && len(ended) > 0 {
		_, err = s.change(ctx, operation, "abandoned_swept", scan.IDs[holdfast.WorkerID](ended))
	}
	return scan.Tasks(rows), err
}
