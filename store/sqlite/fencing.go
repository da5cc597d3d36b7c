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

// Now implements store.Fencing. It checks that the path still names the open file, and reads from it.
func (s *fencer) Now(ctx context.Context) (time.Time, error) {
	const operation = "ask for the time"
	if err := s.gone(); err != nil {
		return time.Time{}, s.translate(ctx, operation, err)
	}
	if _, err := list[numberRow](ctx, s, operation, "now"); err != nil {
		return time.Time{}, err
	}
	return s.now(), nil
}

type numberRow struct{ N int64 }

// oldQuestion is how long after it was asked a question about leases is not answered any more.
const oldQuestion = 2 * time.Second

// Fence implements store.Fencing. There is no server that could be down, but the same happens to leases when the
// machine sleeps or its clock is set: from then on it counts as one that has just come up, as it does when the store
// is opened.
func (s *fencer) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	const operation = "fence runs"
	first, err := list[momentRow](ctx, s, operation, "fence_first", s.now().UnixMicro())
	if err != nil || len(first) == 0 {
		return nil, err
	}
	if over := moment(first[0].At).Add(grace); !over.Before(s.now()) {
		return nil, nil
	}
	var fenced []holdfast.RunID
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		if s.clock.even() < settle || moment(tx.now).Sub(asked) >= oldQuestion {
			return nil
		}
		if _, err := tx.exec(ctx, "fence_ahead", tx.now); err != nil {
			return err
		}
		rows, err := all[struct{ ID holdfast.RunID }](ctx, tx, "fence", tx.now, micros(grace))
		for _, row := range rows {
			fenced = append(fenced, row.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(fenced)
	return fenced, nil
}

// Abandoned implements store.Fencing.
func (s *fencer) Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error) {
	const operation = "find abandoned tasks"
	if limit <= 0 {
		return nil, nil
	}
	// First the runs: what is over before the look at the tasks takes nothing any more.
	over, err := list[scan.ID](ctx, s, operation, "abandoned_runs", int64(run))
	if err != nil {
		return nil, err
	}
	rows, err := list[scan.Task](ctx, s, operation, "abandoned", int64(run), limit)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 && len(over) > 0 {
		err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
			_, err := tx.exec(ctx, "abandoned_swept", numbers(scan.IDs(over)))
			return err
		})
	}
	return scan.Tasks(rows), err
}
