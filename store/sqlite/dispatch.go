package sqlite

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
)

const (
	longestWait = time.Hour
	// shortWait is the wait if a due task remains: this call could not publish it, or another caller has reserved it
	// and may fail.
	shortWait = time.Second
)

// dispatcher is the role store.Dispatch.
type dispatcher struct {
	*database
	due     reservations // reserved tasks
	entries reservations // reserved outbox entries
}

// DispatchDue implements store.Dispatch. While publish runs, this store reserves the rows in memory. It does not lock
// them in the file, because a lock would block all writers. So if two processes dispatch from one file, both may
// publish a ticket. Claims tolerate that, and Own prevents it. If a task changes while publish runs, DispatchDue does
// not change it.
func (s *dispatcher) DispatchDue(ctx context.Context, queues store.Queues, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	const operation = "dispatch due tasks"
	if limit <= 0 {
		return store.Dispatched{}, nil
	}
	began := s.now().UnixMicro()
	rows, err := reserve(&s.due, limit, func(reserved int) ([]dueRow, error) {
		return list[dueRow](ctx, s, operation, "dispatch_due", began, limit+reserved, queues.Only, stringList(queues.Except))
	}, dueRow.key)
	if err != nil {
		return store.Dispatched{}, err
	}
	defer release(&s.due, rows, dueRow.key)
	result, err := s.queueOrPublish(ctx, operation, rows, publish)
	if err != nil {
		return store.Dispatched{}, err
	}
	switch {
	case result.Marked+result.Queued > 0 && len(rows) == limit: // refused tasks are postponed, so they do not return at once
		return result, nil
	case result.Marked < result.Given:
		result.Next = shortWait
		return result, nil
	}
	next, err := s.nextDue(ctx, operation, queues)
	if err != nil {
		return store.Dispatched{}, err
	}
	// If a task was due when the call began, another caller has reserved it, or a transaction has stored it since then.
	if next <= began {
		result.Next = shortWait
		return result, nil
	}
	now := s.now()
	result.Next = max(0, timeOf(min(next, now.Add(longestWait).UnixMicro())).Sub(now))
	return result, nil
}

// queueOrPublish makes the tasks wait that need slots of their topics, and publishes the tickets of the others.
func (s *dispatcher) queueOrPublish(ctx context.Context, operation string, rows []dueRow, publish func(context.Context, []store.Due) []bool) (result store.Dispatched, err error) {
	due, waiting := scan.SplitBySlots(rows, func(row *dueRow) *scan.Due { return &row.Due })
	result.Given, result.Queued = len(due), len(waiting)
	if len(waiting) > 0 {
		if _, err := s.change(ctx, operation, "topic_queue", dueTuples(waiting)); err != nil {
			return result, err
		}
	}
	if len(due) > 0 {
		result.Marked, err = s.publishDue(ctx, operation, due, publish)
	}
	return result, err
}

type dueRow struct {
	scan.Due
	DueAt int64 `db:"due_at"`
}

func (r dueRow) key() int64 { return int64(r.ID) }

// publishDue publishes the tasks of the rows. It marks the published tasks as ticketed and postpones the others.
func (s *dispatcher) publishDue(ctx context.Context, operation string, rows []dueRow, publish func(context.Context, []store.Due) []bool) (marked int, err error) {
	published, refused, err := scan.Publish(ctx, rows, dueRow.Value, publish)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		if len(refused) > 0 {
			if _, err := tx.exec(ctx, "dispatch_due_postpone", dueTuples(refused), tx.now); err != nil {
				return err
			}
		}
		if len(published) == 0 {
			return nil
		}
		_, err := tx.exec(ctx, "dispatch_due_mark", dueTuples(published), tx.now)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(published), nil
}

// dueTuples returns the tasks in the state in which they were passed to publish.
func dueTuples(rows []dueRow) string {
	list := make([][]int64, len(rows))
	for i, row := range rows {
		list[i] = []int64{int64(row.ID), int64(row.Attempt), row.DueAt}
	}
	return tuples(list)
}

