package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// sweepEvery is how often one process reads all tasks although no run has ended that may own some: a row of runs may
// have been deleted by hand, and a run that was closed as clean may own some after all.
const sweepEvery = 10 * time.Minute

// Abandoned implements store.Fencing. Reading all tasks is dear, so it is done only after a run has ended that may own some.
//
// That it is not one look but several makes no difference: a run that was over before the first of
// them takes nothing any more, so behind the walk nothing of its own can appear.
func (s *Store) Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error) {
	const operation = "find abandoned tasks"
	if limit <= 0 {
		return nil, nil
	}
	var over []idRow
	err := s.do(ctx, operation, func() error {
		over = nil
		return s.all(ctx, s.db, &over, "abandoned_runs", int64(run))
	})
	if err != nil {
		return nil, err
	}
	if len(over) == 0 && run == 0 && !s.sweeping.Load() {
		if due, err := s.Turn(ctx, "sweep all", sweepEvery); err != nil || !due {
			return nil, err
		}
	}
	var rows []taskRow
	_, err = s.inSteps(ctx, operation, walk{size: limit, limit: limit}, func(tx store.Tx, r idRange) (step, error) {
		var found []taskRow
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
	return tasksOf(rows), err
}

// sweptRuns notes that a look at all tasks has found none of these runs.
func (s *Store) sweptRuns(ctx context.Context, operation string, over []idRow) error {
	if len(over) == 0 {
		return nil
	}
	ids := make([]int64, len(over))
	for i, row := range over {
		ids[i] = row.ID
	}
	return s.do(ctx, operation, func() error {
		_, err := s.exec(ctx, s.db, "abandoned_swept", numbers(ids))
		return err
	})
}

func tasksOf(rows []taskRow) []holdfast.Task {
	tasks := make([]holdfast.Task, len(rows))
	for i, row := range rows {
		tasks[i] = row.task()
	}
	return tasks
}
