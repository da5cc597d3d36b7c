package recovery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// lastChances stores tasks whose next crash is their last, which run one at a time, and measures how long one worker takes for
// all of them.
func lastChances(ctx context.Context, p *place) ([]Figure, error) {
	const tasks, crashes = 450, 4
	f := Figure{Name: "Tasks on their last chance", What: fmt.Sprintf("start of the only worker, until %d tasks that crashed %d times have run, each of them beside no other task", tasks, crashes), Unit: seconds}
	p.Config.Defaults.Policy.MaxCrashes = crashes + 1
	for trial := range min(p.o.Rounds, 3) { // they take long
		tickets, err := p.insert(ctx, "fragile", tasks)
		for n := 0; err == nil && n < crashes; n++ {
			tickets, err = p.crash(ctx, "fragile", tickets)
		}
		if err != nil {
			return nil, err
		}
		var running atomic.Int64
		var beside, fresh atomic.Bool
		began := time.Now()
		c := p.crew(ctx)
		err = c.janitor()
		if err == nil {
			err = c.worker("worker", "fragile", 50, func(_ context.Context, task holdfast.Task) error {
				if task.Crashes != crashes {
					fresh.Store(true)
				}
				if running.Add(1) > 1 {
					beside.Store(true)
				}
				defer running.Add(-1)
				return nil
			})
		}
		if err == nil {
			err = p.awaitDone(ctx, int64(tasks*(trial+1)))
		}
		took := time.Since(began)
		if ending := c.end(); err == nil {
			err = ending
		}
		switch {
		case err == nil && beside.Load():
			err = errors.New("a task on its last chance ran beside another one")
		case err == nil && fresh.Load():
			err = errors.New("a task had another number of crashes")
		}
		if err != nil {
			return nil, err
		}
		f.Samples = append(f.Samples, took.Seconds())
	}
	return []Figure{f}, nil
}

// insert stores n tasks whose tickets nobody publishes, and returns them.
func (p *place) insert(ctx context.Context, kind string, n int) ([]message.Ticket, error) {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: kind, Lane: holdfast.DefaultLane, MaxAttempts: 3}
	}
	inserted, err := p.Store.Insert(ctx, tasks, time.Hour)
	if err != nil {
		return nil, err
	}
	return inserted.Receipts[0].Tickets, p.Store.Discharge(ctx, []int64{inserted.Receipts[0].ID})
}

// crash claims the tasks for a worker that ends with them, and returns the tickets of their next attempts. The janitor publishes
// these.
func (p *place) crash(ctx context.Context, kind string, tickets []message.Ticket) ([]message.Ticket, error) {
	run, err := p.Store.OpenRun(ctx, store.RunInfo{Name: "crashed", Host: "elsewhere", Concurrency: 1}, time.Hour)
	if err != nil {
		return nil, err
	}
	claims, err := p.Store.Claim(ctx, run, store.AnyOf(kind), tickets, store.IntoExecutors)
	if err != nil {
		return nil, err
	}
	moves, next := make([]holdfast.Transition, len(claims)), make([]message.Ticket, len(claims))
	for i, claim := range claims {
		if moves[i], err = holdfast.Settle(claim.Task, holdfast.Crashed(run), claim.Now, p.Config.Defaults.Policy); err != nil {
			return nil, err
		}
		moves[i].Wait = 0
		next[i] = message.Ticket{Task: moves[i].Task, Attempt: moves[i].NextAttempt}
	}
	if _, err := p.Store.Apply(ctx, moves); err != nil {
		return nil, err
	}
	return next, p.Store.CloseRun(ctx, run, true)
}
