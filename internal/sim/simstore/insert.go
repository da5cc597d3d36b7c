package simstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Insert implements store.Inserter. Lanes that this client has not seen before are stored in an effect of their own.
func (c *Client) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	own, err := storable(tasks)
	if err == nil {
		err = c.storeLanes(ctx, own)
	}
	if err != nil {
		return store.Inserted{}, err
	}
	var inserted store.Inserted
	err = c.do(ctx, Step{Op: "Insert", count: len(own)}, func(now time.Time) error {
		inserted = c.store.insert(own, now, grace)
		return nil
	})
	if err != nil {
		return store.Inserted{}, err
	}
	return inserted, nil
}

// InsertTx implements store.Inserter. It always fails: there is no SQL here that a caller's transaction could speak.
func (c *Client) InsertTx(context.Context, store.Tx, []holdfast.NewTask, time.Duration) (store.Inserted, error) {
	return store.Inserted{}, errors.New("insert tasks into a transaction: a store in memory has no SQL transactions")
}

// storable copies the tasks, and refuses what no store can hold.
func storable(tasks []holdfast.NewTask) ([]holdfast.NewTask, error) {
	own := slices.Clone(tasks)
	for i := range own {
		task := &own[i]
		if task.At.UTC().Year() > 9999 {
			return nil, fmt.Errorf("Insert: %w: the year of %s is beyond 9999", holdfast.ErrInvalid, task.At)
		}
		if task.Payload = slices.Clone(task.Payload); len(task.Payload) == 0 {
			task.Payload = json.RawMessage("null")
		}
	}
	return own, nil
}

// storeLanes stores the lanes this client has not stored before. That it remembers them is part of how the
// real adapter behaves: when a failover loses them, the next insert stores them again.
func (c *Client) storeLanes(ctx context.Context, tasks []holdfast.NewTask) error {
	var unseen []string
	c.mu.Lock()
	for i := range tasks {
		if lane := tasks[i].Lane; !c.lanes[lane] && !slices.Contains(unseen, lane) {
			unseen = append(unseen, lane)
		}
	}
	c.mu.Unlock()
	if len(unseen) == 0 {
		return nil
	}
	if err := c.addLanes(ctx, "Insert lanes", unseen); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes == nil {
		c.lanes = make(map[string]bool)
	}
	for _, lane := range unseen {
		c.lanes[lane] = true
	}
	return nil
}

func (c *Client) addLanes(ctx context.Context, op string, names []string) error {
	return c.do(ctx, Step{Op: op, names: names}, func(time.Time) error {
		c.store.db.addLanes(names)
		return nil
	})
}

// insert stores tasks. One that is refused uses up an id, too.
func (s *Store) insert(tasks []holdfast.NewTask, now time.Time, grace time.Duration) store.Inserted {
	d := &s.db
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks))}
	for i := range tasks {
		d.last.task++
		id := holdfast.TaskID(d.last.task)
		if holder := d.holder(tasks[i].Unique); holder != 0 {
			inserted.Tasks[i] = store.InsertedTask{ID: holder, Duplicate: true}
			continue
		}
		inserted.Tasks[i].ID = id
		d.addLanes([]string{tasks[i].Lane})
		d.tasks = append(d.tasks, newTask(id, &tasks[i], now))
		task := &d.tasks[len(d.tasks)-1]
		if task.Ticketed() {
			cover(&inserted.Receipts, task)
		}
		if s.observe != nil {
			s.observe(Change{Op: "Insert", After: task})
		}
	}
	slices.SortFunc(inserted.Receipts, func(a, b store.Receipt) int { return cmp.Compare(a.Lane, b.Lane) })
	for i := range inserted.Receipts {
		d.last.receipt++
		inserted.Receipts[i].ID = d.last.receipt
		row := Receipt{Receipt: inserted.Receipts[i], CreatedAt: now, PublishAfter: later(now, grace)}
		row.Tickets = slices.Clone(row.Tickets)
		d.receipts = append(d.receipts, row)
	}
	return inserted
}

// holder returns the task that has a unique key, 0 if it is free.
func (d *database) holder(key string) holdfast.TaskID {
	if key == "" {
		return 0
	}
	for i := range d.tasks {
		if d.tasks[i].Unique == key {
			return d.tasks[i].ID
		}
	}
	return 0
}

func newTask(id holdfast.TaskID, wanted *holdfast.NewTask, now time.Time) Task {
	task := Task{Task: holdfast.Task{
		ID: id, Type: wanted.Type, Lane: wanted.Lane, State: holdfast.Ready, Payload: wanted.Payload, Unique: wanted.Unique,
		Attempt: 1, MaxAttempts: wanted.MaxAttempts, CreatedAt: now, NextRunAt: now,
	}}
	switch at := wanted.At.UTC().Truncate(time.Microsecond); {
	case wanted.Delay > 0:
		task.DueAt = later(now, wanted.Delay)
	case !wanted.At.IsZero() && at.After(now):
		task.DueAt = at
	default:
		task.TicketedAt = now
		return task
	}
	task.NextRunAt = task.DueAt
	return task
}

// cover adds a task's first ticket to the receipt of its lane.
func cover(receipts *[]store.Receipt, task *Task) {
	ticket := message.Ticket{Task: task.ID, Attempt: 1}
	for i := range *receipts {
		if receipt := &(*receipts)[i]; receipt.Lane == task.Lane {
			receipt.Tickets = append(receipt.Tickets, ticket)
			return
		}
	}
	*receipts = append(*receipts, store.Receipt{Lane: task.Lane, Tickets: []message.Ticket{ticket}})
}

// Discharge implements store.Inserter. A receipt that somebody is publishing just now is left to him, and perhaps published once more.
func (c *Client) Discharge(ctx context.Context, receipts []int64) error {
	if len(receipts) == 0 {
		return nil
	}
	ids := slices.Clone(receipts)
	return c.do(ctx, Step{Op: "Discharge", ids: ids}, func(now time.Time) error {
		d := &c.store.db
		d.receipts = slices.DeleteFunc(d.receipts, func(r Receipt) bool { return slices.Contains(ids, r.ID) && !r.lock.holds(now) })
		return nil
	})
}
