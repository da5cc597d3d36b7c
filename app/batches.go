package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Batch is a stored batch.
type Batch struct {
	Record[plan.Batch, plan.BatchProgress] // the Name is "" if it has none
	ID                                     holdfast.BatchID
	EndedAt                                time.Time
}

// Left estimates how long the present stage still takes. ok is false if it is not known.
func (b *Batch) Left() (left time.Duration, ok bool) {
	p := &b.Progress
	if p.Rate <= 0 || b.State != store.PlanRunning || !p.Sealed {
		return 0, false
	}
	return time.Duration(float64(p.Now.Open()) / p.Rate * float64(time.Second)), true
}

var batches = kind[Batch]{store.BatchKind, batchOf}

func batchOf(p store.Plan) (b Batch, err error) {
	b = Batch{ID: holdfast.BatchID(p.ID), EndedAt: p.EndedAt}
	b.Record, err = recordOf(p, plan.ReadBatch)
	b.Name = plan.BatchName(p)
	return b, err
}

// StartBatch checks a batch, stores it, and stores the tasks of its first stage. The name may be empty. If a batch with
// the name has not ended, StartBatch changes nothing, and returns that batch and false.
func (b *Backend) StartBatch(ctx context.Context, by store.Actor, name string, spec plan.Batch) (started Batch, isNew bool, err error) {
	if spec, err = b.completeBatch(name, spec); err != nil {
		return Batch{}, false, err
	}
	start := planChange[Batch]{
		by: by, name: name, create: true,
		compute: func(found *Batch, now time.Time) (planStep, error) {
			if found != nil {
				return planStep{}, nil
			}
			return stepTo(spec.Plan(name, now)), nil
		},
	}
	if name == "" { // it is always a new batch
		start.read = func(context.Context) (Batch, error) { return Batch{}, holdfast.ErrNotFound }
	}
	found, started, err := batches.change(ctx, b, start)
	if err != nil || found != nil {
		return started, false, err
	}
	p, err := plan.Begin(ctx, b.Store, started.plan)
	if err != nil {
		return Batch{}, false, err
	}
	b.batchStored()
	started, err = batchOf(p)
	return started, true, err
}

// completeBatch checks a batch, and returns it with the defaults of its types.
func (b *Backend) completeBatch(name string, spec plan.Batch) (plan.Batch, error) {
	if name != "" {
		if err := plan.CheckName(name); err != nil {
			return spec, err
		}
	}
	if err := spec.Validate(b.Config.Producer.MaxPayload); err != nil {
		return spec, err
	}
	spec.Stages = slices.Clone(spec.Stages)
	for i := range spec.Stages {
		stage := &spec.Stages[i]
		stage.Tasks = slices.Clone(stage.Tasks)
		for k := range stage.Tasks {
			if err := b.completeTask(&stage.Tasks[k]); err != nil {
				return spec, fmt.Errorf("stage %d: %w", i+1, err)
			}
		}
		if stage.Split != nil {
			split := *stage.Split
			if err := b.completeTask(&split); err != nil {
				return spec, fmt.Errorf("stage %d: %w", i+1, err)
			}
			stage.Split = &split
		}
	}
	return spec, nil
}

// completeTask checks a task of a stage, and sets the queue of its type. A task without a limit of attempts gets that of
// the worker that runs it, because the stage may begin long after the start of the batch.
func (b *Backend) completeTask(task *plan.Task) error {
	complete, err := b.CompleteTask(task.New())
	if err == nil {
		complete.MaxAttempts = task.MaxAttempts
		*task = plan.TaskOf(complete)
	}
	return err
}

// CompleteTask checks a task, and returns it with the defaults of its type.
func (b *Backend) CompleteTask(task holdfast.NewTask) (holdfast.NewTask, error) {
	err := task.Complete(b.Settings().For(task.Type), b.Config.Producer.MaxPayload, b.Check[task.Type])
	return task, err
}

// Batch returns a batch, which may have ended. It returns an ErrNotFound if there is none with the id.
func (b *Backend) Batch(ctx context.Context, id holdfast.BatchID) (Batch, error) {
	p, err := plan.PlanByID(ctx, b.Store, store.ID(id))
	if err == nil && p.Kind != store.BatchKind {
		err = holdfast.ErrNotFound
	}
	if errors.Is(err, holdfast.ErrNotFound) {
		return Batch{}, fmt.Errorf("%w: there is no batch %s", holdfast.ErrNotFound, id)
	}
	if err != nil {
		return Batch{}, err
	}
	return batchOf(p)
}

