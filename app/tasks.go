package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/explain"
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
	task.ImportedKey = task.WithIncarnation(incarnation).IdempotencyKey()
	return task, nil
}

// TaskData returns the values that the attempts of a task have stored besides their results, in the order of their
// names. It returns only values with one of the names, or all values if names is empty.
func (b *Backend) TaskData(ctx context.Context, id holdfast.TaskID, names ...string) ([]store.Datum, error) {
	return b.Store.TaskData(ctx, []holdfast.TaskID{id}, names...)
}

// Output returns the output of a task. It returns an ErrNotFound if the store has no task with that id, or if the task
// has no output.
func (b *Backend) Output(ctx context.Context, id holdfast.TaskID) (json.RawMessage, error) {
	data, err := b.TaskData(ctx, id, store.OutputData)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		return data[0].Value, nil
	}
	task, err := b.Store.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: task %s has no output; its state is %s", holdfast.ErrNotFound, id, task.State)
}

// Explain returns why a task does not run and what happens to it next. It returns an ErrNotFound if the store has no
// task with that id.
func (b *Backend) Explain(ctx context.Context, id holdfast.TaskID) (explain.Explanation, error) {
	now, err := b.ReadSettings(ctx)
	if err != nil {
		return explain.Explanation{}, err
	}
	return explain.Read(ctx, b.Store, id, now.Config.Settings(), b.PruneAges())
}

// PruneAges returns the ages after which a janitor with the settings of this process deletes rows.
func (b *Backend) PruneAges() store.PruneAges {
	j := b.Config.Janitor
	return store.PruneAges{Done: j.KeepDone, Cancelled: j.KeepCancelled, Archived: j.KeepArchived, Workers: j.KeepWorkers, Answers: store.KeepAnswers}
}

// tries is how often a change is computed before it fails, because its record changes between the read and the write.
const tries = 5

// Act applies the action of a person to one task: retry, cancel, archive, restore or purge. holdfast.Settle decides
// whether the state allows the action. Act returns the task after the change; a purged task has its last state. It
// returns an ErrNotFound if the store has no such task, and an ErrConflict if the state of the task does not allow the
// action.
//
// Before a change, Act calls each check with the task that it would change. If a check returns an error, Act changes
// nothing and returns that error.
func (b *Backend) Act(ctx context.Context, by store.Actor, id holdfast.TaskID, action store.Action, checks ...func(holdfast.Task) error) (holdfast.Task, error) {
	return b.change(ctx, by, id, checks, func(task holdfast.Task) (store.Change, error) { return change.Of(action, task) })
}

// change reads a task, checks it, computes a change and makes it. If the task has changed meanwhile, it begins again.
func (b *Backend) change(
	ctx context.Context, by store.Actor, id holdfast.TaskID, checks []func(holdfast.Task) error, compute func(holdfast.Task) (store.Change, error),
) (holdfast.Task, error) {
	for range tries {
		task, err := b.Store.Task(ctx, id)
		if err != nil {
			return holdfast.Task{}, err
		}
		for _, check := range checks {
			if err := check(task); err != nil {
				return task, err
			}
		}
		requested, err := compute(task)
		if err != nil {
			return task, err
		}
		made, err := b.Store.Change(ctx, by, []store.Change{requested})
		switch {
		case err != nil:
			return task, err
		case made[0] && requested.Action == store.ActionPurge:
			return task, nil
		case made[0]:
			return b.Store.Task(ctx, id)
		}
	}
	return holdfast.Task{}, fmt.Errorf("%w: task %s keeps changing; try again", holdfast.ErrConflict, id)
}

// Edit gives a task the values of a document; see change.Document. seen is the task that the person has seen: if its
// state or attempt has changed since, nothing changes and Edit returns an ErrConflict. It returns an ErrInvalid if
// PlanEdit does. Edit returns the task after the change.
func (b *Backend) Edit(ctx context.Context, by store.Actor, seen holdfast.Task, to change.Document, validation change.Validation) (holdfast.Task, error) {
	edit, err := b.PlanEdit(ctx, seen, to, validation)
	if err != nil {
		return seen, err
	}
	made, err := b.Store.Change(ctx, by, []store.Change{edit})
	if err != nil {
		return seen, err
	}
	task, err := b.Store.Task(ctx, seen.ID)
	if err == nil && !made[0] {
		err = fmt.Errorf("%w: task %s has changed since it was read; it is now %s at attempt %d", holdfast.ErrConflict, task.ID, task.State, task.Attempt)
	}
	return task, err
}

// PlanEdit returns the change that Edit would make. It changes nothing. The payload may be as long as a producer
// allows. It must fit the JSON Schema of its type and pass Backend.Check, unless validation is change.SkipValidation.
func (b *Backend) PlanEdit(ctx context.Context, seen holdfast.Task, to change.Document, validation change.Validation) (store.Change, error) {
	schemas, err := b.Store.TypeSchemas(ctx, seen.Type)
	if err != nil {
		return store.Change{}, err
	}
	return change.Edit(seen, to, change.Rules{MaxPayload: b.Config.Producer.MaxPayload, Schemas: schemas, Check: b.Check, Validation: validation})
}

// Undo takes back the last change that a person made to a task: a retry that no worker has claimed, an archive, or an
// edit. It returns the task after the undo, or an ErrConflict if the last change cannot be taken back. Undo calls
// checks as Act does.
func (b *Backend) Undo(ctx context.Context, by store.Actor, id holdfast.TaskID, checks ...func(holdfast.Task) error) (holdfast.Task, error) {
	return b.change(ctx, by, id, checks, func(task holdfast.Task) (store.Change, error) {
		entries, err := b.Store.AuditLog(ctx, store.AuditFilter{Task: id, Limit: 1})
		if err != nil {
			return store.Change{}, err
		}
		if len(entries) == 0 {
			return store.Change{}, fmt.Errorf("%w: nothing to undo: no person has changed task %s", holdfast.ErrConflict, id)
		}
		return change.Undo(task, entries[0])
	})
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
