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

// Task returns a task with its payload and its idempotency key. It returns an ErrNotFound if the store has no task with
// that id.
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

// moveTries is how often Move settles a task that changes between its read and its transition.
const moveTries = 5

// Move applies an event that a person has requested to one task: EventRequeue, EventCancel, EventArchive or
// EventRestore. As for every transition, holdfast.Settle decides whether it is allowed. Move returns the task after the
// event. It returns an ErrNotFound if the store has no such task, and an ErrConflict if the state of the task does not
// allow the event.
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

// moveAll settles one batch of tasks, applies the transitions, and returns how many the store accepted.
func (b *Backend) moveAll(ctx context.Context, tasks []holdfast.Task, event holdfast.Event) (int, error) {
	moves := make([]holdfast.Transition, 0, len(tasks))
	for _, task := range tasks {
		policy := b.Config.Settings().For(task.Type).Policy
		move, err := holdfast.Settle(task, holdfast.Requested(event), time.Now(), policy)
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

// Rebuild declares the objects that are missing in the broker, as a janitor does, and returns their names. It returns
// an ErrConflict that names an AMQP queue if the queue exists with other arguments. In that case it has declared the
// missing objects, unless the marker is missing too.
func (b *Backend) Rebuild(ctx context.Context) (missing []string, err error) {
	if missing, _, err = janitor.Rebuild(ctx, b.Store, b.Broker, b.Topology); err != nil {
		return missing, err
	}
	queues, err := b.Store.QueueNames(ctx)
	if err != nil {
		return missing, err
	}
	err = b.Topology.Declare(ctx, b.Broker, queues) // everything exists, so this only compares arguments
	return missing, err
}

// bulkBatch is how many tasks MoveAll moves in one step.
const bulkBatch = 500

// MoveAll applies an event that a person has requested to all tasks that match the filter, newest first. It calls
// progress after each batch. f.States must name states that allow the event. f.Limit is the most tasks to move; 0 means
// all. MoveAll skips tasks that change meanwhile. It returns the number of moved tasks, also with an error.
func (b *Backend) MoveAll(ctx context.Context, f store.Filter, event holdfast.Event, progress func(done int)) (done int, err error) {
	for _, state := range f.States {
		if !holdfast.Allowed(event, state) {
			return 0, fmt.Errorf("%w: tasks that are %s cannot %s", holdfast.ErrConflict, state, event)
		}
	}
	if len(f.States) == 0 {
		return 0, errors.New("move tasks: the filter has no states")
	}
	limit := f.Limit
	for limit == 0 || done < limit {
		f.Limit = bulkBatch
		if limit > 0 {
			f.Limit = min(bulkBatch, limit-done)
		}
		page, err := b.Store.List(ctx, f)
		if err != nil {
			return done, err
		}
		n, err := b.moveAll(ctx, page.Tasks, event)
		if done += n; err != nil {
			return done, err
		}
		progress(done)
		if f.Before = page.Next; f.Before == 0 {
			break
		}
	}
	return done, nil
}

// Await polls the store until the task is in a final state, and returns the task. If ctx ends first, Await returns the
// newest version of the task that it has read, and the error of ctx.
func (b *Backend) Await(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	const every = 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var newest holdfast.Task
	for {
		task, err := b.Store.Task(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return newest, ctx.Err()
		case err != nil || task.State.Final():
			return task, err
		}
		newest = task
		select {
		case <-ctx.Done():
			return newest, ctx.Err()
		case <-tick.C:
		}
	}
}
