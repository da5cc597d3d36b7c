package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// longGrace is the age from which an outbox entry is late: its tickets are published much later than TicketedAt of
// their tasks says.
const longGrace = 10 * time.Second

// DispatchOutbox implements store.Dispatch. It is two effects, with publish between them, or one if nothing is due.
func (c *Client) DispatchOutbox(ctx context.Context, queues store.Queues, limit int, publish func(context.Context, []store.OutboxEntry) []bool) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	g := &outboxDispatch{transaction: transaction{client: c}, queues: queues}
	defer g.finished.Store(true) // needed if publish panics or an answer is lost
	err := c.do(ctx, Step{Op: "DispatchOutbox begin"}, func(now time.Time) error {
		g.choose(now, limit)
		return nil
	})
	if err != nil || len(g.entries) == 0 {
		return 0, err
	}
	outcomes := slices.Clone(publish(ctx, slices.Clone(g.entries)))
	if len(outcomes) != len(g.entries) {
		return 0, fmt.Errorf("DispatchOutbox: publish returned %d results for %d outbox entries", len(outcomes), len(g.entries))
	}
	published, ids := 0, make([]int64, len(g.entries))
	for i, ok := range outcomes {
		ids[i] = g.entries[i].ID
		if ok {
			published++
		}
	}
	err = c.do(ctx, Step{Op: "DispatchOutbox end", ids: ids, outcomes: outcomes}, func(now time.Time) error {
		if err := g.commit(now); err != nil {
			return err
		}
		g.settle(now, ids, outcomes)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return published, nil
}

// outboxDispatch is one call of DispatchOutbox. It locks the outbox entries that it publishes.
type outboxDispatch struct {
	transaction
	queues  store.Queues
	entries []store.OutboxEntry
	late    []bool
}

// choose locks the outbox entries that are due, those due for longest first. A refused entry is behind the others.
func (g *outboxDispatch) choose(now time.Time, limit int) {
	g.begin(now)
	s := g.client.store
	rows, picked := s.db.entries, s.picked[:0]
	for i := range rows {
		if row := &rows[i]; !row.PublishAfter.After(now) && !row.lock.holds(now) && g.queues.Includes(row.Queue) {
			picked = append(picked, i)
		}
	}
	slices.SortFunc(picked, func(a, b int) int {
		return cmp.Or(rows[a].PublishAfter.Compare(rows[b].PublishAfter), cmp.Compare(a, b))
	})
	s.picked = picked
	picked = picked[:min(limit, len(picked))]
	g.entries, g.late = make([]store.OutboxEntry, len(picked)), make([]bool, len(picked))
	for i, index := range picked {
		row := &rows[index]
		row.lock = &g.transaction
		g.entries[i] = row.OutboxEntry
		g.entries[i].Tickets = slices.Clone(row.Tickets)
		g.late[i] = row.CreatedAt.Before(now.Add(-longGrace))
	}
}

// settle deletes the published outbox entries and postpones the others.
func (g *outboxDispatch) settle(now time.Time, ids []int64, outcomes []bool) {
	s := g.client.store
	gone := func(id int64) bool {
		i := slices.Index(ids, id)
		return i >= 0 && outcomes[i]
	}
	for i := range g.entries {
		row := s.db.entry(ids[i])
		switch {
		case row == nil:
		case !outcomes[i]:
			row.PublishAfter = now.Add(refusedWait)
		case g.late[i]:
			s.ticketLate(row, now)
		}
	}
	s.db.entries = slices.DeleteFunc(s.db.entries, func(row OutboxEntry) bool { return gone(row.ID) })
}

// ticketLate records that the tickets of an outbox entry were published much later than TicketedAt says. Otherwise a
// sentinel sent in between would prove them lost.
func (s *Store) ticketLate(row *OutboxEntry, now time.Time) {
	for _, ticket := range row.Tickets {
		if task := s.db.task(ticket.Task); task != nil && task.Attempt == 1 && task.Ticketed() {
			s.changing(task)
			task.TicketedAt = now
			s.changed("DispatchOutbox end", task, nil)
		}
	}
}
