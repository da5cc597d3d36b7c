package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

const (
	longestWait = time.Hour
	// shortWait is for tasks that are due and in somebody's hands: ours, and not published, or
	// another caller's who may still fail.
	shortWait = time.Second
)

// dispatcher is the role store.Dispatch.
type dispatcher struct {
	*database
	due      reservations // tasks that are being published
	receipts reservations
}

// DispatchDue implements store.Dispatch. While publish runs the rows are reserved in the memory of this store and
// not locked in the file, which would keep everybody else from writing. So two processes that dispatch from
// one file can both publish a ticket; claims absorb that, and Own is there to avoid it. A task that moved on
// meanwhile is left as it is.
func (s *dispatcher) DispatchDue(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
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
	scan.Due
	DueAt int64 `db:"due_at"`
}

func (r dueRow) key() int64 { return int64(r.ID) }

// publishDue publishes the rows, marks those that were, and lets the others wait.
func (s *dispatcher) publishDue(ctx context.Context, operation string, rows []dueRow, publish func(context.Context, []store.Due) []bool) (marked int, err error) {
	published, refused, err := scan.Publish(ctx, rows, func(r dueRow) store.Due { return r.Value() }, publish)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		if len(refused) > 0 {
			if _, err := tx.exec(ctx, "dispatch_due_postpone", givenOf(refused), tx.now); err != nil {
				return err
			}
		}
		if len(published) == 0 {
			return nil
		}
		_, err := tx.exec(ctx, "dispatch_due_mark", givenOf(published), tx.now)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(published), nil
}

// givenOf lists tasks as they stood when they were given to publish.
func givenOf(rows []dueRow) string {
	list := make([][]int64, len(rows))
	for i, row := range rows {
		list[i] = []int64{int64(row.ID), int64(row.Attempt), row.DueAt}
	}
	return tuples(list)
}

// nextDue is when the next task of the lanes becomes due, or the end of time.
func (s *dispatcher) nextDue(ctx context.Context, operation string, lanes store.Lanes) (int64, error) {
	next, err := list[momentRow](ctx, s, operation, "dispatch_due_next", lanes.Only, words(lanes.Except))
	if err != nil || len(next) == 0 {
		return math.MaxInt64, err
	}
	return next[0].At, nil
}

// momentRow is a moment, in microseconds.
type momentRow struct{ At int64 }

// DispatchReceipts implements store.Dispatch. As in DispatchDue, the receipts are reserved in memory while
// publish runs.
func (s *dispatcher) DispatchReceipts(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Receipt) []bool) (int, error) {
	const operation = "dispatch receipts"
	if limit <= 0 {
		return 0, nil
	}
	now := s.now()
	rows, err := reserve(&s.receipts, limit, func(taken int) ([]ripeRow, error) {
		return list[ripeRow](ctx, s, operation, "dispatch_receipts", now.UnixMicro(), limit+taken, lanes.Only, words(lanes.Except))
	}, ripeRow.key)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	defer release(&s.receipts, rows, ripeRow.key)
	for i, row := range rows {
		if err := json.Unmarshal([]byte(row.Tasks), &rows[i].ids); err != nil {
			return 0, fmt.Errorf("%s: the tasks of receipt %d: %w", operation, row.ID, err)
		}
	}
	published, refused, err := scan.Publish(ctx, rows, func(r ripeRow) store.Receipt { return scan.Receipt(r.ID, r.Lane, r.ids) }, publish)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	if err := s.settleReceipts(ctx, operation, published, refused); err != nil {
		return 0, err
	}
	return len(published), nil
}

type ripeRow struct {
	ID    int64
	Lane  string
	Tasks string
	Late  bool    // much later than the rows of its tasks say
	ids   []int64 // of the tasks
}

func (r ripeRow) key() int64 { return r.ID }

// settleReceipts deletes the receipts that were published and lets the others wait.
func (s *dispatcher) settleReceipts(ctx context.Context, operation string, published, refused []ripeRow) error {
	var gone, later, late []int64
	for _, row := range published {
		gone = append(gone, row.ID)
		if row.Late {
			late = append(late, row.ids...)
		}
	}
	for _, row := range refused {
		later = append(later, row.ID)
	}
	return s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "dispatch_receipts_settle", numbers(gone), numbers(later), numbers(late), tx.now)
		return err
	})
}

// LaneNames implements store.Dispatch.
func (s *dispatcher) LaneNames(ctx context.Context) ([]string, error) {
	var names []string
	err := s.read(ctx, "list lanes", func(ctx context.Context, c *session) error {
		var err error
		names, err = laneNames(ctx, c)
		return err
	})
	return names, err
}

func laneNames(ctx context.Context, q querier) ([]string, error) {
	rows, err := all[struct{ Name string }](ctx, q, "lane_names")
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row.Name
	}
	return names, err
}

// reservations are the rows that calls of this store have in their hands, so that no two of them get the same. They
// are kept in memory: a row that is being published must not hold the lock of the file.
type reservations struct {
	mu    sync.Mutex
	taken map[int64]bool
}

// reserve calls find with the number of rows that are taken, and returns those of its rows that are not, at most limit;
// they are taken now. Nobody else reserves meanwhile, so what find reads has not become free since.
func reserve[Row any](r *reservations, limit int, find func(taken int) ([]Row, error), id func(Row) int64) ([]Row, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows, err := find(len(r.taken))
	if err != nil {
		return nil, err
	}
	if r.taken == nil {
		r.taken = make(map[int64]bool)
	}
	free := make([]Row, 0, min(len(rows), limit))
	for _, row := range rows {
		if len(free) < limit && !r.taken[id(row)] {
			r.taken[id(row)] = true
			free = append(free, row)
		}
	}
	return free, nil
}

// release gives rows back.
func release[Row any](r *reservations, rows []Row, id func(Row) int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		delete(r.taken, id(row))
	}
}
