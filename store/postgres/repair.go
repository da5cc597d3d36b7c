package postgres

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast/store"
)

// repairer is the role store.Repair.
type repairer struct {
	*database
	earlier earlierBound // of UnticketLost
}

// Unticket implements store.Repair.
func (s *repairer) Unticket(ctx context.Context, tickets []message.Ticket) (int, error) {
	if len(tickets) == 0 {
		return 0, nil
	}
	tasks, attempts := pairs(tickets)
	changed := 0
	err := s.do(ctx, "unticket tasks", func() error {
		var err error
		changed, err = s.exec(ctx, s.db, "unticket", tasks, attempts)
		return err
	})
	return changed, err
}

const unticketStep = 5000

// UnticketLane implements store.Repair. After an error some tasks are changed and
// others are not; calling it again does the rest.
func (s *repairer) UnticketLane(ctx context.Context, lane string) (int, error) {
	return s.inSteps(ctx, "unticket lane "+lane, walk{size: unticketStep}, func(tx store.Tx, r idRange) (step, error) {
		return one[step](ctx, s, tx, "unticket_lane", r.after, r.through, r.size, lane)
	})
}

// SentinelsDue implements store.Repair.
func (s *repairer) SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error) {
	var rows []struct {
		Lane string
		At   time.Time
	}
	err := s.do(ctx, "choose sentinels", func() error {
		rows = nil
		return s.all(ctx, s.db, &rows, "sentinels_due", micros(interval), micros(lost))
	})
	if err != nil {
		return nil, err
	}
	sentinels := make([]message.Sentinel, len(rows))
	for i, row := range rows {
		sentinels[i] = message.Sentinel{Lane: row.Lane, At: row.At.UTC()}
	}
	return sentinels, nil
}