// batchGroup is the number of batches that a list reads at a time. The stages of each can have a MiB.
const batchGroup = 20

// Batches returns at most limit batches with ids below before, the newest first. before may be 0. If states is not
// empty, it returns only batches in these states. Of the tasks in their stages it returns only the types.
func (b *Backend) Batches(ctx context.Context, states []store.PlanState, before holdfast.BatchID, limit int) ([]Batch, error) {
	all := []Batch{}
	for len(all) < limit {
		n := min(batchGroup, limit-len(all))
		group, err := batches.list(ctx, b.Store, store.PlanFilter{States: states, Ended: true, Before: store.ID(before), Limit: n})
		if err != nil {
			return nil, err
		}
		for _, found := range group {
			found.plan.Spec = nil
			for i := range found.Spec.Stages {
				for j, task := range found.Spec.Stages[i].Tasks {
					found.Spec.Stages[i].Tasks[j] = plan.Task{Type: task.Type}
				}
			}
			all, before = append(all, found), found.ID
		}
		if len(group) < n {
			break
		}
	}
	return all, nil
}

// PushBatch stores a page of subtasks in an open batch. number is the number of pages that were pushed before, and
// makes a repeated call safe. See plan.Push for its errors; the error of an invalid task names its index.
func (b *Backend) PushBatch(ctx context.Context, id holdfast.BatchID, number int, tasks []holdfast.NewTask) (plan.BatchProgress, error) {
	if len(tasks) > plan.MaxChunk {
		return plan.BatchProgress{}, fmt.Errorf("%w: a page has %d subtasks, the limit is %d", holdfast.ErrInvalid, len(tasks), plan.MaxChunk)
	}
	complete := make([]holdfast.NewTask, len(tasks))
	for i, task := range tasks {
		var err error
		if complete[i], err = b.CompleteTask(task); err != nil {
			return plan.BatchProgress{}, fmt.Errorf("subtask %d: %w", i, err)
		}
	}
	if _, err := b.Batch(ctx, id); err != nil {
		return plan.BatchProgress{}, err
	}
	return b.PushPage(ctx, id, plan.Page{Tasks: complete, Number: number})
}

// PushPage stores a page of complete subtasks; see plan.Push.
func (b *Backend) PushPage(ctx context.Context, id holdfast.BatchID, page plan.Page) (plan.BatchProgress, error) {
	progress, err := plan.Push(ctx, b.Store, store.ID(id), page)
	if err == nil {
		b.tasksStored()
	}
	return progress, err
}

// SealBatch declares that an open batch gets no more subtasks.
func (b *Backend) SealBatch(ctx context.Context, by store.Actor, id holdfast.BatchID, checks ...func(*Batch) error) (before *Batch, after Batch, err error) {
	return b.changeBatch(ctx, by, id, store.ActionSet, checks, func(batch *Batch, now time.Time) (store.Plan, error) {
		return batch.Spec.Sealed(batch.plan, batch.Progress, now)
	})
}

// PauseBatch pauses a batch: no more subtasks are stored until it is resumed. Those that are stored still run.
func (b *Backend) PauseBatch(ctx context.Context, by store.Actor, id holdfast.BatchID, checks ...func(*Batch) error) (before *Batch, after Batch, err error) {
	return b.changeBatch(ctx, by, id, store.ActionPause, checks, func(batch *Batch, _ time.Time) (store.Plan, error) {
		return batch.Spec.Paused(batch.plan)
	})
}

// ResumeBatch resumes a batch that is paused or stopped. A stopped batch goes on without the tasks that have failed so
// far.
func (b *Backend) ResumeBatch(ctx context.Context, by store.Actor, id holdfast.BatchID, checks ...func(*Batch) error) (before *Batch, after Batch, err error) {
	return b.changeBatch(ctx, by, id, store.ActionResume, checks, func(batch *Batch, now time.Time) (store.Plan, error) {
		return batch.Spec.Resumed(batch.plan, batch.Progress, now)
	})
}

