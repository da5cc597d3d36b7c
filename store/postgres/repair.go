package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// repairer is the role store.Repair.
type repairer struct {
	*database
	earlier earlierBound // see UnticketLost
}

// Unticket implements store.Repair.
func (s *repairer) Unticket(ctx context.Context, tickets []message.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	tasks, attempts := ticketColumns(tickets)
	return s.change(ctx, "unticket tasks", "unticket", tasks, attempts)
}

// unticketStep is the maximum number of rows that one step of a repair changes.
const unticketStep = 5000

// UnticketQueue implements store.Repair. After an error some tasks are changed and others are not. A second call
// changes the rest.
func (s *repairer) UnticketQueue(ctx context.Context, queue string) (int, error) {
	subqueue, taskType := holdfast.SplitTypeQueue(queue)
	return s.inSteps(ctx, "unticket queue "+queue, rangeScan{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "unticket_queue", r.after, r.through, r.size, subqueue, taskType)
	})
}

// SentinelsDue implements store.Repair.
func (s *repairer) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error) {
	return list[message.Sentinel](ctx, s, "choose sentinels", "sentinels_due", micros(interval), micros(lost))
}
