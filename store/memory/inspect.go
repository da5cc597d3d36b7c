package memory

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

// QueueNames implements store.Dispatch.
func (c *Client) QueueNames(ctx context.Context) ([]string, error) {
	var names []string
	err := c.do(ctx, Step{Op: "QueueNames"}, func(time.Time) error {
		names = c.store.db.queueNames()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Task implements store.Inspector.
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

// FullTasks implements store.Inspector.
func (c *Client) FullTasks(ctx context.Context, ids []holdfast.TaskID) (found []holdfast.Task, err error) {
	own := slices.Clone(ids)
	slices.SortFunc(own, cmp.Compare)
	err = c.do(ctx, Step{Op: "FullTasks"}, func(time.Time) error {
		for _, id := range slices.Compact(own) {
			if task := c.store.db.task(id); task != nil {
				found = append(found, task.full())
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// TaskSizes implements store.Inspector.
func (c *Client) TaskSizes(ctx context.Context, ids []holdfast.TaskID) (sizes []store.TaskSize, err error) {
	own := slices.Clone(ids)
	slices.SortFunc(own, cmp.Compare)
	err = c.do(ctx, Step{Op: "TaskSizes"}, func(time.Time) error {
		for _, id := range slices.Compact(own) {
			task := c.store.db.task(id)
			if task == nil {
				continue
			}
			size := store.TaskSize{Task: id, Bytes: int64(len(task.full().Payload))}
			for _, value := range task.Data {
				if value.Name == store.OutputData {
					size.Bytes += int64(len(value.Value))
				}
			}
			sizes = append(sizes, size)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sizes, nil
}

// TypeSchemas implements store.Inspector.
func (c *Client) TypeSchemas(ctx context.Context, taskType string) ([]store.TypeSchema, error) {
	var found []store.TypeSchema
	err := c.do(ctx, Step{Op: "TypeSchemas", text: taskType}, func(time.Time) error {
		found = nil
		for _, schema := range c.store.db.schemas {
			if taskType == "" || schema.Type == taskType {
				found = append(found, schema)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func noTask(id holdfast.TaskID) error {
	return fmt.Errorf("%w: there is no task %s", holdfast.ErrNotFound, id)
}

// List implements store.Inspector. It scans all tasks in one step.
func (c *Client) List(ctx context.Context, f store.Filter) (store.Page, error) {
	f, limit := normalize(f), f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	var page store.Page
	err := c.do(ctx, Step{Op: "List"}, func(time.Time) error {
		rows := c.store.db.tasks
		for i := len(rows) - 1; i >= 0; i-- {
			if !c.store.matches(&f, &rows[i]) {
				continue
			}
			if len(page.Tasks) == limit {
				page.Next = page.Tasks[limit-1].ID
				break
			}
			page.Tasks = append(page.Tasks, rows[i].bare())
		}
		return nil
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// Count implements store.Inspector. It scans all tasks in one step.
func (c *Client) Count(ctx context.Context, f store.Filter) (store.Counts, error) {
	f = normalize(f)
	counts := store.Counts{By: make(map[holdfast.State]int64)}
	for _, state := range holdfast.States() {
		counts.By[state] = 0
	}
	err := c.do(ctx, Step{Op: "Count"}, func(time.Time) error {
		for i := range c.store.db.tasks {
			if task := &c.store.db.tasks[i]; c.store.matches(&f, task) {
				counts.By[task.State]++
			}
		}
		return nil
	})
	if err != nil {
		return store.Counts{}, err
	}
	return counts, nil
}

// normalize returns a copy of a filter for matches.
func normalize(f store.Filter) store.Filter {
	f.States, f.Error = slices.Clone(f.States), strings.ToLower(clean(f.Error))
	return f
}

// matches reports whether a normalized filter selects a task.
func (s *Store) matches(f *store.Filter, task *Task) bool {
	at := task.FinishedAt
	if at.IsZero() {
		at = task.CreatedAt
	}
	return (len(f.States) == 0 || slices.Contains(f.States, task.State)) &&
		(f.Type == "" || task.Type == f.Type) &&
		(f.Queue == "" || task.Queue == f.Queue) &&
		(len(f.Priorities) == 0 || slices.Contains(f.Priorities, task.Priority)) &&
		(f.Unique == "" || task.Unique == f.Unique) &&
		(f.Key == "" || task.Key == f.Key) && (f.Topic == "" || task.Topic == f.Topic) &&
		(f.Batch == 0 || task.Batch == f.Batch) && (f.Worker == 0 || task.Worker == f.Worker) &&
		(f.Operation == 0 || slices.ContainsFunc(s.db.audit, func(e store.AuditEntry) bool { return e.Operation == f.Operation && e.Task == task.ID })) &&
		(f.MinAttempt == 0 || task.Attempt >= f.MinAttempt) && (f.MaxAttempt == 0 || task.Attempt <= f.MaxAttempt) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, task.ID)) && !slices.Contains(f.NotIDs, task.ID) &&
		(f.MinID == 0 || task.ID >= f.MinID) && (f.MaxID == 0 || task.ID <= f.MaxID) &&
		!slices.ContainsFunc(f.Tags, func(tag string) bool { return !slices.Contains(task.Tags, tag) }) &&
		store.MatchPayload(f.Payload, task.Payload) &&
		matchesDeath(f, task) &&
		(f.Error == "" || strings.Contains(strings.ToLower(task.LastError), f.Error)) &&
		(f.Before == 0 || task.ID < f.Before) &&
		(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// Attempts implements store.Inspector.
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

// Queues implements store.Inspector.
func (c *Client) Queues(ctx context.Context) ([]store.Queue, error) {
	var queues []store.Queue
	err := c.do(ctx, Step{Op: "Queues"}, func(now time.Time) error {
		queues = make([]store.Queue, 0, len(c.store.db.queues))
		for i := range c.store.db.queues {
			if _, taskType := holdfast.SplitTypeQueue(c.store.db.queues[i].Name); taskType == "" {
				queues = append(queues, c.store.describe(&c.store.db.queues[i], now))
			}
		}
		slices.SortFunc(queues, func(a, b store.Queue) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Priority, a.Priority))
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return queues, nil
}

func (s *Store) describe(row *Queue, now time.Time) store.Queue {
	name, priority := holdfast.SplitSubqueue(row.Name)
	queue := store.Queue{Name: name, Priority: priority, DrainedAt: row.DrainedThrough}
	for i := range s.db.tasks {
		task := &s.db.tasks[i]
		if task.Subqueue() == row.Name && task.State == holdfast.Ready && task.Parked != "" {
			queue.Parked++
			if at, found := slices.BinarySearch(queue.ParkedTypes, task.Type); !found {
				queue.ParkedTypes = slices.Insert(queue.ParkedTypes, at, task.Type)
			}
		}
		switch {
		case task.Subqueue() != row.Name:
		case task.State == holdfast.Running:
			queue.Running++
		case task.State == holdfast.Dead:
			queue.Dead++
		case task.Blocked():
			queue.Ready++
		case task.runnable(now):
			queue.Ready, queue.Due = queue.Ready+1, queue.Due+1
			queue.OldestDue = max(queue.OldestDue, now.Sub(task.NextRunAt))
		case task.State == holdfast.Ready:
			queue.Ready++
		}
	}
	return queue
}
