package explain

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// BatchOrigin is the batch of a task.
type BatchOrigin struct {
	ID    holdfast.BatchID `json:"id"`
	State store.PlanState  `json:"state,omitempty"` // empty if the batch has been deleted, or if a newer version has stored it
	Text  string           `json:"text"`
}

// readBatch describes the batch of a task. It returns nil if the task belongs to none.
func readBatch(ctx context.Context, s Source, task holdfast.Task) (*BatchOrigin, error) {
	if task.Batch == 0 {
		return nil, nil
	}
	batch := &BatchOrigin{ID: task.Batch}
	p, err := plan.PlanByID(ctx, s, store.ID(task.Batch))
	if errors.Is(err, holdfast.ErrNotFound) {
		batch.Text = fmt.Sprintf("a task of the batch %s, which has been deleted", task.Batch)
		return batch, nil
	}
	if err != nil {
		return nil, err
	}
	spec, progress, err := plan.ReadBatch(p)
	if err != nil {
		batch.Text = fmt.Sprintf("a task of the batch %s, which a newer version has stored", task.Batch)
		return batch, nil
	}
	batch.State = p.State
	counts := progress.Subtasks
	batch.Text = fmt.Sprintf("a task of the batch %s, which is %s in stage %d of %d: %d of %d subtasks have ended, %d of them dead",
		task.Batch, p.State, progress.Stage+1, len(spec.Stages), counts.Ended(), counts.Total, counts.Dead)
	if progress.Stopped != "" {
		batch.Text += "; it is stopped: " + progress.Stopped
	}
	return batch, nil
}
