package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
)

// orderedKey is a key with open ordered tasks.
type orderedKey struct {
	key    string
	active holdfast.TaskID
	doomed bool
}

func (d *database) orderedKey(key string) *orderedKey {
	if i := slices.IndexFunc(d.keys, func(k orderedKey) bool { return k.key == key }); i >= 0 {
		return &d.keys[i]
	}
	return nil
}

// waiting returns the tasks of a key that wait for their turns, in order.
func (d *database) waiting(key string) (tasks []*Task) {
	for i := range d.tasks {
		if task := &d.tasks[i]; task.Waits && task.Key == key {
			tasks = append(tasks, task)
		}
	}
	return tasks
}

// keyStates returns the states of keys before ordered tasks are stored.
func (d *database) keyStates(keys []string) map[string]ordered.Key {
	states := make(map[string]ordered.Key, len(keys))
	for _, key := range keys {
		state := ordered.Key{Waiting: len(d.waiting(key)) > 0}
		if row := d.orderedKey(key); row != nil {
			active := d.task(row.active)
			state.Active, state.Doomed = row.active != 0, row.doomed && active != nil && active.State == holdfast.Dead
		}
		states[key] = state
	}
	return states
}

// placeOrdered gives a new task its place in the order of its key.
func (d *database) placeOrdered(task *Task, place ordered.Place) {
	if place == 0 {
		return
	}
	task.Order = ordered.Ordered
	row := d.orderedKey(task.Key)
	if row == nil {
		d.keys = append(d.keys, orderedKey{key: task.Key})
		row = &d.keys[len(d.keys)-1]
	}
	switch place {
	case ordered.Leads:
		row.active = task.ID
	case ordered.Waits:
		task.Waits, task.DueAt, task.TicketedAt = true, store.BlockedUntil, time.Time{}
	case ordered.Dies:
		task.Order = ordered.Doomed
	}
}

// HoldKeys makes the store call held each time that it is about to start the next task of a key, inside the same
// effect. If held returns true, the key is locked, as by an open transaction of another program that stores tasks of
// the key. Then a later call of ReleaseBlocked starts the task.
func (s *Store) HoldKeys(held func(key string) bool) { s.held = held }

// locked reports whether another transaction has locked a key.
func (s *Store) locked(key string) bool { return s.held != nil && s.held(key) }

// ActiveTask returns the active task of a key, or 0.
func (s *Store) ActiveTask(key string) holdfast.TaskID {
	if row := s.db.orderedKey(key); row != nil {
		return row.active
	}
	return 0
}

// IsLeft reports whether the store must still check a key that was locked when its active task ended.
func (s *Store) IsLeft(key string) bool { return slices.Contains(s.db.checks, key) }

// moveKeys starts the next tasks of those keys whose active tasks have ended. It leaves locked keys to checkKeys.
func (s *Store) moveKeys(keys []string, now time.Time) {
	for _, key := range keys {
		if s.locked(key) {
			s.db.checks = append(slices.Clip(s.db.checks), key)
		} else {
			s.moveKey(key, now)
		}
	}
}

// checkKeys checks the first keys that moveKeys left. It returns the number of tasks that it made due, and whether some
// keys are still locked.
func (s *Store) checkKeys(limit int, now time.Time) (started int, waiting bool) {
	checks := s.db.checks
	limit = min(limit, len(checks))
	left := slices.Clone(checks[limit:])
	for _, key := range checks[:limit] {
		if s.locked(key) {
			left, waiting = append(left, key), true
		} else {
			started += s.moveKey(key, now)
		}
	}
	s.db.checks = left
	return started, waiting
}

