package scan

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// Due is a task that needs a ticket.
type Due struct {
	ID holdfast.TaskID
	store.Due
	// NeedsSlot means that the task gets no ticket before it has a slot of its topic.
	NeedsSlot bool
}

// Value returns the due task.
func (r Due) Value() store.Due {
	r.Task = r.ID
	return r.Due
}

// Entry returns an outbox entry for tasks at their first attempt.
func Entry(id int64, queue string, tasks []int64) store.OutboxEntry {
	entry := store.OutboxEntry{ID: id, Queue: queue, Tickets: make([]message.Ticket, len(tasks))}
	for i, task := range tasks {
		entry.Tickets[i] = message.Ticket{Task: holdfast.TaskID(task), Attempt: 1}
	}
	return entry
}

// Publish calls publish with one item per row. It returns two lists: the rows whose items were published, and the
// others.
func Publish[Row, Item any](ctx context.Context, rows []Row, item func(Row) Item, publish func(context.Context, []Item) []bool) (published, refused []Row, err error) {
	items := make([]Item, len(rows))
	for i, row := range rows {
		items[i] = item(row)
	}
	outcomes := publish(ctx, items)
	if len(outcomes) != len(items) {
		return nil, nil, fmt.Errorf("publish returned %d results for %d items", len(outcomes), len(items))
	}
	for i, ok := range outcomes {
		if ok {
			published = append(published, rows[i])
		} else {
			refused = append(refused, rows[i])
		}
	}
	return published, refused, nil
}

// SplitBySlots separates due tasks that may get tickets from due tasks with topics that must wait for slots.
func SplitBySlots[Row any](rows []Row, due func(*Row) *Due) (ready, waiting []Row) {
	for i := range rows {
		if due(&rows[i]).NeedsSlot {
			waiting = append(waiting, rows[i])
		} else {
			ready = append(ready, rows[i])
		}
	}
	return ready, waiting
}