// CancelBatch cancels a batch: it gets no more tasks, and an operation cancels those that have not ended. The batch ends
// when all of its tasks have ended. A second call starts another operation.
func (b *Backend) CancelBatch(ctx context.Context, by store.Actor, id holdfast.BatchID, checks ...func(*Batch) error) (before *Batch, after Batch, o store.Operation, err error) {
	before, after, err = b.changeBatch(ctx, by, id, store.ActionCancel, checks, func(batch *Batch, now time.Time) (store.Plan, error) {
		return batch.Spec.Cancelled(batch.plan, batch.Progress, now)
	})
	if err == nil {
		o, err = b.operateBatch(ctx, by, id, store.ActionCancel, holdfast.Ready, holdfast.Running, holdfast.Dead)
	}
	return before, after, o, err
}

// RetryBatch starts an operation that retries the dead tasks of a batch. If they succeed, a stopped batch goes on by
// itself.
func (b *Backend) RetryBatch(ctx context.Context, by store.Actor, id holdfast.BatchID, checks ...func(*Batch) error) (before Batch, o store.Operation, err error) {
	if before, err = b.Batch(ctx, id); err != nil {
		return before, o, err
	}
	for _, check := range checks {
		if err := check(&before); err != nil {
			return before, o, err
		}
	}
	o, err = b.operateBatch(ctx, by, id, store.ActionRetry, holdfast.Dead)
	return before, o, err
}

// operateBatch starts an operation on the tasks of a batch.
func (b *Backend) operateBatch(ctx context.Context, by store.Actor, id holdfast.BatchID, action store.Action, states ...holdfast.State) (store.Operation, error) {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	r := operate.Request{
		Action: action, Filter: store.Filter{Batch: id, States: states},
		Query: fmt.Sprintf("batch:%s state:%s", id, strings.Join(names, ",")),
	}
	planned, err := b.PlanOperation(ctx, r)
	if err != nil {
		return store.Operation{}, err
	}
	return b.StartOperation(ctx, by, planned.Operation, false)
}

// changeBatch changes a batch, which may have ended.
func (b *Backend) changeBatch(
	ctx context.Context, by store.Actor, id holdfast.BatchID, action store.Action, checks []func(*Batch) error,
	compute func(batch *Batch, now time.Time) (store.Plan, error),
) (before *Batch, after Batch, err error) {
	return batches.change(ctx, b, planChange[Batch]{
		by: by, name: id.String(), action: action, checks: checks,
		read: func(ctx context.Context) (Batch, error) { return b.Batch(ctx, id) },
		compute: func(before *Batch, now time.Time) (planStep, error) {
			p, err := compute(before, now)
			if err != nil {
				return planStep{}, fmt.Errorf("batch %s: %w", id, err)
			}
			return stepIfChanged(before.plan, p), nil
		},
	})
}

// BatchResults returns the subtasks of the first stage of a batch with their outputs; see plan.Results.
func (b *Backend) BatchResults(ctx context.Context, id holdfast.BatchID) iter.Seq2[plan.Result, error] {
	return b.BatchResultsAfter(ctx, id, plan.ResultCursor{}, 0)
}

// BatchResultsAfter is like BatchResults, and leaves out the results up to a place. It reads at most limit results; 0
// means all.
func (b *Backend) BatchResultsAfter(ctx context.Context, id holdfast.BatchID, place plan.ResultCursor, limit int) iter.Seq2[plan.Result, error] {
	return plan.ResultsAfter(ctx, b.Store, store.ID(id), 0, place, limit)
}

// batchPoll is the time between two reads of a batch by AwaitBatch.
const batchPoll = 200 * time.Millisecond

// AwaitBatch waits until a batch has ended, or is paused or stopped, and returns it. It calls progress after each read.
// If ctx ends first, it returns the newest version that it has read, and the error of ctx. It checks a stopped batch
// first, because people may just have repaired it.
func (b *Backend) AwaitBatch(ctx context.Context, id holdfast.BatchID, progress func(Batch)) (newest Batch, err error) {
	for first := true; ; first = false {
		read, err := b.Batch(ctx, id)
		if err == nil && first && read.State == store.PlanStopped {
			if p, checkErr := plan.Check(ctx, b.Store, read.plan); checkErr == nil {
				read, err = batchOf(p)
			}
		}
		if err != nil {
			return newest, cmp.Or(ctx.Err(), err)
		}
		newest = read
		if progress(read); read.State != store.PlanRunning {
			return read, nil
		}
		select {
		case <-ctx.Done():
			return newest, ctx.Err()
		case <-time.After(batchPoll):
		}
	}
}
