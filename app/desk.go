package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
)

// Task returns a task with its payload and its idempotency key. Returns ErrNotFound if the store has no task of that id.
func (b *Backend) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	task, err := b.Store.Task(ctx, id)
	if err != nil {
		return holdfast.Task{}, err
	}
	incarnation, err := b.Store.Incarnation(ctx)
	if err != nil {
		return holdfast.Task{}, err
	}
	task.Key = task.WithIncarnation(incarnation).IdempotencyKey()
	return task, nil
}

// moveTries is how often a person's request is judged anew because the task
// moved between the look and the move.
const moveTries = 5

// Move does what a person asks of one task: EventRequeue, EventCancel, EventArchive or
// EventRestore. It goes through the same judge as every other move. ErrNotFound if
// there is no such task, ErrConflict if its state does not allow the event.
func (b *Backend) Move(ctx context.Context, id holdfast.TaskID, event holdfast.Event) (holdfast.Task, error) {
	for range moveTries {
		task, err := b.Store.Task(ctx, id)
		if err != nil {
			return holdfast.Task{}, err
		}
		moved, err := b.moveAll(ctx, []holdfast.Task{task}, event)
		if err != nil {
			return task, err
		}
		if moved == 1 {
			return b.Store.Task(ctx, id)
		}
	}
	return holdfast.Task{}, fmt.Errorf("%w: task %s keeps changing; try again", holdfast.ErrConflict, id)
}

// moveAll judges and writes one batch and returns how many were accepted.
func (b *Backend) moveAll(ctx context.Context, tasks []holdfast.Task, event holdfast.Event) (int, error) {
	moves := make([]holdfast.Transition, 0, len(tasks))
	for _, task := range tasks {
		policy := b.Config.Settings().For(task.Type).Policy
		move, err := holdfast.Settle(task, holdfast.Asked(event), time.Now(), policy)
		if err != nil {
			return 0, err
		}
		moves = append(moves, move)
	}
	accepted, err := b.Store.Apply(ctx, moves)
	n := 0
	for _, ok := range accepted {
		if ok {
			n++
		}
	}
	return n, err
}

// Rebuild makes what is missing in the broker, as a janitor does, and returns its names. A
// queue that exists with other arguments is an ErrConflict that names it; what was missing
// is made all the same.
func (b *Backend) Rebuild(ctx context.Context) (missing []string, err error) {
	if missing, _, err = janitor.Rebuild(ctx, b.Store, b.Broker, b.Topology); err != nil {
		return missing, err
	}
	lanes, err := b.Store.LaneNames(ctx)
	if err != nil {
		return missing, err
	}
	_, err = b.Topology.Declare(ctx, b.Broker, lanes) // everything exists: this compares
	return missing, err
}

const bulkBatch = 500

// MoveAll does what a person asks of every task that matches the filter when it is called,
// newest first, and tells progress after each batch. f.States must allow the event; f.Limit bounds
// the number of tasks, 0 means all. Tasks that move on meanwhile are skipped. After an
// error, done counts those that were moved.
func (b *Backend) MoveAll(ctx context.Context, f store.Filter, event holdfast.Event, progress func(done int)) (done int, err error) {
	for _, state := range f.States {
		if !holdfast.Allowed(event, state) {
			return 0, fmt.Errorf("%w: tasks that are %s cannot %s", holdfast.ErrConflict, state, event)
		}
	}
	if len(f.States) == 0 {
		return 0, errors.New("app: MoveAll needs states")
	}
	limit := f.Limit
	for limit == 0 || done < limit {
		f.Limit = bulkBatch
		if limit > 0 {
			f.Limit = min(bulkBatch, limit-done)
		}
		tasks, err := b.Store.List(ctx, f)
		if err != nil {
			return done, err
		}
		if len(tasks) == 0 {
			return done, nil
		}
		n, err := b.moveAll(ctx, tasks, event)
		if done += n; err != nil {
			return done, err
		}
		progress(done)
		f.Before = tasks[len(tasks)-1].ID // ids only fall, so nothing is met twice
	}
	return done, nil
}

// Await polls until the task is in a final state and returns it. It ends with the context's
// error if that ends first, together with the task as last seen.
func (b *Backend) Await(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	const every = 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var seen holdfast.Task
	for {
		task, err := b.Store.Task(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return seen, ctx.Err()
		case err != nil || task.State.Final():
			return task, err
		}
		seen = task
		select {
		case <-ctx.Done():
			return seen, ctx.Err()
		case <-tick.C:
		}
	}
}
