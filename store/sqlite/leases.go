package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

// leaser is the role store.Leases.
type leaser struct{ *database }

// OpenRun implements store.Leases.
func (s *leaser) OpenRun(ctx context.Context, info store.RunInfo, lease time.Duration) (holdfast.RunID, error) {
	var run holdfast.RunID
	err := s.write(ctx, "open run", func(ctx context.Context, tx *transaction) error {
		lanes := words(info.Lanes)
		if _, err := tx.exec(ctx, "insert_lanes", lanes, tx.now); err != nil {
			return err
		}
		var types any
		if info.Types != nil {
			types = words(info.Types)
		}
		row, err := one[scan.ID](ctx, tx, "open_run",
			column.Text(info.Name), column.Text(info.Host), info.PID, column.Text(info.Version), info.Concurrency, lanes, tx.now, micros(lease), types)
		run = holdfast.RunID(row.ID)
		return err
	})
	if err != nil {
		return 0, err
	}
	return run, nil
}

// Renew implements store.Leases. It queues with the other calls that write; see writer for why that
// is never for long. The news name no history: what was answered is on the disk, and there is no other copy to fall back to.
func (s *leaser) Renew(ctx context.Context, r store.Renewal) (store.News, error) {
	var news store.News
	err := s.write(ctx, "renew lease", func(ctx context.Context, tx *transaction) error {
		run, err := one[struct{ Draining bool }](ctx, tx, "renew", int64(r.Run), tx.now, micros(r.Lease), r.Taken, r.Settled, r.Running,
			column.Text(r.By.Name), column.Text(r.By.Host), r.By.PID)
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("run %s: %w", r.Run, store.ErrFenced)
		}
		if err != nil {
			return err
		}
		news = store.News{Draining: run.Draining}
		if news.Cancelled, err = tell(ctx, tx, r.Run); err != nil {
			return err
		}
		news.Lanes, err = laneNames(ctx, tx)
		return err
	})
	if err != nil {
		return store.News{}, err
	}
	return news, nil
}

// tell returns what the run has not heard yet, oldest first.
func tell(ctx context.Context, tx *transaction, run holdfast.RunID) ([]message.Ticket, error) {
	type word struct {
		ID      int64
		Task    holdfast.TaskID
		Attempt int
	}
	words, err := all[word](ctx, tx, "renew_news", int64(run))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(words, func(a, b word) int { return cmp.Compare(a.ID, b.ID) })
	tickets := make([]message.Ticket, len(words))
	for i, w := range words {
		tickets[i] = message.Ticket{Task: w.Task, Attempt: w.Attempt}
	}
	return tickets, nil
}

// CloseRun implements store.Leases.
func (s *leaser) CloseRun(ctx context.Context, run holdfast.RunID, clean bool) error {
	return s.write(ctx, "close run", func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "close_run", int64(run), tx.now, clean)
		return err
	})
}

// Drain implements store.Leases.
func (s *leaser) Drain(ctx context.Context, run holdfast.RunID) error {
	return s.write(ctx, "drain run", func(ctx context.Context, tx *transaction) error {
		asked, err := tx.exec(ctx, "drain", int64(run))
		if err != nil || asked > 0 {
			return err
		}
		row, err := one[scan.RunState](ctx, tx, "run_states", numbers([]holdfast.RunID{run}))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return fmt.Errorf("%w: there is no run %s", holdfast.ErrNotFound, run)
		case err != nil:
			return err
		}
		return fmt.Errorf("%w: run %s is %s", holdfast.ErrConflict, run, row.State)
	})
}

// Runs implements store.Leases.
func (s *leaser) Runs(ctx context.Context, all bool) ([]store.Run, error) {
	const operation = "list runs"
	rows, err := list[scan.Run](ctx, s, operation, "runs", all)
	if err != nil {
		return nil, err
	}
	runs, err := scan.Runs(rows)
	return runs, s.translate(ctx, operation, err)
}
