package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// edit has the parameters of the route that edits a task.
type edit struct {
	TaskAction
	SkipValidation bool   `query:"skip_validation" doc:"The payload need not fit its type. The audit log shows that."`
	RawBody        []byte `contentType:"application/json"`
}

// patchTask applies a JSON Patch to the payload, queue, priority, max_attempts, run_at and tags of a task.
func (a *API) patchTask(ctx context.Context, in *edit, id holdfast.TaskID) (*tagged[surface.TaskDetails], error) {
	seen, err := a.b.Store.Task(ctx, id)
	if err == nil {
		err = in.check(seen)
	}
	if err != nil {
		return nil, err
	}
	to, err := change.Patch(ctx, seen, in.RawBody, a.b.Config.Producer.MaxPayload)
	if err != nil {
		return nil, err
	}
	edited, err := a.b.Edit(ctx, actor(ctx, in.Reason), seen, to, change.Validation(in.SkipValidation))
	if errors.Is(err, holdfast.ErrConflict) { // edited is the task after the change by another request
		err = cmp.Or(in.check(edited), err)
	}
	if err != nil {
		return nil, err
	}
	return a.getTask(ctx, &in.TaskPath, id)
}

// undoTask takes back the last change of a task.
func (a *API) undoTask(ctx context.Context, in *TaskAction, id holdfast.TaskID) (*tagged[surface.TaskState], error) {
	task, err := a.b.Undo(ctx, actor(ctx, in.Reason), id, in.check)
	return withTag(TaskTag(task), surface.TaskState{ID: task.ID, State: task.State}, err)
}

func (a *API) listAudit(ctx context.Context, in *surface.AuditQuery) (surface.AuditPage, error) {
	return surface.ListAudit(ctx, a.b, *in)
}

// operationQuery has the parameters of the list of operations.
type operationQuery struct {
	State  string `query:"state" enum:"planned,running,paused,stopped,done,cancelled" doc:"Only operations in this state."`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"1000" doc:"At most so many operations."`
	Before int64  `query:"before" minimum:"0" doc:"The value next of the page before."`
}

func (a *API) listOperations(ctx context.Context, in *operationQuery) (surface.OperationPage, error) {
	f := store.OperationFilter{Before: store.ID(in.Before), Limit: in.Limit}
	if in.State != "" {
		f.States = []store.OperationState{store.OperationState(in.State)}
	}
	return surface.Operations(ctx, a.b, f)
}

// operationPath has the parameters of routes about one operation.
type operationPath struct {
	IDPath
	Reason string `query:"reason" doc:"Why, for the audit log."`
}

func (a *API) getOperation(ctx context.Context, in *operationPath) (surface.Operation, error) {
	return surface.GetOperation(ctx, a.b, store.ID(in.ID))
}

// control returns a handler that sets the state of an operation.
func (a *API) control(to store.OperationState) func(context.Context, *operationPath) (surface.Operation, error) {
	return func(ctx context.Context, in *operationPath) (surface.Operation, error) {
		o, err := operate.SetState(ctx, a.b.Store, actor(ctx, in.Reason), store.ID(in.ID), to)
		return surface.OperationOf(o), err
	}
}

// started is the response to a request for an operation.
type started struct {
	Status   int
	Location string `header:"Location" doc:"The operation."`
	Body     any    // a surface.Operation, or a surface.Plan after a dry run
}

// startRoute registers the route that starts operations.
func (a *API) startRoute(described huma.API, op huma.Operation) {
	schemas := described.OpenAPI().Components.Schemas
	op.Responses["200"] = response("The plan of a dry run.", jsonType, schemas.Schema(typeOf[surface.Plan](), true, "Plan"))
	op.Responses["202"] = response("The operation.", jsonType, schemas.Schema(typeOf[surface.Operation](), true, "Operation"))
	handle(a, decoded(a.startOperation))(described, op)
}

// startOperation plans an operation and stores it, unless the request is a dry run.
func (a *API) startOperation(ctx context.Context, _ *RawJSON, r surface.NewOperation) (*started, error) {
	plan, stored, err := surface.StartOperation(ctx, a.b, actor(ctx, r.Reason), r)
	if err != nil || stored == nil {
		return &started{Status: http.StatusOK, Body: plan}, err
	}
	return &started{http.StatusAccepted, fmt.Sprintf("%s/operations/%s", Prefix, stored.ID), *stored}, nil
}
