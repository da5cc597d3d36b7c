package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
)

// Insert implements store.Inserter. A separate effect stores the queues that this client has not stored before.
func (c *Client) Insert(ctx context.Context, tasks []holdfast.NewTask, grace time.Duration) (store.Inserted, error) {
	if len(tasks) == 0 {
		return store.Inserted{}, nil
	}
	own, err := storable(tasks)
	if err == nil {
		err = c.storeQueues(ctx, own)
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

// InsertTx implements store.Inserter. It always returns an error, because the store in memory has no SQL transactions.
func (c *Client) InsertTx(context.Context, store.Tx, []holdfast.NewTask, time.Duration) (store.Inserted, error) {
	return store.Inserted{}, errors.New("insert tasks into a transaction: a store in memory has no SQL transactions")
}

// storable returns a copy of the tasks, or an error if no store can hold one of them.
func storable(tasks []holdfast.NewTask) ([]holdfast.NewTask, error) {
	own := slices.Clone(tasks)
	for i := range own {
		task := &own[i]
		if task.At.UTC().Year() > 9999 {
			return nil, fmt.Errorf("Insert: %w: the year of %s is beyond 9999", holdfast.ErrInvalid, task.At)
		}
		task.Tags = slices.Clone(task.Tags)
		if task.Payload = slices.Clone(task.Payload); len(task.Payload) == 0 {
			task.Payload = json.RawMessage("null")
		}
	}
	return own, nil
}

// storeQueues stores the queues that this client has not stored before. Like the real adapter, the client remembers
// these queues. If a failover loses them, the next insert stores them again.
func (c *Client) storeQueues(ctx context.Context, tasks []holdfast.NewTask) error {
	var unseen []string
	c.mu.Lock()
	for i := range tasks {
		if queue := tasks[i].Subqueue(); !c.queues[queue] && !slices.Contains(unseen, queue) {
			unseen = append(unseen, queue)
		}
	}
	c.mu.Unlock()
	if len(unseen) == 0 {
		return nil
	}
	if err := c.addQueues(ctx, "Insert queues", unseen); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = make(map[string]bool)
	}
	for _, queue := range unseen {
		c.queues[queue] = true
	}
	return nil
}

func (c *Client) addQueues(ctx context.Context, op string, names []string) error {
	return c.do(ctx, Step{Op: op, names: names}, func(time.Time) error {
		c.store.db.addQueues(names)
		return nil
	})
}

// insert stores tasks. A duplicate also uses up an id.
func (s *Store) insert(tasks []holdfast.NewTask, now time.Time, grace time.Duration) store.Inserted {
	return s.insertMembers(0, tasks, now, grace)
}

// insertMembers is insert for members of a plan, if plan is not 0.
func (s *Store) insertMembers(plan store.ID, tasks []holdfast.NewTask, now time.Time, grace time.Duration) store.Inserted {
	d := &s.db
	inserted := store.Inserted{Tasks: make([]store.InsertedTask, len(tasks))}
	keys := d.keyStates(ordered.Keys(tasks))
	before := maps.Clone(keys)
	places := ordered.Places(tasks, keys)
	for i := range tasks {
		d.last.task++
		id := holdfast.TaskID(d.last.task)
		d.release(&tasks[i], now)
		if holder := d.holder(tasks[i].Unique); holder != nil {
			inserted.Tasks[i] = store.InsertedTask{ID: holder.ID, Duplicate: true, State: holder.State}
			continue
		}
		if kept := d.keptKey(tasks[i].Unique); kept != nil && kept.until.After(now) {
			inserted.Tasks[i] = store.InsertedTask{ID: kept.task, Duplicate: true, State: d.state(kept.task)}
			continue
		}
		inserted.Tasks[i].ID = id
		d.addQueues([]string{tasks[i].Subqueue()})
		d.tasks = append(d.tasks, newTask(id, &tasks[i], now))
		task := &d.tasks[len(d.tasks)-1]
		task.Batch = holdfast.BatchID(plan)
		d.placeOrdered(task, places[i])
		d.placeTopical(task, places[i] != 0, now)
		d.stored(task)
		if tasks[i].KeepsKey() {
			d.freeKey(task.Unique)
			d.kept = append(d.kept, keptKey{task.Unique, id, now, later(now, tasks[i].UniqueFor)})
		}
		if task.Ticketed() {
			addToEntry(&inserted.Entries, task)
		}
		if s.observe != nil {
			s.observe(Change{Op: "Insert", After: task})
		}
	}
	slices.SortFunc(inserted.Entries, func(a, b store.OutboxEntry) int { return cmp.Compare(a.Queue, b.Queue) })
	for i := range inserted.Entries {
		d.last.entry++
		inserted.Entries[i].ID = d.last.entry
		row := OutboxEntry{OutboxEntry: inserted.Entries[i], CreatedAt: now, PublishAfter: later(now, grace)}
		row.Tickets = slices.Clone(row.Tickets)
		d.entries = append(d.entries, row)
	}
	for _, key := range undecided(tasks, inserted.Tasks, before) {
		s.moveKey(key, now)
	}
	return inserted
}

// holder returns the task that has a unique key, or 0 if there is none.
func (d *database) holder(key string) *Task {
	if key == "" {
		return nil
	}
	for i := range d.tasks {
		if d.tasks[i].Unique == key {
			return &d.tasks[i]
		}
	}
	return nil
}

// keptKey returns the row of a unique key that is kept, or nil if there is none.
func (d *database) keptKey(key string) *keptKey {
	if i := slices.IndexFunc(d.kept, func(k keptKey) bool { return k.key == key }); i >= 0 && key != "" {
		return &d.kept[i]
	}
	return nil
}

// freeKey deletes the row of a unique key that is kept.
func (d *database) freeKey(key string) {
	d.kept = slices.DeleteFunc(d.kept, func(k keptKey) bool { return k.key == key })
}

// state returns the state of a task, or none if there is no such task.
func (d *database) state(id holdfast.TaskID) holdfast.State {
	if task := d.task(id); task != nil {
		return task.State
	}
	return ""
}

// release removes the unique key of a new task from the task that no longer has a right to it. That task may be deleted.
func (d *database) release(wanted *holdfast.NewTask, now time.Time) {
	holder, kept := d.holder(wanted.Unique), d.keptKey(wanted.Unique)
	var createdAt time.Time
	switch {
	case holder != nil:
		createdAt = holder.CreatedAt
	case kept != nil:
		createdAt = kept.createdAt
	default:
		return
	}
	ended := holder == nil || holder.State != holdfast.Ready && holder.State != holdfast.Running
	if wanted.UniqueWhileOpen && ended || wanted.UniqueFor > 0 && now.Sub(createdAt) >= wanted.UniqueFor {
		d.freeKey(wanted.Unique)
		if holder != nil {
			holder.Unique = ""
		}
	}
}

func newTask(id holdfast.TaskID, wanted *holdfast.NewTask, now time.Time) Task {
	task := Task{Task: holdfast.Task{
		ID: id, Type: wanted.Type, Queue: wanted.Queue, Priority: wanted.Priority, State: holdfast.Ready, Payload: wanted.Payload, Unique: wanted.Unique, Key: wanted.Key, Ordered: wanted.Ordered, Topic: wanted.Topic, Trace: wanted.Trace,
		Attempt: 1, MaxAttempts: wanted.MaxAttempts, CreatedAt: now, NextRunAt: now, Tags: wanted.Tags,
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

// addToEntry adds the first ticket of a task to the outbox entry of its queue.
func addToEntry(entries *[]store.OutboxEntry, task *Task) {
	ticket := message.Ticket{Task: task.ID, Attempt: 1}
	for i := range *entries {
		if entry := &(*entries)[i]; entry.Queue == task.Subqueue() {
			entry.Tickets = append(entry.Tickets, ticket)
			return
		}
	}
	*entries = append(*entries, store.OutboxEntry{Queue: task.Subqueue(), Tickets: []message.Ticket{ticket}})
}

// CommittedOutbox implements store.Inserter.
func (c *Client) CommittedOutbox(ctx context.Context, entries []int64) ([]store.OutboxEntry, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	ids := slices.Clone(entries)
	var committed []store.OutboxEntry
	err := c.do(ctx, Step{Op: "CommittedOutbox", ids: ids}, func(now time.Time) error {
		for _, row := range c.store.db.entries {
			if row.PublishAfter.After(now) && slices.Contains(ids, row.ID) {
				entry := row.OutboxEntry
				entry.Tickets = slices.Clone(entry.Tickets)
				committed = append(committed, entry)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return committed, nil
}

// DeleteOutbox implements store.Inserter. It skips an outbox entry that another call is publishing; that call may
// publish it again.
func (c *Client) DeleteOutbox(ctx context.Context, entries []int64) error {
	if len(entries) == 0 {
		return nil
	}
	ids := slices.Clone(entries)
	return c.do(ctx, Step{Op: "DeleteOutbox", ids: ids}, func(now time.Time) error {
		d := &c.store.db
		d.entries = slices.DeleteFunc(d.entries, func(r OutboxEntry) bool { return slices.Contains(ids, r.ID) && !r.lock.holds(now) })
		return nil
	})
}
