package simstore

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
	// shortWait is for tasks that are due and in somebody's hands: ours, and not published, or
	// another caller's who may still fail.
	shortWait = time.Second
	// refusedWait is for how long what was refused is not given again.
	refusedWait = 3 * time.Second
)

// DispatchDue implements store.Dispatch. It is two effects, with publish between them, or one if nothing is due.
func (c *Client) DispatchDue(ctx context.Context, lanes store.Lanes, limit int, publish func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	if limit <= 0 {
		return store.Dispatched{}, nil
	}
	g := &dispatching{transaction: transaction{client: c}, lanes: lanes}
	defer g.over.Store(true) // also if publish panics, or an answer is lost
	var next time.Duration
	err := c.do(ctx, Step{Op: "DispatchDue begin"}, func(now time.Time) error {
		g.choose(now, limit)
		if len(g.due) == 0 {
			next = g.next(now)
		}
		return nil
	})
	if err != nil {
		return store.Dispatched{}, err
	}
	if len(g.due) == 0 {
		return store.Dispatched{Next: next}, nil
	}
	outcomes := slices.Clone(publish(ctx, slices.Clone(g.due)))
	if len(outcomes) != len(g.due) {
		return store.Dispatched{}, fmt.Errorf("DispatchDue: publish answered for %d of %d tasks", len(outcomes), len(g.due))
	}
	result := store.Dispatched{Given: len(g.due)}
	for _, ok := range outcomes {
		if ok {
			result.Marked++
		}
	}
	err = c.do(ctx, Step{Op: "DispatchDue end", tickets: g.tickets(), outcomes: outcomes}, func(now time.Time) error {
		if err := g.commit(now); err != nil {
			return err
		}
		g.mark(now, outcomes)
		next = g.next(now)
		return nil
	})
	switch {
	case err != nil:
		return store.Dispatched{}, err
	case result.Marked > 0 && result.Given == limit: // those that were refused are out of the way
	case result.Marked < result.Given:
		result.Next = shortWait
	default:
		result.Next = next
	}
	return result, nil
}

// dispatching is a call of DispatchDue: the tasks it has in its hands, and when each was to be published.
type dispatching struct {
	transaction
	lanes store.Lanes
	due   []store.Due
	dueAt []time.Time
}

func (g *dispatching) tickets() []message.Ticket {
	tickets := make([]message.Ticket, len(g.due))
	for i := range g.due {
		tickets[i] = g.due[i].Ticket
	}
	return tickets
}

// choose locks the tasks that have been due for longest and are in nobody's hands.
func (g *dispatching) choose(now time.Time, limit int) {
	g.begin(now)
	s := g.client.store
	tasks, picked := s.db.tasks, s.picked[:0]
	for i := range tasks {
		if task := &tasks[i]; !task.DueAt.IsZero() && !task.DueAt.After(now) && !task.lock.holds(now) && g.lanes.Includes(task.Lane) {
			picked = append(picked, i)
		}
	}
	slices.SortFunc(picked, func(a, b int) int { return cmp.Or(tasks[a].DueAt.Compare(tasks[b].DueAt), cmp.Compare(a, b)) })
	s.picked = picked
	picked = picked[:min(limit, len(picked))]
	g.due, g.dueAt = make([]store.Due, len(picked)), make([]time.Time, len(picked))
	for i, index := range picked {
		task := &tasks[index]
		task.lock = &g.transaction
		g.due[i] = store.Due{
			Ticket: message.Ticket{Task: task.ID, Attempt: task.Attempt}, Lane: task.Lane, Again: task.Again,
			Late: now.Sub(earlier(task.DueAt, task.NextRunAt)), // one whose ticket was refused is as late as it is
		}
		g.dueAt[i] = task.DueAt
	}
}

// mark notes which tasks have a ticket now and lets the others wait. One that moved on meanwhile is left as it is,
// and one that is not due any more because the clock went back.
func (g *dispatching) mark(now time.Time, outcomes []bool) {
	s := g.client.store
	for i, due := range g.due {
		task := s.db.task(due.Task)
		if task == nil || task.Attempt != due.Attempt || !task.DueAt.Equal(g.dueAt[i]) || outcomes[i] && task.DueAt.After(now) {
			continue
		}
		if outcomes[i] && !task.arrived(now) { // the clock was set back: a claim has perhaps dropped its ticket as too early
			continue
		}
		s.changing(task)
		if outcomes[i] {
			task.DueAt, task.TicketedAt = time.Time{}, now
		} else { // when it may run stays the same: its ticket may have arrived all the same
			task.DueAt = now.Add(refusedWait)
		}
		s.changed("DispatchDue end", task, nil)
	}
}

// next says when to come again. A task that was due when the call began is in another caller's hands, or was stored
// a moment ago.
func (g *dispatching) next(now time.Time) time.Duration {
	first := now.Add(longestWait)
	for i := range g.client.store.db.tasks {
		task := &g.client.store.db.tasks[i]
		if due := task.DueAt; !due.IsZero() && due.Before(first) && g.lanes.Includes(task.Lane) {
			first = due
		}
	}
	if !first.After(g.began) {
		return shortWait
	}
	return max(0, first.Sub(now))
}
