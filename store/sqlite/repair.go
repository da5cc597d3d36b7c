package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// repairer is the role store.Repair.
type repairer struct{ *database }

// Unticket implements store.Repair.
func (s *repairer) Unticket(ctx context.Context, tickets []message.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	return s.change(ctx, "unticket tasks", "unticket", tickets)
}

// unticketStep is the maximum number of tasks that one transaction changes. Such a transaction takes about ten
// milliseconds. Smaller steps would wait for the disk more often.
const unticketStep = 2000

// UnticketQueue implements store.Repair. After an error some tasks are changed and others are not. A second call
// changes the rest.
func (s *repairer) UnticketQueue(ctx context.Context, queue string) (int, error) {
	operation := "unticket queue " + queue
	subqueue, taskType := holdfast.SplitTypeQueue(queue)
	// The steps end at this time, so that they do not read tasks that get a new ticket during the call.
	last, err := list[struct{ At int64 }](ctx, s, operation, "unticket_queue_last", subqueue)
	if err != nil || len(last) == 0 {
		return 0, err
	}
	gateless, requeued := 0, any(nil) // nil selects the tasks of the subqueue, and true those that may be in a type queue
	if taskType != "" {
		requeued = true
	} else if gateless, err = s.change(ctx, operation, "unticket_gateless", subqueue); err != nil {
		return 0, err
	}
	n, err := s.unticketInSteps(ctx, operation, func(ctx context.Context, from ticketedRow) ([]ticketedRow, error) {
		return list[ticketedRow](ctx, s, operation, "unticket_find", subqueue, from.At, int64(from.ID), last[0].At+1, requeued, unticketStep, taskType)
	})
	return gateless + n, err
}

// ticketedRow is a task and the time at which it was ticketed.
type ticketedRow struct {
	ID holdfast.TaskID
	At int64
}

// unticketInSteps makes the tasks that find returns due at once, and returns their number. It ends after a step that is
// not full. find only reads, and returns tasks after from, in the order of (At, ID). If a task changes after find has
// read it, unticketInSteps does not change it.
func (s *repairer) unticketInSteps(ctx context.Context, operation string, find func(ctx context.Context, from ticketedRow) ([]ticketedRow, error)) (int, error) {
	total := 0
	from := ticketedRow{At: math.MinInt64}
	for {
		rows, err := find(ctx, from)
		if err != nil || len(rows) == 0 {
			return total, err
		}
		found := make([][]int64, len(rows))
		for i, row := range rows {
			found[i] = []int64{int64(row.ID), row.At}
		}
		changed, err := s.change(ctx, operation, "unticket_ids", tuples(found))
		if total += changed; err != nil || len(rows) < unticketStep {
			return total, err
		}
		from = rows[len(rows)-1]
	}
}

// SentinelsDue implements store.Repair.
func (s *repairer) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error) {
	const operation = "choose sentinels"
	any, err := list[numberRow](ctx, s, operation, "sentinels_due_any", s.now().UnixMicro(), micros(interval), micros(lost))
	if err != nil || any[0].N == 0 {
		return nil, err
	}
	var sentinels []message.Sentinel
	err = s.write(ctx, operation, func(ctx context.Context, tx *transaction) error {
		sentinels, err = all[message.Sentinel](ctx, tx, "sentinels_due", tx.now, micros(interval), micros(lost))
		return err
	})
	if err != nil {
		return nil, err
	}
	return sentinels, nil
}
