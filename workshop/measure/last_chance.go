package measure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// measureLastChances stores last-chance tasks: tasks that are dead after their next crash. Each of them runs
// exclusively. It measures how long one worker needs to run all of them.
func measureLastChances(ctx context.Context, tb *testbed) ([]Figure, error) {
	const tasks, crashes = 450, 4
	f := Figure{Name: "Last-chance tasks", What: fmt.Sprintf("start of the only worker, until it has run %d tasks that crashed %d times, each of them exclusively", tasks, crashes), Unit: seconds}
	tb.Config.Defaults.Policy.MaxCrashes = crashes + 1
	for trial := range min(tb.o.Rounds, 3) { // a round takes a long time
		tickets, err := tb.insertUnpublished(ctx, "fragile", tasks)
		for n := 0; err == nil && n < crashes; n++ {
			tickets, err = tb.crash(ctx, "fragile", tickets)
		}
		if err != nil {
			return nil, err
		}
		var running atomic.Int64
		var overlapped, miscounted atomic.Bool
		began := time.Now()
		c := tb.services(ctx)
		err = c.janitor()
		if err == nil {
			err = c.worker("worker", "fragile", 50, func(_ context.Context, task holdfast.Task) error {
				if task.Crashes != crashes {
					miscounted.Store(true)
				}
				if running.Add(1) > 1 {
					overlapped.Store(true)
				}
				defer running.Add(-1)
				return nil
			})
		}
		if err == nil {
			err = tb.awaitDone(ctx, int64(tasks*(trial+1)))
		}
		took := time.Since(began)
		if ending := c.end(); err == nil {
			err = ending
		}
		switch {
		case err == nil && overlapped.Load():
			err = errors.New("a last-chance task ran at the same time as another one")
		case err == nil && miscounted.Load():
			err = errors.New("a last-chance task has the wrong number of crashes")
		}
		if err != nil {
			return nil, err
		}
		f.Samples = append(f.Samples, took.Seconds())
	}
	return []Figure{f}, nil
}

// insertUnpublished stores n tasks and returns their tickets, which are not published.
func (tb *testbed) insertUnpublished(ctx context.Context, kind string, n int) ([]message.Ticket, error) {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: kind, Queue: holdfast.DefaultQueue, MaxAttempts: 3}
	}
	inserted, err := tb.Store.Insert(ctx, tasks, time.Hour)
	if err != nil {
		return nil, err
	}
	return inserted.Entries[0].Tickets, tb.Store.DeleteOutbox(ctx, []int64{inserted.Entries[0].ID})
}

// crash claims the tasks for a new worker, settles them as crashed and ends the worker. It returns the tickets of the
// next attempts, which the janitor publishes.
func (tb *testbed) crash(ctx context.Context, kind string, tickets []message.Ticket) ([]message.Ticket, error) {
	worker, err := tb.Store.RegisterWorker(ctx, store.WorkerInfo{Name: "crashed", Host: "elsewhere", Concurrency: 1}, time.Hour)
	if err != nil {
		return nil, err
	}
	claims, err := tb.Store.Claim(ctx, worker, store.AnyOf(kind), tickets, store.IntoExecutors)
	if err != nil {
		return nil, err
	}
	moves, next := make([]holdfast.Transition, len(claims)), make([]message.Ticket, len(claims))
	for i, claim := range claims {
		if moves[i], err = holdfast.Settle(*claim.Task, holdfast.Crashed(worker), claim.Now, tb.Config.Defaults.Policy); err != nil {
			return nil, err
		}
		moves[i].Wait = 0
		next[i] = message.Ticket{Task: moves[i].Task, Attempt: moves[i].NextAttempt}
	}
	if _, err := tb.Store.Apply(ctx, moves); err != nil {
		return nil, err
	}
	return next, tb.Store.DeregisterWorker(ctx, worker, true)
}
