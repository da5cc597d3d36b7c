package queue

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/internal/plan"
)

// Stage is a step of a chain: 1 to 1,000 tasks that run at the same time. They have no unique key and no due time of
// their own.
type Stage []NewTask

// StartChain starts a batch with the given stages, at most 100. The tasks of the first stage are stored at once. When all tasks of a
// stage have ended and not too many of them have failed, the tasks of the next stage are stored. A handler reads the
// outputs of the stage before with [Previous]. If a task fails, the batch is stopped until people have retried it; see
// [AllowFailed].
//
// StartChain returns ErrInvalid if an argument is wrong. Without [BatchName], a call that is repeated after an error
// can start a second batch.
func (c *Client) StartChain(ctx context.Context, stages []Stage, opts ...BatchOption) (holdfast.BatchID, error) {
	list := make([]plan.Stage, len(stages))
	for i, stage := range stages {
		for _, n := range stage {
			task, err := batchTask(n)
			if err != nil {
				return 0, fmt.Errorf("start chain: stage %d: %w", i+1, err)
			}
			list[i].Tasks = append(list[i].Tasks, task)
		}
	}
	return c.startBatch(ctx, opts, list...)
}

// Previous returns the outputs of the stage before that of the task whose handler got ctx. The task must be one of a
// chain, or of the option [Then].
//
// If the stage before began with given tasks, the outputs are in the order of these tasks. A task without an output has
// the zero value: its handler has set none, or it has failed. Otherwise Previous returns the outputs of all subtasks of
// that stage, in about the order in which they were stored. It keeps all of them in memory; for a large batch, use
// [ResultsOf]. In the first stage, Previous returns no outputs.
//
// Previous returns ErrInvalid if ctx does not belong to an attempt, if the task begins no stage of a batch, or if an
// output does not fit.
func Previous[Out any](ctx context.Context) (outputs []Out, err error) {
	err = during(ctx, "outputs of the stage before", func(a *effect.Attempt) error {
		s, ok := a.Store().(plan.ResultStore)
		if !ok {
			return fmt.Errorf("%w: the store of this worker has no batches", holdfast.ErrInvalid)
		}
		own, err := stageOf(ctx, s, *a.Task())
		if err != nil || own.stage == 0 {
			return err
		}
		given := len(own.batch.Stages[own.stage-1].Tasks)
		outputs = make([]Out, given)
		for r, err := range plan.Results(ctx, s, own.id, own.stage-1) {
			if err != nil {
				return err
			}
			var output Out
			if err := decodeOutput(r.Output, &output); err != nil {
				return fmt.Errorf("task %s: %w", r.Task.ID, err)
			}
			if batch, stage, n, ok := plan.StageOrigin(r.Task.Unique); ok && batch == own.id && stage == own.stage-1 && n < given {
				outputs[n] = output
			} else {
				outputs = append(outputs, output)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return outputs, nil
}
