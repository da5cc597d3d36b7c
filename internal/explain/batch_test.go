package explain_test

import (
	"context"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// batchSource is a source with a batch, to which the task belongs.
type batchSource struct {
	source
	of    holdfast.BatchID
	batch store.Plan
}

func (s *batchSource) Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error) {
	task, err := s.source.Task(ctx, id)
	task.Batch = s.of
	return task, err
}

func (s *batchSource) ListPlans(_ context.Context, f store.PlanFilter) ([]store.Plan, error) {
	if s.batch.ID == 0 || len(f.IDs) != 1 || f.IDs[0] != s.batch.ID {
		return nil, nil
	}
	return []store.Plan{s.batch}, nil
}

func TestBatchOfATask(t *testing.T) {
	t.Parallel()
	work := plan.Stage{Tasks: []plan.Task{{Type: "map", Queue: "default"}}}
	batch := plan.Batch{Stages: []plan.Stage{work, work}}.Plan("", now)
	batch.ID, batch.State = 42, store.PlanStopped
	batch.Progress = []byte(`{"stage":0,"begun":true,"stopped":"2 of 7 tasks have failed","now":{"total":7,"done":3,"dead":2,"cancelled":0,"gone":0,"duplicate":0},` +
		`"subtasks":{"total":7,"done":3,"dead":2,"cancelled":0,"gone":0,"duplicate":0}}`)
	newer := batch
	newer.Spec = []byte(`{"color": 1}`)
	for name, c := range map[string]struct {
		of    holdfast.BatchID
		batch store.Plan
		want  string // "" if the explanation has no batch
	}{
		"no batch": {0, batch, ""},
		"a stopped batch": {42, batch, "a task of the batch 42, which is stopped in stage 1 of 2: 5 of 7 subtasks have ended, 2 of them dead; " +
			"it is stopped: 2 of 7 tasks have failed"},
		"a deleted batch": {42, store.Plan{}, "a task of the batch 42, which has been deleted"},
		"a newer version": {42, newer, "a task of the batch 42, which a newer version has stored"},
	} {
		e, err := explain.Read(t.Context(), &batchSource{of: c.of, batch: c.batch}, 7, holdfast.Settings{}, store.PruneAges{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Batch == nil {
			e.Batch = &explain.BatchOrigin{}
		}
		if e.Batch.Text != c.want {
			t.Errorf("%s: %+v, want %q", name, e.Batch, c.want)
		}
	}
}
