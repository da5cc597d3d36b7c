package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// maxTries is how often Claim repeats its effects if a task changes between them each time.
const maxTries = 6

// Claim implements store.Work. If every ticket can be claimed, it is one effect, which a gate may begin earlier.
// Otherwise a second effect inspects the other tasks, and a third one claims again those that the worker already holds.
func (c *Client) Claim(ctx context.Context, worker holdfast.WorkerID, wanted []store.Wanted, tickets []message.Ticket, into store.Place) ([]store.Claim, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	g := &claiming{
		Client: c, worker: worker, into: into, wanted: slices.Clone(wanted), tickets: slices.Clone(tickets),
		claims: make([]store.Claim, len(tickets)), open: make([]int, 0, len(tickets)),
	}
	for i, ticket := range g.tickets {
		if !slices.Contains(g.tickets[:i], ticket) {
			g.open = append(g.open, i)
		}
	}
	for attempt := 0; len(g.open) > 0; attempt++ {
		if attempt == maxTries {
			return nil, fmt.Errorf("Claim: %w: task %s changes too often to be claimed", holdfast.ErrUnavailable, g.tickets[g.open[0]].Task)
		}
		if err := g.try(ctx); err != nil {
			return nil, err
		}
	}
	for i := range g.claims {
		if g.claims[i].Now.IsZero() { // no answer: the second of two equal tickets, or a task that was settled meanwhile
			g.claims[i] = store.Claim{Verdict: store.Stale, Now: g.now}
		}
	}
	return g.claims, nil
}

// Held implements store.Work.
func (c *Client) Held(ctx context.Context, worker holdfast.WorkerID, after, through holdfast.TaskID) ([]holdfast.Task, error) {
	var tasks []holdfast.Task
	err := c.do(ctx, Step{Op: "Held", worker: worker}, func(time.Time) error {
		for i := range c.store.db.tasks {
			if task := &c.store.db.tasks[i]; task.State == holdfast.Running && task.Worker == worker && task.ID > after && task.ID <= through {
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
	worker  holdfast.WorkerID
	into    store.Place
	wanted  []store.Wanted
	tickets []message.Ticket
	claims  []store.Claim // one per ticket; Now is zero until the ticket is answered
	open    []int         // indexes of the tickets that are not answered
	held    []int         // indexes of the last answered tickets whose tasks the worker already holds
	taken   int           // number of claimed tickets
	now     time.Time
}

// try runs the effects once. If a task became ready between the first and the second effect, its ticket stays open.
func (g *claiming) try(ctx context.Context) error {
	statement := &claimStatement{store: g.store}
	err := g.do(ctx, Step{Op: "Claim", worker: g.worker, tickets: g.tickets, begin: statement.begin}, func(now time.Time) error {
		statement.begin()
		if err := statement.end(); err != nil {
			return err
		}
		return g.take(now, statement)
	})
	if err != nil || len(g.open) == 0 {
		return err
	}
	if err := g.do(ctx, Step{Op: "Claim refused", worker: g.worker, tickets: g.tickets}, g.refuse); err != nil || len(g.held) == 0 {
		return err
	}
	return g.do(ctx, Step{Op: "Claim held", worker: g.worker, tickets: g.tickets}, g.takeHeld)
}

func (g *claiming) answer(i int, now time.Time, claim store.Claim) {
	claim.Now = now
	g.claims[i], g.now = claim, now
}

// take claims the tasks that can be claimed and that the statement admits.
func (g *claiming) take(now time.Time, statement *claimStatement) error {
	s := g.store
	if !s.db.live(g.worker) {
		return nil
	}
	g.open = slices.DeleteFunc(g.open, func(i int) bool {
		task := s.db.task(g.tickets[i].Task)
		if task == nil || task.Attempt != g.tickets[i].Attempt || !task.runnable(now) || !statement.admits(task) || !g.wants(task) || g.isLastChance(task) {
			return false
		}
		s.changing(task)
		task.State, task.Worker, task.StartedAt = holdfast.Running, g.worker, now
		task.DueAt, task.TicketedAt, task.Parked = time.Time{}, time.Time{}, ""
		task.Buffered = g.into == store.IntoBuffer
		s.changed("Claim", task, nil)
		g.taken++
		g.answer(i, now, store.Claim{Verdict: store.Claimed, Task: task.claimed(), Probe: s.db.probes(task)})
		return true
	})
	return nil
}

// refuse answers the tickets whose tasks were not claimed.
func (g *claiming) refuse(now time.Time) error {
	live := g.store.db.live(g.worker)
	if !live && g.taken == 0 {
		return fmt.Errorf("worker %s: %w", g.worker, store.ErrFenced)
	}
	g.held, g.now = g.held[:0], now
	g.open = slices.DeleteFunc(g.open, func(i int) bool {
		task, ticket := g.store.db.task(g.tickets[i].Task), g.tickets[i]
		if task != nil && task.State == holdfast.Running && task.Worker == g.worker && task.Attempt == ticket.Attempt {
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

// verdict returns the answer to one ticket. certain is false if the task could be claimed by now.
func (g *claiming) verdict(task *Task, ticket message.Ticket, now time.Time) (claim store.Claim, certain bool) {
	switch {
	case task == nil || task.Attempt < ticket.Attempt:
		return store.Claim{Verdict: store.Ahead}, true
	case task.Attempt > ticket.Attempt:
	case task.State == holdfast.Running:
		return store.Claim{Verdict: store.Contended, Owner: task.Worker}, true
	case task.runnable(now):
		named, gate := &holdfast.Task{ID: task.ID, Type: task.Type, Queue: task.Queue, Priority: task.Priority}, g.store.db.gateKeeping().gateOf(task, now)
		switch {
		case gate != 0:
			return store.Claim{Verdict: store.Blocked, Task: named, Gate: gate}, true
		case !g.wants(task):
			return store.Claim{Verdict: store.Unhandled, Task: named}, true
		case g.isLastChance(task):
			return store.Claim{Verdict: store.LastChance, Task: named}, true
		}
		return store.Claim{}, false
	}
	return store.Claim{Verdict: store.Stale}, true
}

func (g *claiming) wants(task *Task) bool { return g.wantedIndex(task) >= 0 }

func (g *claiming) wantedIndex(task *Task) int {
	return slices.IndexFunc(g.wanted, func(w store.Wanted) bool { return w.Type == task.Type })
}

// isLastChance reports whether a wanted task has had more crashes than the caller allows.
func (g *claiming) isLastChance(task *Task) bool {
	i := g.wantedIndex(task)
	return i >= 0 && task.Crashes > g.wanted[i].MostCrashes
}

// takeHeld claims again the tasks that the worker already holds, because the answer to an earlier call may have been
// lost. A task that was settled meanwhile gets no answer here.
func (g *claiming) takeHeld(now time.Time) error {
	for _, i := range g.held {
		task := g.store.db.task(g.tickets[i].Task)
		if task != nil && task.Attempt == g.tickets[i].Attempt && task.Worker == g.worker && task.State == holdfast.Running {
			g.answer(i, now, store.Claim{Verdict: store.Claimed, Task: task.claimed(), Probe: g.store.db.probes(task)})
		}
	}
	g.taken += len(g.held)
	return nil
}
