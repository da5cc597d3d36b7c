package simstore

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// oldQuestion is how long after it was asked a question about leases is not answered any more.
const oldQuestion = 2 * time.Second

// Now implements store.Fencing.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	var answer time.Time
	err := c.do(ctx, Step{Op: "Now", tableless: true}, func(now time.Time) error {
		answer = now
		return nil
	})
	if err != nil {
		return time.Time{}, err
	}
	return answer, nil
}

// Fence implements store.Fencing.
func (c *Client) Fence(ctx context.Context, asked time.Time, grace, settle time.Duration) ([]holdfast.RunID, error) {
	var fenced []holdfast.RunID
	err := c.do(ctx, Step{Op: "Fence"}, func(now time.Time) error {
		settled := now.Sub(c.store.started) >= settle || ahead(now, c.store.started)
		settled = settled && now.Sub(asked) < oldQuestion
		over := ago(now, grace)
		for i := range c.store.db.runs {
			run := &c.store.db.runs[i]
			switch {
			case run.State != store.RunLive:
			case ahead(now, run.RenewedAt): // it gets a whole lease, in which a living worker renews
				run.RenewedAt, run.LeaseUntil = now, now.Add(run.LeaseUntil.Sub(run.RenewedAt))
			case settled && run.LeaseUntil.Before(over):
				run.State, run.EndedAt = store.RunDead, now
				fenced = append(fenced, run.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return fenced, nil
}

// RunStates implements store.Patrol.
func (c *Client) RunStates(ctx context.Context, runs []holdfast.RunID) (map[holdfast.RunID]store.RunStatus, error) {
	own := slices.Clone(runs)
	states := make(map[holdfast.RunID]store.RunStatus, len(own))
	err := c.do(ctx, Step{Op: "RunStates", ids: numbers(own)}, func(time.Time) error {
		for _, id := range own {
			if run := c.store.db.run(id); run != nil {
				states[id] = store.RunStatus{State: run.State, Settled: run.Settled}
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
			positions[i] = store.Position{Found: true, State: task.State, Attempt: task.Attempt, Run: task.Run, Ticketed: task.Ticketed()}
			if run := c.store.db.run(task.Run); run != nil {
				positions[i].RunState = run.State
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return positions, nil
}

// sweepEvery is that of the store on servers, whose look at all tasks is dear.
const sweepEvery = 10 * time.Minute

// Abandoned implements store.Fencing. Like the store on servers it looks only if a run is over that may own tasks, or nobody has
// looked for a while.
func (c *Client) Abandoned(ctx context.Context, of holdfast.RunID, limit int) ([]holdfast.Task, error) {
	if limit <= 0 {
		return nil, nil
	}
	// First the runs: what is over before the look at the tasks takes nothing any more.
	var over []holdfast.RunID
	err := c.do(ctx, Step{Op: "Abandoned runs", run: of}, func(time.Time) error {
		for i := range c.store.db.runs {
			if run := &c.store.db.runs[i]; run.State != store.RunLive && !run.Swept && (of == 0 || run.ID == of) {
				over = append(over, run.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(over) == 0 && of == 0 && !c.sweeping.Load() {
		if due, err := c.Turn(ctx, "sweep all", sweepEvery); err != nil || !due {
			return nil, err
		}
	}
	var tasks []holdfast.Task
	err = c.do(ctx, Step{Op: "Abandoned", run: of}, func(time.Time) error {
		d := &c.store.db
		for i := 0; i < len(d.tasks) && len(tasks) < limit; i++ {
			if task := &d.tasks[i]; task.State == holdfast.Running && (of == 0 || task.Run == of) && !d.live(task.Run) {
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
	if len(tasks) == 0 && len(over) > 0 {
		err = c.swept(ctx, over)
	}
	return tasks, err
}

// swept notes that a look at all tasks has found none of these runs.
func (c *Client) swept(ctx context.Context, runs []holdfast.RunID) error {
	return c.do(ctx, Step{Op: "Abandoned swept", ids: numbers(runs)}, func(time.Time) error {
		for _, id := range runs {
			if run := c.store.db.run(id); run != nil && run.State != store.RunLive {
				run.Swept = true
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
