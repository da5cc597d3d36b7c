package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Renew implements store.Leases. It queues with the other calls that write; see writer for why that
// is never for long. The news name no history: what was answered is on the disk, and there is no other copy to fall back to.
func (s *Store) Renew(ctx context.Context, r store.Renewal) (store.News, error) {
	var news store.News
	err := s.write(ctx, "renew lease", func(ctx context.Context, tx *transaction) error {
		run, err := one[struct{ Draining bool }](ctx, tx, "renew", int64(r.Run), tx.now, micros(r.Lease), r.Taken, r.Settled, r.Running,
			clean(r.By.Name), clean(r.By.Host), r.By.PID)
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
func tell(ctx context.Context, tx *transaction, run holdfast.RunID) ([]holdfast.Ticket, error) {
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
	tickets := make([]holdfast.Ticket, len(words))
	for i, w := range words {
		tickets[i] = holdfast.Ticket{Task: w.Task, Attempt: w.Attempt}
	}
	return tickets, nil
}
