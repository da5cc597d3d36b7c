package simstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// longGrace is how old a receipt is whose tickets go out much later than the rows of their tasks say.
const longGrace = 10 * time.Second

// DispatchReceipts implements store.Dispatch. It is two effects, with publish between them, or one if nothing is due.
func (c *Client) DispatchReceipts(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Receipt) []bool) (int, error) {
	if limit <= 0 {
		return 0, nil
	}
	g := &redeeming{transaction: transaction{client: c}, lanes: lanes}
	defer g.over.Store(true) // also if publish panics, or an answer is lost
	err := c.do(ctx, Step{Op: "DispatchReceipts begin"}, func(now time.Time) error {
		g.choose(now, limit)
		return nil
	})
	if err != nil || len(g.receipts) == 0 {
		return 0, err
	}
	outcomes := slices.Clone(publish(ctx, slices.Clone(g.receipts)))
	if len(outcomes) != len(g.receipts) {
		return 0, fmt.Errorf("DispatchReceipts: publish answered for %d of %d receipts", len(outcomes), len(g.receipts))
	}
	published, ids := 0, make([]int64, len(g.receipts))
	for i, ok := range outcomes {
		ids[i] = g.receipts[i].ID
		if ok {
			published++
		}
	}
	err = c.do(ctx, Step{Op: "DispatchReceipts end", ids: ids, outcomes: outcomes}, func(now time.Time) error {
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

// redeeming is a call of DispatchReceipts: the receipts it has in its hands.
type redeeming struct {
	transaction
	lanes    store.Lanes
	receipts []store.Receipt
	late     []bool
}

// choose locks the receipts whose turn it is. One that was refused is behind the others.
func (g *redeeming) choose(now time.Time, limit int) {
	g.begin(now)
	s := g.client.store
	rows, picked := s.db.receipts, s.picked[:0]
	for i := range rows {
		if row := &rows[i]; !row.PublishAfter.After(now) && !row.lock.holds(now) && g.lanes.Includes(row.Lane) {
			picked = append(picked, i)
		}
	}
	slices.SortFunc(picked, func(a, b int) int {
		return cmp.Or(rows[a].PublishAfter.Compare(rows[b].PublishAfter), cmp.Compare(a, b))
	})
	s.picked = picked
	picked = picked[:min(limit, len(picked))]
	g.receipts, g.late = make([]store.Receipt, len(picked)), make([]bool, len(picked))
	for i, index := range picked {
		row := &rows[index]
		row.lock = &g.transaction
		g.receipts[i] = row.Receipt
		g.receipts[i].Tickets = slices.Clone(row.Tickets)
		g.late[i] = row.CreatedAt.Before(now.Add(-longGrace))
	}
}

// settle deletes the receipts that were published and lets the others wait.
func (g *redeeming) settle(now time.Time, ids []int64, outcomes []bool) {
	s := g.client.store
	gone := func(id int64) bool {
		i := slices.Index(ids, id)
		return i >= 0 && outcomes[i]
	}
	for i := range g.receipts {
		row := s.db.receipt(ids[i])
		switch {
		case row == nil:
		case !outcomes[i]:
			row.PublishAfter = now.Add(refusedWait)
		case g.late[i]:
			s.ticketLate(row, now)
		}
	}
	s.db.receipts = slices.DeleteFunc(s.db.receipts, func(row Receipt) bool { return gone(row.ID) })
}

// ticketLate notes that tickets went out much later than the rows say. A sentinel sent in between must not prove
// them lost.
func (s *Store) ticketLate(row *Receipt, now time.Time) {
	for _, ticket := range row.Tickets {
		if task := s.db.task(ticket.Task); task != nil && task.Attempt == 1 && task.Ticketed() {
			s.changing(task)
			task.TicketedAt = now
			s.changed("DispatchReceipts end", task, nil)
		}
	}
}
