package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Subtask is a subtask of a batch with its payload and its output.
type Subtask[P, Out any] struct {
	Task    holdfast.Task // Task.State is holdfast.Done unless the subtask has failed
	Payload P
	Output  Out // the zero value if the subtask has no output, for example because it has failed
}

// Results are the subtasks of a batch that is being reduced.
type Results[P, Out any] struct {
	store plan.ResultStore
	batch store.ID
	stage int
}

// ID returns the id of the batch.
func (r *Results[P, Out]) ID() holdfast.BatchID { return holdfast.BatchID(r.batch) }

// Input decodes the input of the batch into value, a pointer. It returns ErrNotFound if the batch began without a split.
func (r *Results[P, Out]) Input(ctx context.Context, value any) error {
	stored, err := plan.PlanByID(ctx, r.store, r.batch)
	if err != nil {
		return batchError(r.batch, err)
	}
	b, _, err := plan.ReadBatch(stored)
	if err == nil && b.Stages[0].Split == nil {
		err = fmt.Errorf("%w: the batch has no input, because it began without a split", holdfast.ErrNotFound)
	}
	if err == nil {
		err = decodeValue(b.Stages[0].Split.Payload, value)
	}
	if err != nil {
		return fmt.Errorf("read the input of batch %d: %w", int64(r.batch), err)
	}
	return nil
}

// All returns the subtasks in about the order in which they were stored, and also those that have failed. It reads up
// to 1,000 of them at a time, with at most 4 MiB of payloads and outputs, or one larger one. Subtasks that a person has
// deleted are missing. If the payload or the output of a subtask does not fit, All returns an ErrInvalid together with
// the subtask, and goes on after it. All other errors end it.
func (r *Results[P, Out]) All(ctx context.Context) iter.Seq2[Subtask[P, Out], error] {
	return decoded[P, Out](plan.Results(ctx, r.store, r.batch, r.stage))
}

// ResultsOf returns the subtasks of the first stage of a batch as [Results.All] does. The batch may still run, and its
// subtasks may change meanwhile. After the end of the batch, the store keeps a subtask as long as any other task.
func ResultsOf[P, Out any](ctx context.Context, c *Client, id holdfast.BatchID) iter.Seq2[Subtask[P, Out], error] {
	return func(yield func(Subtask[P, Out], error) bool) {
		b, err := c.openBackend()
		if err == nil {
			_, err = b.Batch(ctx, id)
		}
		if err != nil {
			yield(Subtask[P, Out]{}, fmt.Errorf("read results: %w", err))
			return
		}
		decoded[P, Out](b.BatchResults(ctx, id))(yield)
	}
}

// decoded decodes the payloads and outputs of subtasks.
func decoded[P, Out any](results iter.Seq2[plan.Result, error]) iter.Seq2[Subtask[P, Out], error] {
	return func(yield func(Subtask[P, Out], error) bool) {
		for r, err := range results {
			subtask := Subtask[P, Out]{Task: r.Task}
			if err == nil {
				err = decodeValue(r.Task.Payload, &subtask.Payload)
			}
			if err == nil {
				err = decodeOutput(r.Output, &subtask.Output)
			}
			if err != nil {
				err = fmt.Errorf("results: %w", err)
			}
			if !yield(subtask, err) {
				return
			}
		}
	}
}

// decodeOutput decodes an output into value, a pointer, unless the task has none.
func decodeOutput(output json.RawMessage, value any) error {
	if len(output) == 0 {
		return nil
	}
	return decodeValue(output, value)
}

// ReducedOf returns the value that the function Reduce of a batch has returned. It returns ErrNotFound if there is
// none: the batch has not been reduced, it has no such function, or that has returned nil.
func ReducedOf[T any](ctx context.Context, c *Client, id holdfast.BatchID) (T, error) {
	var value T
	b, err := c.openBackend()
	if err != nil {
		return value, err
	}
	batch, err := b.Batch(ctx, id)
	if err != nil {
		return value, fmt.Errorf("read the reduced value: %w", err)
	}
	const reduce = 1 // the stage
	if stages := batch.Spec.Stages; len(stages) > reduce && stages[0].Split != nil && stages[reduce].After {
		for r, err := range plan.ResultsAfter(ctx, b.Store, store.ID(id), reduce, plan.ResultCursor{}, 1) {
			if err == nil && len(r.Output) > 0 {
				err = decodeValue(r.Output, &value)
			} else if err == nil {
				break
			}
			if err != nil {
				return value, fmt.Errorf("read the reduced value of batch %s: %w", id, err)
			}
			return value, nil
		}
	}
	return value, fmt.Errorf("%w: batch %s has no reduced value", holdfast.ErrNotFound, id)
}
