package roles

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/column"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// operations implements store.Operations.
type operations struct{ transactions transact.Transactions }

// CreateOperation implements store.Operations.
func (r *operations) CreateOperation(ctx context.Context, by store.Actor, o store.Operation) (store.Operation, error) {
	const operation = "create operation"
	filter, err := json.Marshal(o.Filter)
	if err != nil {
		return store.Operation{}, fmt.Errorf("%s: %w", operation, err)
	}
	if o.Ramp == nil {
		o.Ramp = []int{}
	}
	ramp, err := json.Marshal(o.Ramp)
	if err != nil {
		return store.Operation{}, fmt.Errorf("%s: %w", operation, err)
	}
	var created store.Operation
	err = r.transactions.Transact(ctx, operation, func(ctx context.Context, tx transact.Transaction) error {
		var ids []scan.ID
		err := tx.Read(ctx, "operation_create", &ids, string(o.State), string(o.Action), column.Text(o.Query), string(filter), string(o.Patch),
			column.Text(by.Name), string(by.Surface), column.Text(by.Reason), o.Rate, string(ramp), o.StopAbove, o.StepTimeout, o.Total, o.Limit, o.SkipValidation)
		if err != nil {
			return err
		}
		if created, err = transact.Operation(ctx, tx, store.ID(ids[0].ID)); err != nil {
			return err
		}
		return recordOperation(ctx, tx, by, nil, &created)
	})
	return created, err
}

// recordOperation adds an audit entry for a new state of an operation. from is nil if the operation is new.
func recordOperation(ctx context.Context, tx transact.Transaction, by store.Actor, from, to *store.Operation) error {
	row := transact.EntryOf(by, to.AuditAction(from), "operation "+to.ID.String())
	row.Operation, row.After = int64(to.ID), operationDocument(*to)
	if from != nil {
		row.Before = operationDocument(*from)
	}
	return transact.Record(ctx, tx, []transact.AuditRow{row})
}

// operationDocument returns the JSON document of an operation, with texts that a column can store.
func operationDocument(o store.Operation) *string {
	o.Query, o.Note = column.Text(o.Query), column.Text(o.Note)
	document := string(o.Document())
	return &document
}

// Operation implements store.Operations.
func (r *operations) Operation(ctx context.Context, id store.ID) (store.Operation, error) {
	return transact.Operation(ctx, transact.Alone(r.transactions, "read operation"), id)
}

// ListOperations implements store.Operations.
func (r *operations) ListOperations(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
	if f.Limit <= 0 {
		f.Limit = transact.DefaultLimit
	}
	list := transact.Alone(r.transactions, "list operations")
	if f.Before == 0 && slices.Equal(f.States, []store.OperationState{store.OperationRunning}) { // a frequent query of janitors
		return transact.ListOf(ctx, list, "operations_running", scan.Operation.Value, f.Limit)
	}
	states := scan.Map(f.States, func(s store.OperationState) holdfast.State { return holdfast.State(s) })
	return transact.ListOf(ctx, list, "operations", scan.Operation.Value, f.Limit, states, int64(f.Before))
}

// StepOperation implements store.Operations. It takes the new version first: there, a late process waits, and then
// changes nothing.
func (r *operations) StepOperation(ctx context.Context, step store.OperationStep) (store.Operation, error) {
	var stepped store.Operation
	err := r.transactions.Transact(ctx, "step of operation", func(ctx context.Context, tx transact.Transaction) error {
		n, err := tx.Change(ctx, "operation_lock", int64(step.From.ID), step.From.Version)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: operation %s has changed since it was read", holdfast.ErrConflict, step.From.ID)
		}
		made, err := change(ctx, tx, step.From.Actor, step.From.ID, step.Changes)
		if err != nil {
			return err
		}
		var changed []holdfast.TaskID
		for i, ok := range made {
			if ok {
				changed = append(changed, step.Changes[i].Task.ID)
			}
		}
		if err := watch(ctx, tx, &step, changed); err != nil {
			return err
		}
		skipped := step.To.Skipped - step.From.Skipped + int64(len(made)-len(changed))
		o := &step.To
		_, err = tx.Change(ctx, "operation_step", int64(o.ID), string(o.State), column.Text(o.Note), int64(len(changed)), skipped, o.Refused,
			o.Succeeded, o.Failed, o.Judged, o.Step, o.StepSucceeded, o.StepFailed, o.Cursor, o.Scanned,
			transact.Bound(o.AdvancedAt), transact.Bound(o.WaitingAt), o.Accepted)
		if err != nil {
			return err
		}
		if stepped, err = transact.Operation(ctx, tx, o.ID); err != nil || step.By == nil {
			return err
		}
		return recordOperation(ctx, tx, *step.By, &step.From, &stepped)
	})
	return stepped, err
}

// watch stores which tasks were retried, until their first attempts are judged.
func watch(ctx context.Context, tx transact.Transaction, step *store.OperationStep, changed []holdfast.TaskID) error {
	if step.From.Action != store.ActionRetry {
		return nil
	}
	if step.To.State.Final() {
		_, err := tx.Change(ctx, "operation_forget", int64(step.From.ID))
		return err
	}
	if len(changed) > 0 {
		if _, err := tx.Change(ctx, "operation_watch", int64(step.From.ID), changed); err != nil {
			return err
		}
	}
	if len(step.Judged) > 0 {
		_, err := tx.Change(ctx, "operation_judged", int64(step.From.ID), step.Judged)
		return err
	}
	return nil
}

// FirstAttempts implements store.Operations.
func (r *operations) FirstAttempts(ctx context.Context, operation store.ID, limit int) ([]store.FirstAttempt, error) {
	var attempts []store.FirstAttempt
	err := r.transactions.Read(ctx, "read first attempts", "first_attempts", &attempts, int64(operation), limit)
	return attempts, err
}
