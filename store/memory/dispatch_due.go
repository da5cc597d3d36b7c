package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	longestWait = time.Hour
	// shortWait is the wait for due tasks that are locked. This call has locked and not published them, or another call
	// has locked them and may still fail.
	shortWait = time.Second
	// refusedWait is the time until a refused task or outbox entry is dispatched again.
	refusedWait = 3 * time.Second
)

// DispatchDue implements store.Dispatch. It is two effects, with publish between them, or one if nothing is due.
func (c *Client) DispatchDue(ctx context.Context, queues store.Queues, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	if limit <= 0 {
		return store.Dispatched{}, nil
	}
	g := &dueDispatch{transaction: transaction{client: c}, queues: queues}
	defer g.finished.Store(true) // needed if publish panics or an answer is lost
	var next time.Duration
	err := c.do(ctx, Step{Op: "DispatchDue begin"}, func(now time.Time) error {
		g.choose(now, limit)
		if len(g.due) == 0 {
			g.queue("DispatchDue begin")
			next = g.next(now)
		}
		return nil
	})
	if err != nil {
		return store.Dispatched{}, err
	}
	queued := len(g.waiting)
	if len(g.due) == 0 {
		if queued == limit {
			next = 0
		}
		return store.Dispatched{Queued: queued, Next: next}, nil
	}
	outcomes := slices.Clone(publish(ctx, slices.Clone(g.due)))
	if len(outcomes) != len(g.due) {
		return store.Dispatched{}, fmt.Errorf("DispatchDue: publish returned %d results for %d tasks", len(outcomes), len(g.due))
	}
	result := store.Dispatched{Given: len(g.due), Queued: queued}
	for _, ok := range outcomes {
		if ok {
			result.Marked++
		}
	}
	err = c.do(ctx, Step{Op: "DispatchDue end", tickets: g.tickets(), outcomes: outcomes}, func(now time.Time) error {
		if err := g.commit(now); err != nil {
			return err
		}
		g.queue("DispatchDue end")
		g.mark(now, outcomes)
		next = g.next(now)
		return nil
	})
	switch {
	case err != nil:
		return store.Dispatched{}, err
	case result.Marked+queued > 0 && result.Given+queued == limit: // the refused tasks are not in the way of others
	case result.Marked < result.Given:
		result.Next = shortWait
	default:
		result.Next = next
	}
	return result, nil
}

// dueDispatch is one call of DispatchDue. It locks the tasks that it publishes, and those that begin to wait for slots.
type dueDispatch struct {
	transaction
	queues store.Queues
	due    []store.Due
	dueAt  []time.Time // DueAt of each task of due when it was locked
	// waiting has the tasks with topics that need slots, as they were when they were locked.
	waiting []Task
}

func (g *dueDispatch) tickets() []message.Ticket {
	tickets := make([]message.Ticket, len(g.due))
	for i := range g.due {
		tickets[i] = g.due[i].Ticket
	}
	return tickets
}

// choose locks the unlocked tasks that have been due for longest.
func (g *dueDispatch) choose(now time.Time, limit int) {
	g.begin(now)
	s := g.client.store
	tasks, picked := s.db.tasks, s.picked[:0]
	for i := range tasks {
		if task := &tasks[i]; !task.DueAt.IsZero() && !task.DueAt.After(now) && !task.lock.holds(now) && g.queues.Includes(task.Subqueue()) {
			picked = append(picked, i)
		}
	}
	slices.SortFunc(picked, func(a, b int) int { return cmp.Or(tasks[a].DueAt.Compare(tasks[b].DueAt), cmp.Compare(a, b)) })
	s.picked = picked
	picked = picked[:min(limit, len(picked))]
	for _, index := range picked {
		task := &tasks[index]
		task.lock = &g.transaction
		if s.db.needsSlot(task) {
			g.waiting = append(g.waiting, *task)
			continue
		}
		g.due = append(g.due, store.Due{
			Ticket: message.Ticket{Task: task.ID, Attempt: task.Attempt}, Queue: task.Subqueue(), Requeued: task.Requeued,
			Late: now.Sub(earlier(task.DueAt, task.NextRunAt)), // a refused ticket does not make the task less late
		})
		g.dueAt = append(g.dueAt, task.DueAt)
	}
}

// queue lets tasks wait for slots. It ignores tasks that have changed since.
func (g *dueDispatch) queue(op string) {
	s := g.client.store
	for i := range g.waiting {
		seen := &g.waiting[i]
		task := s.db.task(seen.ID)
		if task == nil || task.Attempt != seen.Attempt || !task.DueAt.Equal(seen.DueAt) {
			continue
		}
		s.changing(task)
		s.db.await(task)
		s.changed(op, task, nil)
	}
}

// mark records which tasks now have a ticket and postpones the others. It ignores tasks that have changed since, and
// tasks that are no longer due because the clock was set back.
func (g *dueDispatch) mark(now time.Time, outcomes []bool) {
	s := g.client.store
	for i, due := range g.due {
		task := s.db.task(due.Task)
		if task == nil || task.Attempt != due.Attempt || !task.DueAt.Equal(g.dueAt[i]) {
			continue
		}
		if outcomes[i] && !task.runnable(now) { // a claim may have dropped the ticket as too early
			continue
		}
		s.changing(task)
		if outcomes[i] {
			task.DueAt, task.TicketedAt = time.Time{}, now
		} else { // NextRunAt stays the same, because the ticket may have been stored nevertheless
			task.DueAt = now.Add(refusedWait)
		}
		s.changed("DispatchDue end", task, nil)
	}
}

// next returns the wait until the next call. A task that was already due when this call began was locked by another
// call, or was stored meanwhile.
func (g *dueDispatch) next(now time.Time) time.Duration {
	first := now.Add(longestWait)
	for i := range g.client.store.db.tasks {
		task := &g.client.store.db.tasks[i]
		if due := task.DueAt; !due.IsZero() && due.Before(first) && g.queues.Includes(task.Subqueue()) {
			first = due
		}
	}
	if !first.After(g.began) {
		return shortWait
	}
	return max(0, first.Sub(now))
}
