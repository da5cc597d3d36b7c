package surface

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// Operation is the JSON form of an operation.
type Operation struct {
	store.Operation
	Ramp        []int  `json:"ramp"` // that of store.Operation, but never nil
	StepTimeout string `json:"step_timeout,omitempty"`
	WaitsFor    string `json:"waits_for,omitempty" doc:"What a running retry waits for before its next step. Lists leave it out."`
	Blocked     bool   `json:"-"` // whether gates or limits block tasks that it waits for
}

// OperationOf returns the JSON form of an operation.
func OperationOf(o store.Operation) Operation {
	form := Operation{Operation: o, Ramp: append([]int{}, o.Ramp...)}
	if o.StepTimeout > 0 {
		form.StepTimeout = o.StepTimeout.String()
	}
	return form
}

// GetOperation reads an operation, and what it waits for.
func GetOperation(ctx context.Context, b *app.Backend, id store.ID) (Operation, error) {
	o, err := b.Store.Operation(ctx, id)
	if err != nil {
		return Operation{}, err
	}
	form := OperationOf(o)
	form.WaitsFor, form.Blocked, err = WaitsFor(ctx, b, o)
	return form, err
}

// waitingSample is the number of tasks whose gates WaitsFor reads.
const waitingSample = 100

// WaitsFor returns what a running retry waits for before its next step: the first attempts of its tasks, and the gates
// that block the tasks that it has retried last. It returns "" if the operation does not wait. gates reports whether gates
// or limits block tasks.
func WaitsFor(ctx context.Context, b *app.Backend, o store.Operation) (text string, gates bool, _ error) {
	if o.State != store.OperationRunning || o.WaitingAt.IsZero() || o.Judged >= o.Changed {
		return "", false, nil
	}
	text = "the first attempts of 1 task"
	if n := o.Changed - o.Judged; n > 1 {
		text = fmt.Sprintf("the first attempts of %d tasks", n)
	}
	entries, err := b.Store.AuditLog(ctx, store.AuditFilter{Operation: o.ID, Action: store.ActionRetry, Limit: waitingSample})
	if err != nil {
		return "", false, err
	}
	f := store.Filter{States: []holdfast.State{holdfast.Ready}, Limit: waitingSample}
	for _, e := range entries {
		if e.Task != 0 {
			f.IDs = append(f.IDs, e.Task)
		}
	}
	if len(f.IDs) == 0 { // the audit log was pruned
		return text, false, nil
	}
	page, err := List(ctx, b, f)
	if err != nil {
		return "", false, err
	}
	blocked := make(map[string]int)
	for _, task := range page.Tasks {
		switch {
		case task.Gate != nil:
			blocked["blocked: "+task.Gate.sentence()]++
			gates = true
		case task.Parked != "":
			blocked["parked: "+task.Parked]++
		}
	}
	of := ""
	if int64(len(f.IDs)) < o.Changed {
		of = fmt.Sprintf(" of the last %d", len(f.IDs))
	}
	for _, why := range slices.Sorted(maps.Keys(blocked)) {
		verb := "are"
		if blocked[why] == 1 {
			verb = "is"
		}
		text += fmt.Sprintf("; %d%s %s %s", blocked[why], of, verb, why)
	}
	return text, gates, nil
}