// undecided returns the keys of stored tasks whose active tasks the insert could not choose. Either tasks of the key
// wait without an active task, or the key has a duplicate, which may have made another task wait.
func undecided(tasks []holdfast.NewTask, stored []store.InsertedTask, before map[string]ordered.Key) (keys []string) {
	for i := range tasks {
		if t := &tasks[i]; t.Ordered && (stored[i].Duplicate || before[t.Key].Waiting && !before[t.Key].Active) {
			keys = append(keys, t.Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func (s *Store) moveKey(key string, now time.Time) int {
	d := &s.db
	waiting := d.waiting(key)
	row := d.orderedKey(key)
	if row == nil {
		if len(waiting) == 0 {
			return 0
		}
		d.keys = append(d.keys, orderedKey{key: key})
		row = &d.keys[len(d.keys)-1]
	}
	active := ordered.Active{}
	if task := d.task(row.active); task != nil {
		active = ordered.Active{State: task.State, Mark: task.Order, Waits: task.Waits}
	}
	holds, dooms := active.Holds()
	row.doomed = dooms
	switch {
	case dooms:
		for _, task := range waiting {
			s.startOrdered(task, ordered.Doomed, now)
		}
		return len(waiting)
	case holds:
	case len(waiting) == 0:
		d.keys = slices.DeleteFunc(d.keys, func(k orderedKey) bool { return k.key == key })
	default:
		row.active = waiting[0].ID
		s.startOrdered(waiting[0], ordered.Ordered, now)
		return 1
	}
	return 0
}

// startOrdered makes a task due, or adds an outbox entry for it. A task without a delay starts at once. Its NextRunAt
// is in the future if the clock was set back after the task was stored.
func (s *Store) startOrdered(task *Task, mark ordered.Mark, now time.Time) {
	s.changing(task)
	if !task.NextRunAt.After(task.CreatedAt) {
		task.NextRunAt = earlier(task.NextRunAt, now)
	}
	task.Waits, task.Order, task.DueAt = false, mark, now
	switch {
	case task.NextRunAt.After(now):
		task.DueAt = task.NextRunAt
	case task.Topic != "": // it is due, and then waits for a slot
	case task.Attempt == 1: // an outbox entry has tickets of first attempts only
		task.DueAt, task.TicketedAt = time.Time{}, now
		s.addEntry(store.OutboxEntry{Queue: task.Subqueue(), Tickets: []message.Ticket{{Task: task.ID, Attempt: 1}}}, now)
	}
	if s.observe != nil { // no operation has made this change
		s.observe(Change{Op: "Order", Before: &s.before, After: task})
	}
}

// OrderOf implements store.Order.
func (c *Client) OrderOf(ctx context.Context, id holdfast.TaskID) (place store.KeyPlace, err error) {
	err = c.do(ctx, Step{Op: "OrderOf"}, func(time.Time) error {
		d := &c.store.db
		task := d.task(id)
		if task == nil || !task.Ordered {
			return fmt.Errorf("%w: task %s has no place in the order of a key", holdfast.ErrNotFound, id)
		}
		row := d.orderedKey(task.Key)
		if row == nil || row.active != id && !task.Waits {
			return fmt.Errorf("%w: task %s has no place in the order of a key", holdfast.ErrNotFound, id)
		}
		place = store.KeyPlace{OrderedKey: d.describe(*row), Ahead: -1}
		if row.active != id {
			place.Ahead = 0
			for _, other := range d.waiting(task.Key) {
				if other.ID < id {
					place.Ahead++
				}
			}
		}
		return nil
	})
	return place, err
}

func (d *database) describe(row orderedKey) store.OrderedKey {
	k := store.OrderedKey{Key: row.key, Active: row.active, Waiting: len(d.waiting(row.key)), Doomed: row.doomed}
	if task := d.task(row.active); task != nil {
		k.State, k.Since = task.State, task.CreatedAt
		if task.State == holdfast.Dead {
			k.Since = task.FinishedAt
		}
	}
	return k
}

// OrderedKeys implements store.Order.
func (c *Client) OrderedKeys(ctx context.Context, onlyDead bool, limit int) (keys []store.OrderedKey, err error) {
	keys = []store.OrderedKey{}
	err = c.do(ctx, Step{Op: "OrderedKeys"}, func(time.Time) error {
		for _, row := range c.store.db.keys {
			k := c.store.db.describe(row)
			if k.State == holdfast.Dead || !onlyDead && k.Waiting > 0 {
				keys = append(keys, k)
			}
		}
		return nil
	})
	dead := func(k store.OrderedKey) int {
		if k.State == holdfast.Dead {
			return 0
		}
		return 1
	}
	slices.SortFunc(keys, func(a, b store.OrderedKey) int {
		return cmp.Or(cmp.Compare(dead(a), dead(b)), cmp.Compare(a.Key, b.Key))
	})
	return keys[:min(limit, len(keys))], err
}
