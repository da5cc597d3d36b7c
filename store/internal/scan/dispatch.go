package scan

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Due is a task that needs a ticket. Late is in microseconds.
type Due struct {
	ID      holdfast.TaskID
	Attempt int
	Lane    string
	Again   bool
	Late    int64
}

// Value returns the task.
func (r *Due) Value() store.Due {
	return store.Due{
		Ticket: message.Ticket{Task: r.ID, Attempt: r.Attempt}, Lane: r.Lane, Again: r.Again,
		Late: time.Duration(r.Late) * time.Microsecond,
	}
}

// Receipt returns a stored receipt for the tickets of tasks: always those of first attempts.
func Receipt(id int64, lane string, tasks []int64) store.Receipt {
	receipt := store.Receipt{ID: id, Lane: lane, Tickets: make([]message.Ticket, len(tasks))}
	for i, task := range tasks {
		receipt.Tickets[i] = message.Ticket{Task: holdfast.TaskID(task), Attempt: 1}
	}
	return receipt
}

// Publish calls publish with an item for each row. It returns the rows whose items were published, and the others.
func Publish[Row, Item any](ctx context.Context, rows []Row, item func(Row) Item, publish func(context.Context, []Item) []bool) (published, refused []Row, err error) {
	items := make([]Item, len(rows))
	for i, row := range rows {
		items[i] = item(row)
	}
	outcomes := publish(ctx, items)
	if len(outcomes) != len(items) {
		return nil, nil, fmt.Errorf("publish answered for %d of %d", len(outcomes), len(items))
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
