package memory

import (
	"context"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// park counts one more park of the task at its attempt and returns the length of the wait. first is the wait of the
// first park.
func (t *Task) park(first time.Duration) time.Duration {
	if t.ParkAttempt != t.Attempt {
		t.Parks, t.ParkAttempt = 0, t.Attempt
	}
	first = later(time.Time{}, first).Sub(time.Time{}) // in whole microseconds
	wait := max(first, min(first<<min(t.Parks, 16), store.LongestPark))
	t.Parks++
	return wait
}

// endPark ends the park of a task that waits for something else from now on. Its NextRunAt may be the end of the park.
func (t *Task) endPark() {
	if t.Parked == "" {
		return
	}
	began := t.CreatedAt
	if !t.StartedAt.IsZero() {
		began = t.StartedAt
	}
	t.Parked, t.NextRunAt = "", earlier(t.NextRunAt, began)
}

// Park implements store.Tickets.
func (c *Client) Park(ctx context.Context, tickets []message.Ticket, wait time.Duration, why string) error {
	if len(tickets) == 0 {
		return nil
	}
	own := slices.Clone(tickets)
	return c.do(ctx, Step{Op: "Park", tickets: own}, func(now time.Time) error {
		for _, ticket := range own {
			task := c.store.db.task(ticket.Task)
			if task == nil || task.Attempt != ticket.Attempt || !task.runnable(now) {
				continue
			}
			c.store.changing(task)
			task.DueAt = later(now, task.park(wait))
			task.NextRunAt = task.DueAt
			task.TicketedAt, task.Parked = time.Time{}, clean(why)
			c.store.changed("Park", task, nil)
		}
		return nil
	})
}

// Block implements store.Tickets.
func (c *Client) Block(ctx context.Context, gate store.ID, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	own := slices.Clone(tickets)
	return c.do(ctx, Step{Op: "Block", tickets: own}, func(now time.Time) error {
		at := c.store.db.gate(gate)
		closed := at != nil && at.closed(now)
		for _, ticket := range own {
			task := c.store.db.task(ticket.Task)
			if task == nil || task.Attempt != ticket.Attempt || !task.runnable(now) {
				continue
			}
			c.store.changing(task)
			task.DueAt = now
			if closed {
				task.DueAt, task.Gate, task.GateAttempt = store.BlockedUntil, gate, task.Attempt
				task.BlockedAt, task.Bucket = now, at.bucket(task)
				c.store.db.wake(at, task.Bucket, now)
			}
			task.TicketedAt = time.Time{}
			task.endPark()
			c.store.changed("Block", task, nil)
		}
		return nil
	})
}

// Unpark implements store.Tickets.
func (c *Client) Unpark(ctx context.Context, types, queues []string) (total int, err error) {
	types, queues = slices.Clone(types), slices.Clone(queues)
	for {
		changed := 0
		err := c.do(ctx, Step{Op: "Unpark"}, func(now time.Time) error {
			for i := 0; i < len(c.store.db.tasks) && changed < stepSize; i++ {
				task := &c.store.db.tasks[i]
				if task.State != holdfast.Ready || task.Parked == "" || !task.DueAt.After(now) || task.Blocked() ||
					!slices.Contains(types, task.Type) || len(queues) > 0 && !slices.Contains(queues, task.Queue) {
					continue
				}
				c.store.changing(task)
				task.DueAt, task.NextRunAt, task.Parks = now, now, 0 // it keeps the reason: see correctNext
				c.store.changed("Unpark", task, nil)
				changed++
			}
			return nil
		})
		if total += changed; err != nil || changed < stepSize {
			return total, err
		}
	}
}

// Handlers implements store.Tickets.
func (c *Client) Handlers(ctx context.Context) ([]store.Handler, error) {
	var handlers []store.Handler
	err := c.do(ctx, Step{Op: "Handlers"}, func(time.Time) error {
		for i := range c.store.db.workers {
			worker := &c.store.db.workers[i]
			if worker.State != store.WorkerLive || worker.Draining {
				continue
			}
			queues := worker.Queues
			if len(queues) == 0 {
				queues = []string{""}
			}
			for _, taskType := range worker.Types {
				for _, queue := range queues {
					if h := (store.Handler{Type: taskType, Queue: queue}); !slices.Contains(handlers, h) {
						handlers = append(handlers, h)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return handlers, nil
}

// AddQueues implements store.Tickets.
func (c *Client) AddQueues(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return c.addQueues(ctx, "AddQueues", slices.Clone(names))
}

// PassedOn implements store.Tickets.
func (c *Client) PassedOn(ctx context.Context, tickets []message.Ticket) error {
	if len(tickets) == 0 {
		return nil
	}
	own := slices.Clone(tickets)
	return c.do(ctx, Step{Op: "PassedOn", tickets: own}, func(now time.Time) error {
		for _, ticket := range own {
			task := c.store.db.task(ticket.Task)
			if task == nil || task.Attempt != ticket.Attempt || !task.Ticketed() {
				continue
			}
			c.store.changing(task)
			task.Requeued, task.TicketedAt = true, now
			c.store.changed("PassedOn", task, nil)
		}
		return nil
	})
}

// Drained implements store.Tickets.
func (c *Client) Drained(ctx context.Context, sentinel message.Sentinel) error {
	return c.do(ctx, Step{Op: "Drained", text: sentinel.Queue}, func(now time.Time) error {
		i, known := c.store.db.findQueue(sentinel.Queue)
		if !known || ahead(now, sentinel.At) { // unknown queue, or a sentinel from before the clock was set back
			return nil
		}
		// A sentinel changes nothing if another one has overtaken it, or if it is reported twice.
		queue := &c.store.db.queues[i]
		if at := earlier(sentinel.At.UTC().Truncate(time.Microsecond), now); queue.DrainedThrough.IsZero() || queue.DrainedThrough.Before(at) {
			queue.DrainedThrough, queue.DrainedAt = at, now
		}
		return nil
	})
}
