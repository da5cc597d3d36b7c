package app_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
)

// A list of batches is read in groups, and keeps no payload in memory.
func TestListsOfBatchesAreReadInGroups(t *testing.T) {
	t.Parallel()
	ctx, anna := t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}
	b := &app.Backend{Store: desk.Without(memory.New(time.Now).Client(nil))}
	const all = 45
	spec := plan.Batch{Stages: []plan.Stage{{Tasks: []plan.Task{{Type: "mail", Payload: json.RawMessage(`{"to": "anna"}`)}}}}}
	for i := range all {
		if _, err := b.Store.CreatePlan(ctx, anna, spec.Plan(fmt.Sprint("b", i), time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ before, limit, want int }{{0, 1, 1}, {0, 20, 20}, {0, 41, 41}, {0, 100, all}, {30, 100, 29}, {1, 10, 0}} {
		found, err := b.Batches(ctx, nil, holdfast.BatchID(c.before), c.limit)
		if err != nil || len(found) != c.want {
			t.Errorf("at most %d batches before %d: %d, %v; want %d", c.limit, c.before, len(found), err, c.want)
		}
		first := all
		if c.before > 0 {
			first = c.before - 1
		}
		for i, batch := range found {
			if task := batch.Spec.Stages[0].Tasks[0]; batch.ID != holdfast.BatchID(first-i) || task.Type != "mail" || len(task.Payload) > 0 {
				t.Fatalf("at most %d batches before %d: number %d is the batch %s with the task %+v", c.limit, c.before, i, batch.ID, task)
			}
		}
	}
}
