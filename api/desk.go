package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
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
func (a *API) patchTask(ctx context.Context, in *edit) (*tagged[surface.TaskDetails], error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	seen, err := a.b.Store.Task(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := in.check(seen); err != nil {
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
	details, err := surface.Task(ctx, a.b, id)
	return ofTask(details, details.Task, err)
}

// undoTask takes back the last change of a task.
func (a *API) undoTask(ctx context.Context, in *TaskAction) (*tagged[surface.TaskState], error) {
	id, err := in.id()
	if err != nil {
		return nil, err
	}
	task, err := a.b.UndoIf(ctx, actor(ctx, in.Reason), id, in.check)
	return ofTask(surface.TaskState{ID: task.ID, State: task.State}, task, err)
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

// operationPage is a page of operations.
type operationPage struct {
	Operations []surface.Operation `json:"operations"`
	Next       *string             `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

func (a *API) listOperations(ctx context.Context, in *operationQuery) (operationPage, error) {
	f := store.OperationFilter{Before: store.ID(in.Before), Limit: in.Limit + 1}
	if in.State != "" {
		f.States = []store.OperationState{store.OperationState(in.State)}
	}
	found, err := a.b.Store.ListOperations(ctx, f)
	if err != nil {
		return operationPage{}, err
	}
	page := operationPage{Operations: []surface.Operation{}}
	for _, o := range found[:min(len(found), in.Limit)] {
		page.Operations = append(page.Operations, surface.OperationOf(o))
	}
	if len(found) > in.Limit {
		next := found[in.Limit-1].ID.String()
		page.Next = &next
	}
	return page, nil
}

// OperationPath has the parameter of routes about one operation; see TaskPath.
type OperationPath struct {
	ID     int64  `path:"id" minimum:"1" doc:"The id of the operation."`
	Reason string `query:"reason" doc:"Why, for the audit log."`
}

func (a *API) getOperation(ctx context.Context, in *OperationPath) (surface.Operation, error) {
	o, err := a.b.Store.Operation(ctx, store.ID(in.ID))
	return surface.OperationOf(o), err
}

// control returns the handler of a route that changes the state of an operation.
func (a *API) control(to store.OperationState) func(context.Context, *OperationPath) (surface.Operation, error) {
	return func(ctx context.Context, in *OperationPath) (surface.Operation, error) {
		o, err := a.b.ControlOperation(ctx, actor(ctx, in.Reason), store.ID(in.ID), to)
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
	for status, form := range map[int]reflect.Type{http.StatusOK: typeOf[surface.Plan](), http.StatusAccepted: typeOf[surface.Operation]()} {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: map[int]string{http.StatusOK: "The plan of a dry run.", http.StatusAccepted: "The operation."}[status],
			Content:     map[string]*huma.MediaType{"application/json": {Schema: described.OpenAPI().Components.Schemas.Schema(form, true, form.Name())}},
		}
	}
	handle(a, a.startOperation)(described, op)
}

// startOperation plans an operation and stores it, unless the request is a dry run.
func (a *API) startOperation(ctx context.Context, in *rawBody) (*started, error) {
	var request newOperation
	if err := decode(in.RawBody, &request); err != nil {
		return nil, err
	}
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
