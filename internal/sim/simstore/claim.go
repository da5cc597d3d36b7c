package simstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// tries is how often a claim runs that finds a task changed each time.
const tries = 6

// Claim implements store.Work. It is one effect if every ticket is good; one more looks where the other tasks
// stand, and a third one takes those again that the run holds.
func (c *Client) Claim(ctx context.Context, run holdfast.RunID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	g := &claiming{
		Client: c, run: run, into: into, wanted: slices.Clone(wanted), tickets: slices.Clone(tickets),
		claims: make([]store.Claim, len(tickets)), open: make([]int, 0, len(tickets)),
	}
	for i, ticket := range g.tickets {
		if !slices.Contains(g.tickets[:i], ticket) {
			g.open = append(g.open, i)
		}
	}
	for attempt := 0; len(g.open) > 0; attempt++ {
		if attempt == tries {
			return nil, fmt.Errorf("Claim: %w: task %s changes too often to be claimed", holdfast.ErrUnavailable, g.tickets[g.open[0]].Task)
		}
		if err := g.round(ctx); err != nil {
			return nil, err
		}
	}
	for i := range g.claims {
		if g.claims[i].Now.IsZero() { // the second of two equal tickets, or settled meanwhile
			g.claims[i] = store.Claim{Verdict: store.Stale, Now: g.now}
		}
	}
	return g.claims, nil
}

// Held implements store.Work.
func (c *Client) Held(ctx context.Context, run holdfast.RunID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	var tasks []holdfast.Task
	err := c.do(ctx, Step{Op: "Held", run: run}, func(time.Time) error {
		for i := range c.store.db.tasks {
			if task := &c.store.db.tasks[i]; task.State == holdfast.Running && task.Run == run && task.ID > after && task.ID <= through {
				tasks = append(tasks, task.bare())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

// claiming is one call of Claim.
type claiming struct {
	*Client
	run     holdfast.RunID
	into    store.Place
	wanted  []store.Wanted
	tickets []message.Ticket
	claims  []store.Claim // one per ticket; without a time while it is open
	open    []int         // tickets to answer
	held    []int         // of those answered last, the ones that the run holds
	taken   int
	now     time.Time
}

// round leaves those open whose tasks became ready between the first effect and the second.
func (g *claiming) round(ctx context.Context) error {
	if err := g.do(ctx, Step{Op: "Claim", run: g.run, tickets: g.tickets}, g.take); err != nil || len(g.open) == 0 {
		return err
	}
	if err := g.do(ctx, Step{Op: "Claim refused", run: g.run, tickets: g.tickets}, g.judge); err != nil || len(g.held) == 0 {
		return err
	}
	return g.do(ctx, Step{Op: "Claim held", run: g.run, tickets: g.tickets}, g.takeHeld)
}

func (g *claiming) answer(i int, now time.Time, claim store.Claim) {
	claim.Now = now
	g.claims[i], g.now = claim, now
}

// take claims what can be claimed.
func (g *claiming) take(now time.Time) error {
	s := g.store
	if !s.db.live(g.run) {
		return nil
	}
	g.open = slices.DeleteFunc(g.open, func(i int) bool {
		task := s.db.task(g.tickets[i].Task)
		if task == nil || task.Attempt != g.tickets[i].Attempt || !task.arrived(now) || !g.wants(task) || g.suspects(task) {
			return false
		}
		s.changing(task)
		task.State, task.Run, task.StartedAt = holdfast.Running, g.run, now
		task.DueAt, task.TicketedAt, task.Parked = time.Time{}, time.Time{}, ""
		task.Buffered = g.into == store.IntoBuffer
		s.changed("Claim", task, nil)
		g.taken++
		g.answer(i, now, store.Claim{Verdict: store.Claimed, Task: task.full()})
		return true
	})
	return nil
}

// judge answers the tickets that were not claimed.
func (g *claiming) judge(now time.Time) error {
	live := g.store.db.live(g.run)
	if !live && g.taken == 0 {
		return fmt.Errorf("run %s: %w", g.run, store.ErrFenced)
	}
	g.held, g.now = g.held[:0], now
	g.open = slices.DeleteFunc(g.open, func(i int) bool {
		task, ticket := g.store.db.task(g.tickets[i].Task), g.tickets[i]
		if task != nil && task.State == holdfast.Running && task.Run == g.run && task.Attempt == ticket.Attempt {
			g.held = append(g.held, i)
			return true
		}
		claim, certain := g.verdict(task, ticket, now)
		if certain || !live {
			g.answer(i, now, claim)
			return true
		}
		return false
	})
	return nil
}

// verdict answers one ticket. It is uncertain if the task is as it must be for a claim.
func (g *claiming) verdict(task *Task, ticket message.Ticket, now time.Time) (claim store.Claim, certain bool) {
	switch {
	case task == nil || task.Attempt < ticket.Attempt:
		return store.Claim{Verdict: store.Ahead}, true
	case task.Attempt > ticket.Attempt:
	case task.State == holdfast.Running:
		return store.Claim{Verdict: store.Contended, Owner: task.Run}, true
	case task.arrived(now):
		named := holdfast.Task{ID: task.ID, Type: task.Type, Lane: task.Lane}
		switch {
		case !g.wants(task):
			return store.Claim{Verdict: store.Unhandled, Task: named}, true
		case g.suspects(task):
			return store.Claim{Verdict: store.Suspect, Task: named}, true
		}
		return store.Claim{}, false
	}
	return store.Claim{Verdict: store.Stale}, true
}

func (g *claiming) wants(task *Task) bool { return g.kind(task) >= 0 }

func (g *claiming) kind(task *Task) int {
	return slices.IndexFunc(g.wanted, func(w store.Wanted) bool { return w.Type == task.Type })
}

// suspects reports whether a task that is wanted has had too many crashes for that.
func (g *claiming) suspects(task *Task) bool {
	i := g.kind(task)
	return i >= 0 && task.Crashes > g.wanted[i].MostCrashes
}

// takeHeld gives the caller once more what an earlier call took, whose answer may have been lost. A task that is
// settled meanwhile stays without an answer here.
func (g *claiming) takeHeld(now time.Time) error {
	for _, i := range g.held {
		task := g.store.db.task(g.tickets[i].Task)
		if task != nil && task.Attempt == g.tickets[i].Attempt && task.Run == g.run && task.State == holdfast.Running {
			g.answer(i, now, store.Claim{Verdict: store.Claimed, Task: task.full()})
		}
	}
	g.taken += len(g.held)
	return nil
}