// nextDue returns the time when the next task of the queues becomes due, in microseconds. It returns math.MaxInt64 if
// no task of the queues has such a time.
func (s *dispatcher) nextDue(ctx context.Context, operation string, queues store.Queues) (int64, error) {
	next, err := list[timeRow](ctx, s, operation, "dispatch_due_next", queues.Only, stringList(queues.Except))
	if err != nil || len(next) == 0 {
		return math.MaxInt64, err
	}
	return next[0].At, nil
}

// timeRow is a time in microseconds.
type timeRow struct{ At int64 }

// DispatchOutbox implements store.Dispatch. As in DispatchDue, the outbox entries are reserved in memory while publish
// runs.
func (s *dispatcher) DispatchOutbox(ctx context.Context, queues store.Queues, limit int, publish func(context.Context, []store.OutboxEntry) []bool) (int, error) {
	const operation = "dispatch outbox entries"
	if limit <= 0 {
		return 0, nil
	}
	now := s.now()
	rows, err := reserve(&s.entries, limit, func(reserved int) ([]dueEntryRow, error) {
		return list[dueEntryRow](ctx, s, operation, "dispatch_outbox", now.UnixMicro(), limit+reserved, queues.Only, stringList(queues.Except))
	}, dueEntryRow.key)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	defer release(&s.entries, rows, dueEntryRow.key)
	for i, row := range rows {
		if rows[i].ids, err = row.taskIDs(); err != nil {
			return 0, fmt.Errorf("%s: %w", operation, err)
		}
	}
	published, refused, err := scan.Publish(ctx, rows, func(r dueEntryRow) store.OutboxEntry { return scan.Entry(r.ID, r.Queue, r.ids) }, publish)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", operation, err)
	}
	if err := s.settleEntries(ctx, operation, published, refused); err != nil {
		return 0, err
	}
	return len(published), nil
}

type dueEntryRow struct {
	entryRow
	Late bool    // the tickets are published much later than ticketed_at of the tasks
	ids  []int64 // ids of the tasks
}

func (r dueEntryRow) key() int64 { return r.ID }

// settleEntries deletes the published outbox entries and postpones the others.
func (s *dispatcher) settleEntries(ctx context.Context, operation string, published, refused []dueEntryRow) error {
	var done, later, late []int64
	for _, row := range published {
		done = append(done, row.ID)
		if row.Late {
			late = append(late, row.ids...)
		}
	}
	for _, row := range refused {
		later = append(later, row.ID)
	}
	_, err := s.change(ctx, operation, "dispatch_outbox_settle", numbers(done), numbers(later), numbers(late))
	return err
}

// reservations is the set of rows that calls of this store are publishing. A row belongs to at most one call. The set
// is in memory, because a call must not lock the file while it publishes.
type reservations struct {
	mu       sync.Mutex
	reserved map[int64]bool
}

// reserve calls find with the number of reserved rows. It reserves and returns at most limit of the found rows that are
// not yet reserved. It locks the reservations during find. Otherwise another call could publish and release a row after
// find has read it, and this call would reserve that row again.
func reserve[Row any](r *reservations, limit int, find func(reserved int) ([]Row, error), id func(Row) int64) ([]Row, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows, err := find(len(r.reserved))
	if err != nil {
		return nil, err
	}
	if r.reserved == nil {
		r.reserved = make(map[int64]bool)
	}
	free := make([]Row, 0, min(len(rows), limit))
	for _, row := range rows {
		if len(free) < limit && !r.reserved[id(row)] {
			r.reserved[id(row)] = true
			free = append(free, row)
		}
	}
	return free, nil
}

// release ends the reservation of the rows.
func release[Row any](r *reservations, rows []Row, id func(Row) int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		delete(r.reserved, id(row))
	}
}
