package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// maxPushDelay is the time without a new page after which an open batch is probably forgotten.
const maxPushDelay = time.Hour

// batches has the ids of the batches with problems, and details of the first batch with each.
type batches struct {
	unknown, stopped, open []string
	why                    string        // why the first stopped batch is stopped
	openFor                time.Duration // the longest time since the last page of an open batch
	cancelling             []store.ID    // with open tasks
}

// examineBatches checks that no batch waits for a person or for a program.
func (e *examination) examineBatches(ctx context.Context, now time.Time) {
	var found batches
	stored, err := e.plans(ctx, store.BatchKind, func(p store.Plan) { found.add(p, now) })
	if err != nil {
		e.failed("batches", err, holdfast.HintRetry)
		return
	}
	forgotten, err := e.forgotten(ctx, found.cancelling)
	if err != nil {
		e.failed("batches", err, holdfast.HintRetry)
		return
	}
	if len(forgotten) > 0 {
		e.add(Check{
			Name: "batches", Severity: Warning,
			Detail: fmt.Sprintf("no operation cancels the tasks of %s: %s", counted(int64(len(forgotten)), "cancelled batch", "cancelled batches"), few(forgotten)),
			Remedy: holdfast.Advice("cancel it again: the process that cancelled it has ended too early"),
		})
	}
	e.reportBatches(found, stored)
}

// forgotten returns those of the batches whose tasks no operation has cancelled. A process that cancels a batch starts
// the operation after that, and may end in between. Of more than maxOperations newer operations, it is not known.
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

// add sorts a batch into the lists of problems that it has.
func (s *batches) add(p store.Plan, now time.Time) {
	id := p.ID.String()
	spec, progress, err := plan.ReadBatch(p)
	if err != nil || progress.Stage < 0 || progress.Stage >= len(spec.Stages) {
		s.unknown = append(s.unknown, id)
		return
	}
	if p.State == store.PlanStopped {
		if len(s.stopped) == 0 {
			s.why = progress.Stopped
		}
		s.stopped = append(s.stopped, id)
		return
	}
	if progress.Cancelling && progress.Now.Open() > 0 {
		s.cancelling = append(s.cancelling, p.ID)
	}
	idle := now.Sub(progress.PushedAt)
	if spec.Stages[progress.Stage].Open && !progress.Sealed && !progress.Cancelling && idle > maxPushDelay {
		s.open, s.openFor = append(s.open, id), max(s.openFor, idle)
	}
}

// reportBatches adds a check for each kind of problem, or one if there is none.
func (e *examination) reportBatches(s batches, stored int) {
	add := func(remedy holdfast.Hint, format string, args ...any) {
		e.add(Check{Name: "batches", Severity: Warning, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if len(s.unknown) > 0 {
		add(holdfast.Advice("start janitors of the newer version; this version makes no steps of these batches"),
			"a newer version has stored %s: %s", counted(int64(len(s.unknown)), "batch", "batches"), few(s.unknown))
	}
	if len(s.stopped) > 0 {
		detail := fmt.Sprintf("the batch %s has stopped: %s", s.stopped[0], s.why)
		if others := s.stopped[1:]; len(others) > 0 {
			detail += "; others have stopped, too: " + few(others)
		}
		add(holdfast.Hint{Kind: holdfast.HintStoppedBatch, Arg: s.stopped[0]}, "%s", detail)
	}
	if len(s.open) > 0 {
		add(holdfast.Hint{Kind: holdfast.HintOpenBatch, Arg: s.open[0]}, "%s open, and got no subtask for up to %s: %s",
			counted(int64(len(s.open)), "batch is", "batches are"), s.openFor.Round(time.Second), few(s.open))
	}
	e.okUnless("batches", "%s not ended, none has stopped, and none waits for a program", counted(int64(stored), "batch has", "batches have"))
}
