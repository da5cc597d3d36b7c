package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// edit has the parameters of the route that edits a task.
type edit struct {
	TaskAction
	SkipValidation bool   `query:"skip_validation" doc:"The payload need not fit its type. The audit log shows that."`
	RawBody        []byte `contentType:"application/json"`
}

// patchStep is one operation of a JSON Patch, for the document. Package change decodes it.
type patchStep struct {
	Op    string `json:"op" enum:"add,remove,replace,move,copy,test"`
	Path  string `json:"path" doc:"A JSON Pointer, such as /payload/url."`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// rawPatch is a JSON Patch that package change decodes.
type rawPatch json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (p *rawPatch) UnmarshalJSON(text []byte) error { return (*json.RawMessage)(p).UnmarshalJSON(text) }

// Schema implements huma.SchemaProvider.
func (rawPatch) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, typeOf[[]patchStep]())
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
	if errors.Is(err, holdfast.ErrConflict) { // edited is the task that another request has changed meanwhile
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
	return withTag(taskTag(task), surface.TaskState{ID: task.ID, State: task.State}, err)
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
	o, err := a.b.Store.Operation(ctx, store.ID(in.ID))
	return surface.OperationOf(o), err
}

// control returns the handler of a route that changes the state of an operation.
func (a *API) control(to store.OperationState) func(context.Context, *operationPath) (surface.Operation, error) {
	return func(ctx context.Context, in *operationPath) (surface.Operation, error) {
		o, err := operate.SetState(ctx, a.b.Store, actor(ctx, in.Reason), store.ID(in.ID), to)
		return surface.OperationOf(o), err
	}
}

// newOperation is a request to plan or start an operation.
type newOperation struct {
	Action         string   `json:"action" enum:"retry,archive,restore,cancel,purge,edit"`
	Query          string   `json:"query" doc:"Which tasks, as a search that names their states, such as: state:dead type:http"`
	Patch          rawPatch `json:"patch,omitempty" doc:"For an edit: a JSON Patch of payload, queue, priority, max_attempts, run_at and tags."`
	SkipValidation bool     `json:"skip_validation,omitempty" doc:"For an edit: payloads need not fit their type."`
	Limit          int64    `json:"limit,omitempty" doc:"At most so many tasks, newest first; all, if it is missing."`
	Rate           int      `json:"rate,omitempty" doc:"At most so many tasks per second."`
	Ramp           []int    `json:"ramp,omitempty" doc:"The ends of the steps of a retry in percent, such as 1, 5, 25, 100."`
	StopAbove      *float64 `json:"stop_above,omitempty" doc:"A retry stops above this share of failed first attempts in a step, from 0 to 1; 0.5, if it is missing."`
	StepTimeout    string   `json:"step_timeout,omitempty" doc:"How long a step waits for first attempts, such as 10m."`
	DryRun         bool     `json:"dry_run,omitempty" doc:"Store nothing; answer with the plan."`
	Plan           bool     `json:"plan,omitempty" doc:"Store the operation, but do not start it."`
	Reason         string   `json:"reason,omitempty" doc:"Why, for the audit log."`
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
func (a *API) startOperation(ctx context.Context, _ *RawJSON, request newOperation) (*started, error) {
	f, err := search.Parse(request.Query, time.Now())
	if err != nil {
		return nil, badParameter("query", err)
	}
	r := operate.Request{
		Action: store.Action(request.Action), Query: request.Query, Filter: f, Patch: []byte(request.Patch), SkipValidation: request.SkipValidation,
		Limit: request.Limit, Rate: request.Rate, Ramp: request.Ramp, StopAbove: request.StopAbove,
	}
	if request.StepTimeout != "" {
		if r.StepTimeout, err = time.ParseDuration(request.StepTimeout); err != nil {
			return nil, newProblem(http.StatusUnprocessableEntity, "invalid", "step_timeout %q is not a duration like 10m", request.StepTimeout)
		}
	}
	plan, err := a.b.PlanOperation(ctx, r)
	if err != nil || request.DryRun {
		return &started{Status: http.StatusOK, Body: surface.PlanOf(plan)}, err
	}
	stored, err := a.b.StartOperation(ctx, actor(ctx, request.Reason), plan.Operation, request.Plan)
	return &started{
		Status: http.StatusAccepted, Location: fmt.Sprintf("%s/operations/%s", Prefix, stored.ID), Body: surface.OperationOf(stored),
	}, err
}
