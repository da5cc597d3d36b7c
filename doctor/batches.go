package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// maxPushDelay is the time without a new page after which an open batch is probably forgotten.
const maxPushDelay = time.Hour

// examineBatches checks that no batch waits for a person or for a program.
func (e *examination) examineBatches(ctx context.Context, now time.Time) {
	var stopped, open similar
	var cancelling []store.ID // with open tasks
	e.examinePlans(ctx, store.BatchKind, func(p store.Plan) error {
		id := p.ID.String()
		spec, progress, err := plan.ReadBatch(p)
		switch {
		case err != nil:
			return err
		case progress.Stage < 0 || progress.Stage >= len(spec.Stages):
			return errors.New("no such stage")
		case p.State == store.PlanStopped:
			stopped.add(id, holdfast.Hint{Kind: holdfast.HintStoppedBatch, Arg: id}, "the batch %s has stopped: %s", id, progress.Stopped)
			return nil
		}
		if progress.Cancelling && progress.Now.Open() > 0 {
			cancelling = append(cancelling, p.ID)
		}
		idle := now.Sub(progress.PushedAt)
		if spec.Stages[progress.Stage].Open && !progress.Sealed && !progress.Cancelling && idle > maxPushDelay {
			open.delayed(id, holdfast.Hint{Kind: holdfast.HintOpenBatch, Arg: id}, idle)
		}
		return nil
	}, func(stored int) (string, error) {
		forgotten, err := e.forgotten(ctx, cancelling)
		if err != nil {
			return "", err
		}
		if len(forgotten) > 0 {
			e.add(Check{
				Name: "batches", Severity: Warning,
				Detail: fmt.Sprintf("no operation cancels the tasks of %s: %s", counted(int64(len(forgotten)), "cancelled batch", "cancelled batches"), few(forgotten)),
				Remedy: holdfast.Advice("cancel it again: the process that cancelled it has ended too early"),
			})
		}
		e.reportFirst(store.BatchKind, stopped, "others have stopped, too: ")
		e.reportDelayed(store.BatchKind, open, Warning, "open, and got no subtask for up to %s")
		return counted(int64(stored), "batch has", "batches have") + " not ended, none has stopped, and none waits for a program", nil
	})
}

// forgotten returns the batches of cancelling whose tasks no operation has cancelled. A process that cancels a batch
// starts the operation after that, and may end in between. If there are maxOperations operations or more, forgotten
// does not read all of them, and returns no batch.
func (e *examination) forgotten(ctx context.Context, cancelling []store.ID) (ids []string, err error) {
	const maxOperations = 1000
	if len(cancelling) == 0 {
		return nil, nil
	}
	newest, err := e.store.ListOperations(ctx, store.OperationFilter{Limit: maxOperations})
	if err != nil || len(newest) == maxOperations {
		return nil, err
	}
	for _, id := range cancelling {
		if !slices.ContainsFunc(newest, func(o store.Operation) bool {
			return o.Action == store.ActionCancel && o.Filter.Batch == holdfast.BatchID(id)
		}) {
			ids = append(ids, id.String())
		}
	}
	return ids, nil
}
