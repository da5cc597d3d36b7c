package surface

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Operation is the JSON form of an operation.
type Operation struct {
	store.Operation
	StepTimeout string `json:"step_timeout,omitempty"`
}

// OperationOf returns the JSON form of an operation.
func OperationOf(o store.Operation) Operation {
	form := Operation{Operation: o}
	if o.StepTimeout > 0 {
		form.StepTimeout = o.StepTimeout.String()
	}
	return form
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

// Plan is the JSON form of what an operation would do.
type Plan struct {
	DryRun          bool              `json:"dry_run"`
	Action          store.Action      `json:"action"`
	Query           string            `json:"query"`
	Total           int64             `json:"total" doc:"How many tasks match."`
	AtLeast         bool              `json:"at_least" doc:"The count stopped after a second, and more tasks than total may match."`
	Rate            int               `json:"rate" doc:"Tasks per second; 0 means no limit."`
	Ramp            []int             `json:"ramp,omitempty"`
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
		Ramp: p.Operation.Ramp, StopAbove: p.Operation.StopAbove, ExpectedSeconds: p.Expected.Round(time.Millisecond).Seconds(),
		Samples: Each(p.Samples, func(task holdfast.Task) holdfast.TaskID { return task.ID }), SamplesRefused: p.Refused, Refusal: p.Refusal,
	}
}
