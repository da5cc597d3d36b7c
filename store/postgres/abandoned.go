package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// sweepEvery is how often Abandoned reads all tasks although no run has ended since
// the last time: a row of runs may have been deleted by hand.
const sweepEvery = 10 * time.Minute

// Abandoned implements store.Fencing. Reading all tasks is dear, so it is done only after a run has ended.
func (s *Store) Abandoned(ctx context.Context, run holdfast.RunID, limit int) ([]holdfast.Task, error) {
	var rows []taskRow
	err := s.do(ctx, "find abandoned tasks", func() error {
		rows = nil
		var over []idRow
		if err := s.all(ctx, s.db, &over, "abandoned_runs", int64(run)); err != nil {
			return err
		}
		began := time.Now()
		if len(over) == 0 && run == 0 && began.Sub(time.Unix(0, s.swept.Load())) < sweepEvery {
			return nil
		}
		if err := s.all(ctx, s.db, &rows, "abandoned", int64(run), limit); err != nil {
			return err
		}
		if len(rows) > 0 {
			return nil
		}
		if run == 0 {
			s.swept.Store(began.UnixNano())
		}
		ids := make([]int64, len(over))
		for i, row := range over {
			ids[i] = row.ID
		}
		_, err := s.exec(ctx, s.db, "abandoned_swept", numbers(ids))
		return err
	})
	return tasksOf(rows), err
}

func tasksOf(rows []taskRow) []holdfast.Task {
	tasks := make([]holdfast.Task, len(rows))
	for i, row := range rows {
		tasks[i] = row.task()
	}
	return tasks
}
