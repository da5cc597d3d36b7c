package plan

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Plan returns a new plan for the batch. The name may be empty. now is the time of the store.
func (b Batch) Plan(name string, now time.Time) store.Plan {
	if name == "" {
		name = unnamed + rand.Text()
	}
	progress := BatchProgress{PushedAt: now.UTC(), Sealed: b.fixed(0)}
	return store.Plan{Kind: store.BatchKind, Name: name, State: store.PlanRunning, NextAt: now, Spec: encode(b), Progress: encode(progress)}
}

// Sealed returns the plan after a program has sealed the batch: it gets no more subtasks.
func (b *Batch) Sealed(p store.Plan, progress BatchProgress, now time.Time) (store.Plan, error) {
	switch {
	case p.State.Ended(), progress.Cancelling, !b.Stages[progress.Stage].Open && !progress.Sealed:
		return p, ErrSealed
	case progress.Sealed:
		return p, nil
	}
	progress.Sealed = true
	p.Progress, p.NextAt = encode(progress), now
	return p, nil
}

// Paused returns the plan after a person has paused the batch. No more subtasks are stored until it is resumed; those
// that are stored run.
func (b *Batch) Paused(p store.Plan) (store.Plan, error) {
	if p.State != store.PlanRunning && p.State != store.PlanPaused {
		return p, fmt.Errorf("%w: the batch is %s; only a running batch can be paused", holdfast.ErrConflict, p.State)
	}
	p.State = store.PlanPaused
	return p, nil
}

// Resumed returns the plan after a person has resumed the batch. If it was stopped, the failures so far are accepted.
func (b *Batch) Resumed(p store.Plan, progress BatchProgress, now time.Time) (store.Plan, error) {
	switch {
	case p.State.Ended(), progress.Cancelling:
		return p, fmt.Errorf("%w: the batch has ended, or is being cancelled", holdfast.ErrConflict)
	case p.State == store.PlanStopped && progress.SplitGone:
		return p, fmt.Errorf("%w: %s", holdfast.ErrConflict, splitGone)
	case p.State == store.PlanStopped && progress.SplitFailed:
		return p, fmt.Errorf("%w: the split has failed, so subtasks are missing; retry its task", holdfast.ErrConflict)
	case p.State == store.PlanStopped:
		progress.Accepted, progress.Stopped, progress.PushedAt = progress.Now.Failed(), "", now.UTC()
		progress.Taken = 0
	case p.State == store.PlanRunning:
		return p, nil
	}
	p.State, p.NextAt, p.Progress = store.PlanRunning, now, encode(progress)
	return p, nil
}

// Cancelled returns the plan after a person has cancelled the batch: it gets no more tasks, and ends when all of its
// tasks have ended. The caller cancels the tasks afterwards, so that none of them is stored later.
func (b *Batch) Cancelled(p store.Plan, progress BatchProgress, now time.Time) (store.Plan, error) {
	switch {
	case p.State.Ended():
		return p, fmt.Errorf("%w: the batch has ended: it is %s", holdfast.ErrConflict, p.State)
	case progress.Cancelling:
		return p, nil
	}
	progress.Cancelling, progress.Stopped = true, ""
	p.State, p.NextAt, p.Progress = store.PlanRunning, now, encode(progress)
	return p, nil
}

// Check makes a step of a batch at once, as a janitor would do later, and returns its plan. So a batch that people have
// just repaired need not wait for its next check.
func Check(ctx context.Context, s Store, p store.Plan) (store.Plan, error) {
	now, err := s.Now(ctx)
	if err != nil {
		return p, err
	}
	if _, _, err := New(s).checkBatch(ctx, p, now, true); err != nil && !errors.Is(err, holdfast.ErrConflict) {
		return p, err
	}
	return PlanByID(ctx, s, p.ID)
}

// Begin stores the tasks of the first stage of a new batch, as a janitor would do later, and returns its plan.
func Begin(ctx context.Context, s Store, p store.Plan) (store.Plan, error) {
	if _, _, err := New(s).stepBatch(ctx, p, p.NextAt); err != nil && !errors.Is(err, holdfast.ErrConflict) {
		return p, err
	}
	return PlanByID(ctx, s, p.ID)
}
