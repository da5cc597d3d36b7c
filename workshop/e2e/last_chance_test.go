package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Hundreds of last-chance tasks finish on one worker. Each of them runs exclusively, and ordinary tasks finish too. An
// idle machine needs a few seconds. If the wait of a task grew with its age, the test would take hours.
func TestManyLastChanceTasksFinishOneAtATime(t *testing.T) { onAFileFirst(t, manyLastChanceTasks) }

func manyLastChanceTasks(t *testing.T, w *world) {
	const ordinary = 200
	lastChance := slow.Pick(60, 450)
	crashed := w.crashed(t, lastChance, w.Config.Settings().For("noop").Policy.MaxCrashes-1)
	overlaps := newOverlaps()
	began := time.Now()
	w.runJanitor(t, w.Backend, nil)
	w.runWorker(t, w.Backend, nil, map[string]consumer.Handler{"noop": consumer.HandlerFunc(overlaps.handle)})
	plain := w.enqueue(t, ordinary, holdfast.NewTask{Type: "noop"})
	w.awaitCount(t, holdfast.Done, int64(lastChance+ordinary))
	t.Logf("%d last-chance tasks and %d ordinary ones finished in %s", lastChance, ordinary, time.Since(began).Round(time.Millisecond))
	for _, id := range crashed {
		if n, executions := overlaps.of(id); n != 0 || executions != 1 {
			t.Errorf("last-chance task %s ran %d times, with %d other tasks at the same time", id, executions, n)
		}
	}
	for _, id := range plain {
		if _, executions := overlaps.of(id); executions != 1 {
			t.Errorf("task %s ran %d times", id, executions)
		}
	}
}

// crashed stores tasks of type noop that have crashed n times and are due.
func (w *world) crashed(t *testing.T, tasks, n int) []holdfast.TaskID {
	t.Helper()
	ctx := t.Context()
	list := make([]holdfast.NewTask, tasks)
	for i := range list {
		list[i] = holdfast.NewTask{Type: "noop", Queue: holdfast.DefaultQueue, MaxAttempts: 3}
	}
	inserted, err := w.Store.Insert(ctx, list, time.Hour)
	if err == nil {
		err = w.Store.DeleteOutbox(ctx, []int64{inserted.Entries[0].ID})
	}
	if err != nil {
		t.Fatal(err)
	}
	tickets := inserted.Entries[0].Tickets
	for range n {
		tickets = w.crash(t, tickets)
	}
	ids := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		ids[i] = ticket.Task
	}
	return ids
}

// crash claims the tasks for a new worker, settles them as crashed and ends the worker. It returns the tickets of the
// next attempts.
func (w *world) crash(t *testing.T, tickets []message.Ticket) []message.Ticket {
	t.Helper()
	ctx := t.Context()
	worker, err := w.Store.RegisterWorker(ctx, store.WorkerInfo{Name: "crashed", Host: "elsewhere", Concurrency: 1}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := w.Store.Claim(ctx, worker, store.AnyOf("noop"), tickets, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	moves := make([]holdfast.Transition, len(claims))
	next := make([]message.Ticket, len(claims))
	for i, claim := range claims {
		move, err := holdfast.Settle(*claim.Task, holdfast.Crashed(worker), claim.Now, holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		move.Wait = 0
		moves[i], next[i] = move, message.Ticket{Task: move.Task, Attempt: move.NextAttempt}
	}
	if _, err := w.Store.Apply(ctx, moves); err != nil {
		t.Fatal(err)
	}
	if err := w.Store.DeregisterWorker(ctx, worker, true); err != nil {
		t.Fatal(err)
	}
	return next
}

// overlaps records which tasks run at the same time.
type overlaps struct {
	mu         sync.Mutex
	running    map[holdfast.TaskID]bool
	most       map[holdfast.TaskID]int // highest number of other tasks that ran at the same time
	executions map[holdfast.TaskID]int
}

func newOverlaps() *overlaps {
	return &overlaps{
		running: make(map[holdfast.TaskID]bool), most: make(map[holdfast.TaskID]int), executions: make(map[holdfast.TaskID]int),
	}
}

func (o *overlaps) handle(_ context.Context, task holdfast.Task) error {
	o.mu.Lock()
	o.running[task.ID] = true
	o.executions[task.ID]++
	for id := range o.running {
		o.most[id] = max(o.most[id], len(o.running)-1)
	}
	o.mu.Unlock()
	time.Sleep(time.Millisecond) // time for other tasks to start
	o.mu.Lock()
	delete(o.running, task.ID)
	o.mu.Unlock()
	return nil
}

// of returns the highest number of tasks that ran at the same time as a task, and how often the task ran.
func (o *overlaps) of(id holdfast.TaskID) (others, executions int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.most[id], o.executions[id]
}
