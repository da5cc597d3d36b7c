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

// SaveData implements store.Effects.
func (c *Client) SaveData(ctx context.Context, by store.Fence, values []store.Datum) error {
	if len(values) == 0 {
		return nil
	}
	own := slices.Clone(values)
	return c.do(ctx, Step{Op: "SaveData", ids: []int64{int64(by.Task)}}, func(now time.Time) error {
		task := c.store.db.task(by.Task)
		if task == nil || task.State != holdfast.Running || task.Attempt != by.Attempt || task.Worker != by.Worker {
			return fmt.Errorf("%w: the attempt %d of task %s does not run any more", store.ErrFenced, by.Attempt, by.Task)
		}
		c.store.changing(task)
		for _, value := range own {
			task.put(value, by.Attempt, now)
		}
		c.store.changed("SaveData", task, nil)
		return nil
	})
}

// put stores a value. It copies the list, because a snapshot may share it.
func (t *Task) put(value store.Datum, attempt int, now time.Time) {
	value = store.Datum{Task: t.ID, Name: value.Name, Attempt: attempt, Value: slices.Clone(value.Value), At: now}
	t.Data = slices.DeleteFunc(slices.Clone(t.Data), func(d store.Datum) bool { return d.Name == value.Name })
	t.Data = append(t.Data, value)
	slices.SortFunc(t.Data, func(a, b store.Datum) int { return strings.Compare(a.Name, b.Name) })
}

// TaskData implements store.Effects.
func (c *Client) TaskData(ctx context.Context, tasks []holdfast.TaskID, names ...string) (found []store.Datum, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	ids, names := slices.Clone(tasks), slices.Clone(names)
	slices.SortFunc(ids, cmp.Compare)
	err = c.do(ctx, Step{Op: "TaskData"}, func(time.Time) error {
		for _, id := range slices.Compact(ids) {
			task := c.store.db.task(id)
			if task == nil {
				continue
			}
			for _, value := range task.Data {
				if len(names) == 0 || slices.Contains(names, value.Name) {
					found = append(found, value)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// storeEffects stores the effects of an accepted move.
func (s *Store) storeEffects(move *holdfast.Transition, now time.Time) {
	if move.Effects == nil {
		return
	}
	if task := s.db.task(move.Task); len(move.Effects.Output) > 0 {
		task.put(store.Datum{Name: store.OutputData, Value: move.Effects.Output}, move.Attempt, now)
	}
	if len(move.Effects.Next) > 0 {
		s.insert(move.Effects.Next, now, 0)
	}
}

// Committed is a transaction of a caller that commits together with the effect of ApplyTx. No other step comes between
// the two, as none can change the row of the task between them in a real store.
type Committed struct{ store.Tx }
