package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/slow"
	"github.com/holdfastq/holdfast/store"
)

// Hundreds of tasks whose next crash is their last finish on one worker, each of them beside nothing else, while ordinary
// tasks go on. An idle machine needs a few seconds; a wait that grew with the age of the tasks would take hours.
func TestManyLastChanceTasksFinishOneAtATime(t *testing.T) { everywhere(t, manyLastChanceTasks) }

func manyLastChanceTasks(t *testing.T, w *world) {
	const ordinary = 200
	lastChance := slow.Pick(150, 450)
	crashed := w.crashed(t, lastChance, w.Config.Settings().For("noop").Policy.MaxCrashes-1)
	beside := newCompany()
	began := time.Now()
	w.runJanitor(t, w.Backend, nil)
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"noop": consumer.HandlerFunc(beside.handle)})
	plain := w.enqueue(t, ordinary, holdfast.NewTask{Type: "noop"})
	w.awaitCount(t, 5*time.Minute, holdfast.Done, int64(lastChance+ordinary))
	t.Logf("%d last-chance tasks and %d ordinary ones finished in %s", lastChance, ordinary, time.Since(began).Round(time.Millisecond))
	for _, id := range crashed {
		if n, runs := beside.of(id); n != 0 || runs != 1 {
			t.Errorf("last-chance task %s ran %d times, with %d tasks beside it", id, runs, n)
		}
	}
	for _, id := range plain {
		if _, runs := beside.of(id); runs != 1 {
			t.Errorf("task %s ran %d times", id, runs)
		}
	}
}

// crashed stores tasks of type noop that have crashed n times and are due.
func (w *world) crashed(t *testing.T, tasks, n int) []holdfast.TaskID {
	t.Helper()
	ctx := t.Context()
	new := make([]holdfast.NewTask, tasks)
	for i := range new {
		new[i] = holdfast.NewTask{Type: "noop", Lane: holdfast.DefaultLane, MaxAttempts: 3}
	}
	inserted, err := w.Store.Insert(ctx, new, time.Hour)
	if err == nil {
		err = w.Store.Discharge(ctx, []int64{inserted.Receipts[0].ID})
	}
	if err != nil {
		t.Fatal(err)
	}
	tickets := inserted.Receipts[0].Tickets
	for range n {
		tickets = w.crash(t, tickets)
	}
	ids := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		ids[i] = ticket.Task
	}
	return ids
}

// crash claims the tasks for a worker and ends it with them, and returns the tickets of their next attempts.
func (w *world) crash(t *testing.T, tickets []message.Ticket) []message.Ticket {
	t.Helper()
	ctx := t.Context()
	run, err := w.Store.OpenRun(ctx, store.RunInfo{Name: "crashed", Host: "elsewhere", Concurrency: 1}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := w.Store.Claim(ctx, run, store.AnyOf("noop"), tickets, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	moves := make([]holdfast.Transition, len(claims))
	next := make([]message.Ticket, len(claims))
	for i, claim := range claims {
		move, err := holdfast.Settle(claim.Task, holdfast.Crashed(run), claim.Now, holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		move.Wait = 0
		moves[i], next[i] = move, message.Ticket{Task: move.Task, Attempt: move.NextAttempt}
	}
	if _, err := w.Store.Apply(ctx, moves); err != nil {
		t.Fatal(err)
	}
	if err := w.Store.CloseRun(ctx, run, true); err != nil {
		t.Fatal(err)
	}
	return next
}

// company notes what ran beside what.
type company struct {
	mu   sync.Mutex
	now  map[holdfast.TaskID]bool
	most map[holdfast.TaskID]int // others that ran at the same time
	runs map[holdfast.TaskID]int
}

func newCompany() *company {
	return &company{now: make(map[holdfast.TaskID]bool), most: make(map[holdfast.TaskID]int), runs: make(map[holdfast.TaskID]int)}
}

func (c *company) handle(_ context.Context, task holdfast.Task) error {
	c.mu.Lock()
	c.now[task.ID] = true
	c.runs[task.ID]++
	for id := range c.now {
		c.most[id] = max(c.most[id], len(c.now)-1)
	}
	c.mu.Unlock()
	time.Sleep(time.Millisecond) // others that ran beside it would start meanwhile
	c.mu.Lock()
	delete(c.now, task.ID)
	c.mu.Unlock()
	return nil
}

func (c *company) of(id holdfast.TaskID) (beside, runs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most[id], c.runs[id]
}
