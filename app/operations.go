package app

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// samples is the number of tasks in a plan.
const samples = 5

// Plan says what an operation would do.
type Plan struct {
	Operation store.Operation // not stored
	AtLeast   bool            // the count stopped after a second, and more tasks may match than Operation.Total
	Samples   []holdfast.Task // without payloads
	// Refused is the number of samples that the edit does not fit, and Refusal says why it does not fit the first one.
	Refused int64
	Refusal string
	// Expected is how long the operation takes at its rate, and 0 if the rate has no limit. With a ramp, the operation
	// also waits for first attempts.
	Expected time.Duration
}

// PlanOperation checks a request, counts its tasks and returns the plan. It tries an edit on some of the tasks, and
// changes nothing.
func (b *Backend) PlanOperation(ctx context.Context, r operate.Request) (Plan, error) {
	if err := r.Check(); err != nil {
		return Plan{}, err
	}
	var err error
	if r.Filter, err = b.KnownFilter(ctx, r.Filter); err != nil {
		return Plan{}, err
	}
	if r.Filter.Fingerprint != "" { // the digits may begin a second group later
		r.Query = search.With(r.Query, "group", r.Filter.Fingerprint)
	}
	counts, err := b.Store.Count(ctx, r.Filter)
	if err != nil {
		return Plan{}, err
	}
	total := int64(0)
	for _, n := range counts.By {
		total += n
	}
	f := r.Filter
	f.Limit = samples
	page, err := b.Store.List(ctx, f)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Operation: r.Operation(total, counts.Next != 0), Samples: page.Tasks, AtLeast: counts.Next != 0}
	if r.Action == store.ActionEdit {
		if plan.Refused, plan.Refusal, err = b.engine().Try(ctx, plan.Operation, plan.Samples); err != nil {
			return Plan{}, err
		}
	}
	if rate := plan.Operation.Rate; rate > 0 {
		plan.Expected = time.Duration(float64(plan.Operation.Total) / float64(rate) * float64(time.Second))
	}
	return plan, nil
}

// engine returns an engine that carries out operations in steps.
func (b *Backend) engine() *operate.Engine {
	engine := operate.New(b.Store, b.Config.Producer.MaxPayload)
	engine.Check = b.Check
	return engine
}

// StartOperation stores an operation, which is only planned if planned is set. Janitors carry it out.
func (b *Backend) StartOperation(ctx context.Context, by store.Actor, o store.Operation, planned bool) (store.Operation, error) {
	o.State = store.OperationRunning
	if planned {
		o.State = store.OperationPlanned
	}
	return b.Store.CreateOperation(ctx, by, o)
}

// AwaitOperation waits until an operation is done, stopped, paused or cancelled, and returns it. Meanwhile it carries
// out the operation as a janitor does, so no other process is needed. It calls progress after each read. If ctx ends
// first, it returns the newest version that it has read, and the error of ctx.
func (b *Backend) AwaitOperation(ctx context.Context, id store.ID, progress func(store.Operation)) (store.Operation, error) {
	engine := b.engine()
	var newest store.Operation
	for {
		o, err := b.Store.Operation(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return newest, ctx.Err()
		case err != nil:
			return newest, err
		}
		newest = o
		progress(o)
		if o.State != store.OperationRunning {
			return o, nil
		}
		wait, err := engine.Step(ctx, o)
		switch {
		case err != nil && ctx.Err() != nil:
			return newest, ctx.Err()
		case err != nil:
			return newest, fmt.Errorf("the operation continues when a janitor runs: %w", err)
		}
		select {
		case <-ctx.Done():
			return newest, ctx.Err()
		case <-time.After(wait):
		}
	}
}