// OperationPage is a page of operations.
type OperationPage struct {
	Operations []Operation `json:"operations"`
	Next       *store.ID   `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

// Operations reads a page of operations.
func Operations(ctx context.Context, b *app.Backend, f store.OperationFilter) (OperationPage, error) {
	limit := f.Limit
	f.Limit++
	found, err := b.Store.ListOperations(ctx, f)
	operations, next := pageOf(Each(found, OperationOf), limit, func(o Operation) store.ID { return o.ID })
	return OperationPage{operations, next}, err
}

// PatchStep describes one operation of a JSON Patch, for the OpenAPI document.
type PatchStep struct {
	Op    string `json:"op" enum:"add,remove,replace,move,copy,test"`
	Path  string `json:"path" doc:"A JSON Pointer, such as /payload/url."`
	From  string `json:"from,omitempty"`
	Value any    `json:"value,omitempty"`
}

// JSONPatch is a JSON Patch that package change decodes.
type JSONPatch json.RawMessage

// UnmarshalJSON implements json.Unmarshaler. The value null is no patch.
func (p *JSONPatch) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	return (*json.RawMessage)(p).UnmarshalJSON(text)
}

// Schema implements huma.SchemaProvider.
func (JSONPatch) Schema(r huma.Registry) *huma.Schema {
	return huma.SchemaFromType(r, reflect.TypeFor[[]PatchStep]())
}

// NewOperation is a request to plan or start an operation.
type NewOperation struct {
	Action         string    `json:"action" enum:"retry,archive,restore,cancel,purge,edit"`
	Query          string    `json:"query" doc:"Which tasks, as a search that names their states, such as: state:dead type:http"`
	Patch          JSONPatch `json:"patch,omitempty" doc:"For an edit: a JSON Patch of payload, queue, priority, max_attempts, run_at and tags."`
	SkipValidation bool      `json:"skip_validation,omitempty" doc:"For an edit: payloads need not fit their type."`
	Limit          int64     `json:"limit,omitempty" doc:"At most so many tasks, newest first; all, if it is missing."`
	Rate           int       `json:"rate,omitempty" doc:"At most so many tasks per second."`
	Ramp           []int     `json:"ramp,omitempty" doc:"The ends of the steps of a retry in percent, such as 1, 5, 25, 100."`
	StopAbove      *float64  `json:"stop_above,omitempty" doc:"A retry stops above this share of failed first attempts in a step, from 0 to 1; 0.5, if it is missing."`
	StepTimeout    string    `json:"step_timeout,omitempty" doc:"How long a step waits for first attempts, such as 10m."`
	DryRun         bool      `json:"dry_run,omitempty" doc:"Store nothing; answer with the plan."`
	Plan           bool      `json:"plan,omitempty" doc:"Store the operation, but do not start it."`
	Reason         string    `json:"reason,omitempty" doc:"Why, for the audit log."`
}

// request converts the request, except its members dry_run, plan and reason.
func (r NewOperation) request() (to operate.Request, err error) {
	to = operate.Request{
		Action: store.Action(r.Action), Query: r.Query, Patch: []byte(r.Patch), SkipValidation: r.SkipValidation,
		Limit: r.Limit, Rate: r.Rate, Ramp: r.Ramp, StopAbove: r.StopAbove,
	}
	if to.Filter, err = search.Parse(r.Query, time.Now()); err != nil {
		return to, &MemberError{"query", err}
	}
	if r.StepTimeout != "" {
		if to.StepTimeout, err = time.ParseDuration(r.StepTimeout); err != nil {
			return to, fmt.Errorf("%w: step_timeout %q is not a duration like 10m", holdfast.ErrInvalid, r.StepTimeout)
		}
	}
	return to, nil
}

// StartOperation plans an operation and stores it. After a dry run it returns no operation.
func StartOperation(ctx context.Context, b *app.Backend, by store.Actor, r NewOperation) (Plan, *Operation, error) {
	to, err := r.request()
	if err != nil {
		return Plan{}, nil, err
	}
	plan, err := b.PlanOperation(ctx, to)
	if err != nil || r.DryRun {
		return PlanOf(plan), nil, err
	}
	stored, err := b.StartOperation(ctx, by, plan.Operation, r.Plan)
	return PlanOf(plan), new(OperationOf(stored)), err
}

// Plan is the JSON form of an app.Plan.
type Plan struct {
	DryRun          bool              `json:"dry_run"`
	Action          store.Action      `json:"action"`
	Query           string            `json:"query"`
	Total           int64             `json:"total" doc:"How many tasks match."`
	AtLeast         bool              `json:"at_least" doc:"The count stopped after a second, and more tasks than total may match."`
	Rate            int               `json:"rate" doc:"Tasks per second; 0 means no limit."`
	Ramp            []int             `json:"ramp"`
	StopAbove       float64           `json:"stop_above"`
	ExpectedSeconds float64           `json:"expected_seconds" doc:"How long the operation takes at the rate; 0 if it has no limit."`
	Samples         []holdfast.TaskID `json:"samples" doc:"Some of the tasks."`
	SamplesRefused  int64             `json:"samples_refused,omitempty" doc:"How many of the samples an edit does not fit."`
	Refusal         string            `json:"refusal,omitempty" doc:"Why the edit does not fit the first of them."`
}

// PlanOf returns the JSON form of a plan.
func PlanOf(p app.Plan) Plan {
	return Plan{
		DryRun: true, Action: p.Operation.Action, Query: p.Operation.Query, Total: p.Operation.Total, AtLeast: p.AtLeast, Rate: p.Operation.Rate,
		Ramp: append([]int{}, p.Operation.Ramp...), StopAbove: p.Operation.StopAbove, ExpectedSeconds: p.Expected.Round(time.Millisecond).Seconds(),
		Samples: Each(p.Samples, func(task holdfast.Task) holdfast.TaskID { return task.ID }), SamplesRefused: p.Refused, Refusal: p.Refusal,
	}
}
