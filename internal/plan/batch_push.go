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

// errStored means that a page is stored already.
var errStored = errors.New("the page is stored already")

// Push stores a page of subtasks, and returns the progress of the batch after it. It returns ErrFull, ErrPaused or
// ErrSealed, and an ErrConflict if pages before this one are missing. A split gets store.ErrFenced if its attempt does
// not run any more.
//
// Push locks the batch. A janitor that makes a step of it meanwhile waits, and then tries its step again.
func Push(ctx context.Context, s Store, id store.ID, page Page) (BatchProgress, error) {
	p := push{page: &page}
	step := store.PlanStep{From: store.Plan{Kind: store.BatchKind, ID: id}, Accept: p.accept, Insert: page.Tasks, Members: true, Fence: page.Split}
	to, err := s.StepPlan(ctx, step, p.stored)
	switch {
	case errors.Is(err, errStored):
		return p.progress, nil
	case err != nil:
		return p.progress, err
	}
	_, after, err := ReadBatch(to)
	return after, err
}

// push is a page that is being stored.
type push struct {
	page     *Page
	from     store.Plan // before the page
	batch    Batch
	progress BatchProgress
	now      time.Time
}

// accept returns why the batch does not accept the page.
func (p *push) accept(from store.Plan, now time.Time) (err error) {
	p.from, p.now = from, now
	if p.batch, p.progress, err = ReadBatch(from); err != nil {
		return fmt.Errorf("%s: %w", from.Subject(), err)
	}
	progress, ofSplit := &p.progress, p.page.Split != nil
	switch {
	case from.State.Ended(), progress.Cancelling, progress.Sealed, !progress.Begun && ofSplit:
		return ErrSealed
	case p.page.Number < progress.Pages:
		return errStored
	case !ofSplit && !p.stage().Open:
		return ErrSealed
	case p.page.Number > progress.Pages:
		return fmt.Errorf("%w: page %d was sent before page %d", holdfast.ErrConflict, p.page.Number, progress.Pages)
	case ofSplit && from.State != store.PlanRunning:
		return ErrPaused
	case ofSplit && progress.Now.Open() >= p.batch.window():
		return ErrFull
	}
	return nil
}

func (p *push) stage() *Stage { return &p.batch.Stages[p.progress.Stage] }

// stored returns the plan and the item after the page was stored.
func (p *push) stored(inserted store.Inserted) (store.Plan, []store.PlanItem) {
	to, progress, at := p.from, p.progress, p.now.Add(firstCheck)
	var items []store.PlanItem
	if len(p.page.Tasks) > 0 {
		items = append(items, progress.newChunk(p.stage(), inserted.Tasks, false, at))
	}
	progress.Pages++
	progress.Cursor, progress.PushedAt = p.page.Cursor, p.now.UTC()
	to.Progress = encode(progress)
	if to.NextAt.IsZero() || at.Before(to.NextAt) {
		to.NextAt = at
	}
	return to, items
}
