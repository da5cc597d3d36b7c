package sqlite

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	longestWait = time.Hour
	// shortWait is for tasks that are due and in somebody's hands: ours, and not published, or
	// another caller's who may still fail.
	shortWait = time.Second
)

// DispatchDue implements store.Dispatch. While publish runs the rows are reserved in the memory of this store and
// not locked in the file, which would keep everybody else from writing. So two processes that dispatch from
// one file can both publish a ticket; claims absorb that, and Own is there to avoid it. A task that moved on
// meanwhile is left as it is.
func (s *Store) DispatchDue(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	const operation = "dispatch due tasks"
	if limit <= 0 {
		return store.Dispatched{}, nil
	}
	began := s.now().UnixMicro()
	rows, err := reserve(&s.due, limit, func(taken int) ([]dueRow, error) {
		return list[dueRow](ctx, s, operation, "dispatch_due", began, limit+taken, lanes.Only, words(lanes.Except))
	}, dueRow.key)
	if err != nil {
		return store.Dispatched{}, err
	}
	defer release(&s.due, rows, dueRow.key)
	result := store.Dispatched{Given: len(rows)}
	if len(rows) > 0 {
		if result.Marked, err = s.publishDue(ctx, operation, rows, publish); err != nil {
			return store.Dispatched{}, err
		}
	}
	switch {
	case result.Marked > 0 && result.Given == limit: // those that were refused are out of the way
		return result, nil
	case result.Marked < result.Given:
		result.Next = shortWait
		return result, nil
	}
	next, err := s.nextDue(ctx, operation, lanes)
	if err != nil {
		return store.Dispatched{}, err
	}
	// A task that was due when the call began is in another caller's hands, or was stored a moment ago.
	if next <= began {
		result.Next = shortWait
		return result, nil
	}
	now := s.now()
	result.Next = max(0, moment(min(next, now.Add(longestWait).UnixMicro())).Sub(now))
	return result, nil
}

type dueRow struct {
	ID      holdfast.TaskID
	Attempt int
	Lane    string
	Again   bool
	DueAt   int64 `db:"due_at"`
	Late    int64
}

func (r dueRow) key() int64 { return int64(r.ID) }

// publishDue publishes the rows, marks those that were, and lets the others wait.
func (s *Store) publishDue(ctx context.Context, operation string, rows []dueRow, publish func(context.Context, []store.Due) []bool) (marked int, err error) {
	due := make([]store.Due, len(rows))
	for i, row := range rows {
		due[i] = store.Due{Ticket: holdfast.Ticket{Task: row.ID, Attempt: row.Attempt}, Lane: row.Lane, Again: row.Again, Late: time.Duration(row.Late) * time.Microsecond}
	}
	outcomes := publish(ctx, due)
	if len(outcomes) != len(due) {
		return 0, fmt.Errorf("%s: publish answered for %d of %d tasks", operation, len(outcomes), len(due))
	}
	var published, refused [][]int64
	for i, ok := range outcomes {
		given := []int64{int64(rows[i].ID), int64(rows[i].Attempt), rows[i].DueAt}
		if ok {
			published = append(published, given)
		} else {
			refused = append(refused, given)
		}
	}
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		if len(refused) > 0 {
			if _, err := tx.exec(ctx, "dispatch_due_postpone", tuples(refused), tx.now); err != nil {
				return err
			}
		}
		if len(published) == 0 {
			return nil
		}
		_, err := tx.exec(ctx, "dispatch_due_mark", tuples(published), tx.now)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(published), nil
}

// nextDue is when the next task of the lanes becomes due, or the end of time.
func (s *Store) nextDue(ctx context.Context, operation string, lanes store.Lanes) (int64, error) {
	next, err := list[momentRow](ctx, s, operation, "dispatch_due_next", lanes.Only, words(lanes.Except))
	if err != nil || len(next) == 0 {
		return math.MaxInt64, err
	}
	return next[0].At, nil
}

// momentRow is a moment, in microseconds.
type momentRow struct{ At int64 }
