package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Errors of Push. Each wraps a sentinel of package holdfast.
var (
	// ErrFull means that the batch has as many open subtasks as its window allows. A split waits, or ends and continues
	// in its next attempt.
	ErrFull = fmt.Errorf("%w: the window of the batch is full", holdfast.ErrUnavailable)
	// ErrPaused means that a person has paused the batch, or that failures have stopped it.
	ErrPaused = fmt.Errorf("%w: the batch is paused or stopped", holdfast.ErrConflict)
	// ErrSealed means that the stage gets no more subtasks, because it is sealed, the batch has ended, or a person has
	// cancelled it.
	ErrSealed = fmt.Errorf("%w: the batch accepts no more subtasks", holdfast.ErrConflict)
)

// Page is a list of subtasks that are stored together.
type Page struct {
	Tasks []holdfast.NewTask // valid, with their queues; at most MaxChunk
	// Number is the number of pages that were stored before. It makes a repeated Push safe: a page with a lower number
	// than the next one is stored already.
	Number int
	Cursor string // of a split
	// Split is the attempt of the split that pushes the page, or nil if a program pushes it.
	Split *store.Fence
}

// pushTries is how often Push tries to store a page while janitors make steps of the batch.
const pushTries = 50

// Push stores a page of subtasks, and returns the progress of the batch after it. It returns ErrFull, ErrPaused or
// ErrSealed, and an ErrConflict if pages before this one are missing. A split gets store.ErrFenced if its attempt does
// not run any more.
func Push(ctx context.Context, s Store, id store.ID, page Page) (BatchProgress, error) {
	for range pushTries {
		p, err := PlanByID(ctx, s, id)
		if err != nil {
			return BatchProgress{}, err
		}
		b, progress, err := ReadBatch(p)
		if err != nil {
			return progress, fmt.Errorf("%s: %w", p.Subject(), err)
		}
		stage, err := b.accepts(p, progress, page)
		if err != nil || page.Number < progress.Pages {
			return progress, err
		}
		now, err := s.Now(ctx)
		if err != nil {
			return progress, err
		}
		step := store.PlanStep{From: p, Insert: page.Tasks, Members: true, Fence: page.Split}
		to, err := s.StepPlan(ctx, step, func(inserted store.Inserted) (store.Plan, []store.PlanItem) {
			return b.pushed(p, progress, stage, page, inserted, now)
		})
		if err == nil {
			_, progress, err = ReadBatch(to)
			return progress, err
		}
		if !isConflict(err) {
			return progress, err
		}
	}
	return BatchProgress{}, fmt.Errorf("%w: janitors change batch %d all the time", holdfast.ErrUnavailable, int64(id))
}

func isConflict(err error) bool { return errors.Is(err, holdfast.ErrConflict) }

// accepts returns the stage that a page belongs to, or why the batch does not accept the page now.
func (b *Batch) accepts(p store.Plan, progress BatchProgress, page Page) (*Stage, error) {
	if p.State.Ended() || progress.Cancelling || progress.Sealed || !progress.Begun && page.Split != nil {
		return nil, ErrSealed
	}
	stage := &b.Stages[progress.Stage]
	switch {
	case page.Number < progress.Pages: // it is stored already
	case page.Split == nil && !stage.Open:
		return nil, ErrSealed
	case page.Number > progress.Pages:
		return nil, fmt.Errorf("%w: page %d was sent before page %d", holdfast.ErrConflict, page.Number, progress.Pages)
	case page.Split != nil && p.State != store.PlanRunning:
		return nil, ErrPaused
	case page.Split != nil && progress.Now.Open() >= b.window():
		return nil, ErrFull
	}
	return stage, nil
}

// pushed returns the plan and the item after a page was stored.
func (b *Batch) pushed(from store.Plan, progress BatchProgress, stage *Stage, page Page, inserted store.Inserted, now time.Time) (store.Plan, []store.PlanItem) {
	at := now.Add(firstCheck)
	var items []store.PlanItem
	if len(page.Tasks) > 0 {
		items = append(items, progress.newChunk(stage, inserted.Tasks, false, at))
	}
	progress.Pages++
	progress.Cursor, progress.PushedAt = page.Cursor, now.UTC()
	to := from
	if to.Progress = encode(progress); to.NextAt.IsZero() || at.Before(to.NextAt) {
		to.NextAt = at
	}
	return to, items
}

// SealedPlan returns the plan after a program has sealed the batch: it gets no more subtasks.
func (b *Batch) SealedPlan(p store.Plan, progress BatchProgress, now time.Time) (store.Plan, error) {
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
	case p.State == store.PlanStopped && progress.SplitFailed:
		return p, fmt.Errorf("%w: the split has failed, so subtasks are missing; retry its task", holdfast.ErrConflict)
	case p.State == store.PlanStopped:
		progress.Accepted, progress.Stopped, progress.PushedAt = progress.Now.Failed(), "", now.UTC()
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
