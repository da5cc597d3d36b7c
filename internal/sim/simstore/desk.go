package simstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const defaultLimit = 50

// LaneNames implements store.Dispatch.
func (c *Client) LaneNames(ctx context.Context) ([]string, error) {
	var names []string
	err := c.do(ctx, Step{Op: "LaneNames"}, func(time.Time) error {
		names = c.store.db.laneNames()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Task implements store.Desk.
func (c *Client) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	var found holdfast.Task
	err := c.do(ctx, Step{Op: "Task", ids: []int64{int64(id)}}, func(time.Time) error {
		task := c.store.db.task(id)
		if task == nil {
			return noTask(id)
		}
		found = task.full()
		return nil
	})
	if err != nil {
		return holdfast.Task{}, err
	}
	return found, nil
}

func noTask(id holdfast.TaskID) error {
	return fmt.Errorf("%w: there is no task %s", holdfast.ErrNotFound, id)
}

// List implements store.Desk.
func (c *Client) List(ctx context.Context, f store.Filter) ([]holdfast.Task, error) {
	f, limit := ready(f), f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var tasks []holdfast.Task
	err := c.do(ctx, Step{Op: "List"}, func(time.Time) error {
		rows := c.store.db.tasks
		for i := len(rows) - 1; i >= 0 && len(tasks) < limit; i-- {
			if chosen(&f, &rows[i]) {
				tasks = append(tasks, rows[i].bare())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

// Count implements store.Desk.
func (c *Client) Count(ctx context.Context, f store.Filter) (map[holdfast.State]int64, error) {
	f = ready(f)
	counts := make(map[holdfast.State]int64)
	for _, state := range holdfast.States() {
		counts[state] = 0
	}
	err := c.do(ctx, Step{Op: "Count"}, func(time.Time) error {
		for i := range c.store.db.tasks {
			if task := &c.store.db.tasks[i]; chosen(&f, task) {
				counts[task.State]++
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// ready makes a filter of its own that chosen takes.
func ready(f store.Filter) store.Filter {
	f.States, f.Error = slices.Clone(f.States), strings.ToLower(clean(f.Error))
	return f
}

func chosen(f *store.Filter, task *Task) bool {
	at := task.FinishedAt
	if at.IsZero() {
		at = task.CreatedAt
	}
	return (len(f.States) == 0 || slices.Contains(f.States, task.State)) &&
		(f.Type == "" || task.Type == f.Type) &&
		(f.Lane == "" || task.Lane == f.Lane) &&
		(f.Error == "" || strings.Contains(strings.ToLower(task.LastError), f.Error)) &&
		(f.Before == 0 || task.ID < f.Before) &&
		(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// Attempts implements store.Desk.
func (c *Client) Attempts(ctx context.Context, id holdfast.TaskID) ([]holdfast.Attempt, error) {
	var attempts []holdfast.Attempt
	err := c.do(ctx, Step{Op: "Attempts", ids: []int64{int64(id)}}, func(time.Time) error {
		task := c.store.db.task(id)
		if task == nil {
			return noTask(id)
		}
		attempts = slices.Clone(task.Attempts)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range attempts {
		attempts[i].Details = slices.Clone(attempts[i].Details)
	}
	slices.SortStableFunc(attempts, func(a, b holdfast.Attempt) int {
		return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.FinishedAt.Compare(b.FinishedAt))
	})
	return attempts, nil
}

// Lanes implements store.Desk.
func (c *Client) Lanes(ctx context.Context) ([]store.Lane, error) {
	var lanes []store.Lane
	err := c.do(ctx, Step{Op: "Lanes"}, func(now time.Time) error {
		lanes = make([]store.Lane, len(c.store.db.lanes))
		for i := range lanes {
			lanes[i] = c.store.describe(&c.store.db.lanes[i], now)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return lanes, nil
}

func (s *Store) describe(row *Lane, now time.Time) store.Lane {
	lane := store.Lane{Name: row.Name, DrainedAt: row.DrainedThrough}
	for i := range s.db.tasks {
		task := &s.db.tasks[i]
		switch {
		case task.Lane != row.Name:
		case task.State == holdfast.Running:
			lane.Running++
		case task.arrived(now):
			lane.Ready, lane.Due = lane.Ready+1, lane.Due+1
			lane.OldestDue = max(lane.OldestDue, now.Sub(task.NextRunAt))
		case task.State == holdfast.Ready:
			lane.Ready++
		}
	}
	return lane
}
