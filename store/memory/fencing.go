package memory

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// staleAfter is the age from which the store ignores a fencing request.
const staleAfter = 2 * time.Second

// Now implements store.Fencing.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	var answer time.Time
	err := c.do(ctx, Step{Op: "Now"}, func(now time.Time) error {
		answer = now
		return nil
	})
	if err != nil {
		return time.Time{}, err
	}
	return answer, nil
}

// Fence implements store.Fencing.
func (c *Client) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.WorkerID, error) {
	var fenced []holdfast.WorkerID
	err := c.do(ctx, Step{Op: "Fence"}, func(now time.Time) error {
		settled := now.Sub(c.store.started) >= settle || ahead(now, c.store.started)
		settled = settled && now.Sub(asked) < staleAfter
		expiry := ago(now, grace)
		for i := range c.store.db.workers {
			worker := &c.store.db.workers[i]
			switch {
			case worker.State != store.WorkerLive:
			case ahead(now, worker.RenewedAt): // the worker gets a whole new lease, so that a live worker can renew
				worker.RenewedAt, worker.LeaseUntil = now, now.Add(worker.LeaseUntil.Sub(worker.RenewedAt))
			case settled && worker.LeaseUntil.Before(expiry):
				worker.State, worker.EndedAt = store.WorkerDead, now
				fenced = append(fenced, worker.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return fenced, nil
}

// WorkerStates implements store.Patrol.
func (c *Client) WorkerStates(ctx context.Context, workers []holdfast.WorkerID) (map[holdfast.WorkerID]store.WorkerStatus, error) {
	own := slices.Clone(workers)
	states := make(map[holdfast.WorkerID]store.WorkerStatus, len(own))
	err := c.do(ctx, Step{Op: "WorkerStates", ids: numbers(own)}, func(time.Time) error {
		for _, id := range own {
			if worker := c.store.db.worker(id); worker != nil {
				states[id] = store.WorkerStatus{State: worker.State, Settled: worker.Settled}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// Positions implements store.Patrol.
func (c *Client) Positions(ctx context.Context, tickets []message.Ticket) ([]store.Position, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	own, positions := slices.Clone(tickets), make([]store.Position, len(tickets))
	err := c.do(ctx, Step{Op: "Positions", tickets: own}, func(time.Time) error {
		for i, ticket := range own {
			task := c.store.db.task(ticket.Task)
			if task == nil {
				continue
			}
			positions[i] = store.Position{Found: true, State: task.State, Attempt: task.Attempt, Worker: task.Worker, Ticketed: task.Ticketed()}
			if worker := c.store.db.worker(task.Worker); worker != nil {
				positions[i].WorkerState = worker.State
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return positions, nil
}

// sweepEvery is the interval between sweeps of all tasks, as in the stores on servers, where such a sweep is expensive.
const sweepEvery = 10 * time.Minute

// Abandoned implements store.Fencing. Like the stores on servers, it sweeps only if an ended worker may own tasks, or
// if the last sweep was long ago.
func (c *Client) Abandoned(ctx context.Context, of holdfast.WorkerID, limit int) ([]holdfast.Task, error) {
	if limit <= 0 {
		return nil, nil
	}
	// The workers are read first: a worker that ended before the sweep takes no more tasks.
	var ended []holdfast.WorkerID
	err := c.do(ctx, Step{Op: "Abandoned workers", worker: of}, func(time.Time) error {
		for i := range c.store.db.workers {
			if worker := &c.store.db.workers[i]; worker.State != store.WorkerLive && !worker.Swept && (of == 0 || worker.ID == of) {
				ended = append(ended, worker.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(ended) == 0 && of == 0 && !c.sweeping.Load() {
		if due, err := c.Turn(ctx, "sweep all", sweepEvery); err != nil || !due {
			return nil, err
		}
	}
	var tasks []holdfast.Task
	err = c.do(ctx, Step{Op: "Abandoned", worker: of}, func(time.Time) error {
		d := &c.store.db
		for i := 0; i < len(d.tasks) && len(tasks) < limit; i++ {
			if task := &d.tasks[i]; task.State == holdfast.Running && (of == 0 || task.Worker == of) && !d.live(task.Worker) {
				tasks = append(tasks, task.bare())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if of == 0 {
		c.sweeping.Store(len(tasks) > 0)
	}
	if len(tasks) == 0 && len(ended) > 0 {
		err = c.swept(ctx, ended)
	}
	return tasks, err
}

// swept records that a sweep of all tasks has found none of these workers.
func (c *Client) swept(ctx context.Context, workers []holdfast.WorkerID) error {
	return c.do(ctx, Step{Op: "Abandoned swept", ids: numbers(workers)}, func(time.Time) error {
		for _, id := range workers {
			if worker := c.store.db.worker(id); worker != nil && worker.State != store.WorkerLive {
				worker.Swept = true
			}
		}
		return nil
	})
}

// TasksByID implements store.Patrol.
func (c *Client) TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	own := slices.Clone(ids)
	slices.Sort(own)
	own = slices.Compact(own)
	var tasks []holdfast.Task
	err := c.do(ctx, Step{Op: "TasksByID", ids: numbers(own)}, func(time.Time) error {
		for _, id := range own {
			if task := c.store.db.task(id); task != nil {
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

func numbers[ID ~int64](ids []ID) []int64 {
	list := make([]int64, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	return list
}
