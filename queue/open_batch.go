package queue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// OpenBatch is a batch to which a program adds subtasks. Make one with [Client.OpenBatch] or [Client.ContinueBatch].
// Only one OpenBatch at a time may add subtasks to a batch, in all processes. It is not safe for concurrent use.
type OpenBatch struct {
	client *Client
	id     holdfast.BatchID
	writer string   // a random text that identifies this OpenBatch
	number int      // of the pages that are stored
	stored []string // the marks of the pages that an Add with an error has stored; part of number
}

// OpenBatch starts a batch to which the program adds subtasks. The subtasks run while the program adds more. When the
// program has called Seal and all subtasks have ended, the batch goes on with the tasks of [Then], or ends. If no
// subtask is added for 24 hours, the batch is stopped until a program adds one or seals the batch.
//
// OpenBatch returns ErrInvalid if an option is wrong. With the [BatchName] of a batch that has not ended, it returns
// that batch.
func (c *Client) OpenBatch(ctx context.Context, opts ...BatchOption) (*OpenBatch, error) {
	id, err := c.startBatch(ctx, opts, plan.Stage{Open: true})
	if err != nil {
		return nil, err
	}
	return c.ContinueBatch(ctx, id)
}

// ContinueBatch returns the open batch with an id, to which another process may have added subtasks. Subtasks whose Add
// has not returned may be stored or not. If the program cannot tell which ones, give each a unique key; see
// OpenBatch.AddTasks. If the other process still adds subtasks, one of the two gets an ErrConflict.
//
// ContinueBatch returns ErrNotFound if there is no such batch, and ErrConflict if no OpenBatch made it, or if it has
// ended or runs the tasks of [Then].
func (c *Client) ContinueBatch(ctx context.Context, id holdfast.BatchID) (*OpenBatch, error) {
	b, err := c.openBackend()
	if err != nil {
		return nil, err
	}
	batch, err := b.Batch(ctx, id)
	if err == nil && (!batch.Spec.Stages[0].Open || batch.Progress.Stage > 0 || batch.State.Ended() || batch.Progress.Cancelling) {
		err = fmt.Errorf("batch %s: %w", id, plan.ErrSealed)
	}
	if err != nil {
		return nil, fmt.Errorf("continue batch: %w", err)
	}
	return &OpenBatch{client: c, id: id, writer: rand.Text(), number: batch.Progress.Pages}, nil
}

// ID returns the id of the batch.
func (o *OpenBatch) ID() holdfast.BatchID { return o.id }

// Add adds a subtask of the type for each payload. A call stores a page of its own, which costs a transaction and a row:
// for many subtasks, call Add with many payloads. See [OpenBatch.AddTasks].
func (o *OpenBatch) Add(ctx context.Context, taskType string, payloads ...any) error {
	tasks := make([]NewTask, len(payloads))
	for i, payload := range payloads {
		tasks[i] = NewTask{Type: taskType, Payload: payload}
	}
	return o.AddTasks(ctx, tasks)
}

// AddTasks adds subtasks. It stores them in pages of up to 1,000. After an error, a call with the same subtasks is
// safe: it stores only those that are not stored yet. Other subtasks cannot be added before such a call has succeeded.
// If a task has the unique key of a subtask already, the subtask is counted as a duplicate and is not stored.
//
// If a subtask is invalid, AddTasks stores nothing and returns a *TaskError. It returns ErrConflict if the batch
// accepts no more subtasks, or if another OpenBatch has added subtasks meanwhile. This one then stores none of its
// further pages.
func (o *OpenBatch) AddTasks(ctx context.Context, tasks []NewTask) error {
	pages, err := o.pages(tasks)
	if err != nil {
		return err
	}
	failed := func(err error) error { return fmt.Errorf("add subtasks to batch %s: %w", o.id, err) }
	same := func(mark string, p page) bool { return p.mark == mark }
	if len(pages) < len(o.stored) || !slices.EqualFunc(o.stored, pages[:len(o.stored)], same) {
		return failed(fmt.Errorf("%w: the last call has failed; repeat it with the same subtasks first", holdfast.ErrInvalid))
	}
	b, err := o.client.openBackend()
	if err != nil {
		return err
	}
	for _, page := range pages[len(o.stored):] {
		progress, err := b.PushPage(ctx, o.id, plan.Page{Tasks: page.tasks, Number: o.number, Cursor: page.mark})
		switch {
		case errors.Is(err, holdfast.ErrNotFound): // it ended long ago
			return failed(plan.ErrSealed)
		case err != nil:
			return failed(err)
		// The page before has the number if another process has stored it.
		case progress.Pages != o.number+1 || progress.Cursor != page.mark:
			return failed(fmt.Errorf("%w: another process adds subtasks, too", holdfast.ErrConflict))
		}
		o.number, o.stored = o.number+1, append(o.stored, page.mark)
	}
	o.stored = nil
	return nil
}

// page is a list of subtasks that are stored together.
type page struct {
	tasks []holdfast.NewTask
	mark  string // identifies the content and the writer
}

// pages divides subtasks into pages. The same subtasks give the same pages.
func (o *OpenBatch) pages(tasks []NewTask) (pages []page, err error) {
	bytes := 0
	for i, n := range tasks {
		task, err := n.Complete()
		if err == nil {
			task, err = o.client.complete(task)
		}
		if err != nil {
			return nil, &TaskError{Index: i, Err: err}
		}
		if last := len(pages) - 1; last < 0 || len(pages[last].tasks) == plan.MaxChunk || bytes >= maxPageBytes {
			pages, bytes = append(pages, page{}), 0
		}
		last := &pages[len(pages)-1]
		last.tasks = append(last.tasks, task)
		bytes += len(task.Payload)
	}
	for i := range pages {
		encoded, err := json.Marshal(pages[i].tasks)
		if err != nil {
			return nil, fmt.Errorf("%w: encode subtasks: %w", holdfast.ErrInvalid, err)
		}
		sum := sha256.Sum256(append(encoded, o.writer...))
		pages[i].mark = hex.EncodeToString(sum[:16])
	}
	return pages, nil
}

// Seal declares that the batch gets no more subtasks. It is safe to repeat. Seal returns ErrConflict if a person has
// cancelled the batch.
func (o *OpenBatch) Seal(ctx context.Context) error {
	b, err := o.client.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.SealBatch(ctx, by(""), o.id)
	if errors.Is(err, plan.ErrSealed) { // an earlier call may have sealed a batch that has ended since
		if batch, readErr := b.Batch(ctx, o.id); readErr == nil && batch.State == store.PlanDone {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	return nil
}
