package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/surface"
)

// verified is the result of a check of all tasks.
type verified struct {
	Tasks  int             `json:"tasks" doc:"How many tasks break an invariant."`
	Faults []surface.Fault `json:"faults"`
}

func (a *API) verifyTasks(ctx context.Context, _ *struct{}) (verified, error) {
	faults, tasks, err := surface.VerifyTasks(ctx, a.b, a.o.Hint, nil)
	return verified{tasks, faults}, err
}

// recoveryQuery has the parameter of the routes about a recovery.
type recoveryQuery struct {
	Queue string `query:"queue" doc:"Treat the tickets of these queues as lost, although the queues exist. Commas separate names."`
}

// purged returns the queues whose tickets are treated as lost.
func (q *recoveryQuery) purged() []string {
	if q.Queue == "" {
		return nil
	}
	return strings.Split(q.Queue, ",")
}

// planRecovery returns what the broker has lost. The embedded broker has nothing to recover.
func (a *API) planRecovery(ctx context.Context, in *recoveryQuery) (surface.RecoveryPlan, error) {
	if _, embedded := a.b.Embedded(); embedded {
		return surface.RecoveryPlanOf(janitor.RecoveryPlan{}), nil
	}
	if err := a.b.Ping(ctx, brokerTimeout); err != nil {
		return surface.RecoveryPlan{}, err
	}
	plan, err := a.b.PlanRecovery(ctx, in.purged())
	return surface.RecoveryPlanOf(plan), err
}

// recover replaces what the broker has lost. A client repeats a request that was interrupted.
func (a *API) recover(ctx context.Context, in *recoveryQuery) (surface.Recovered, error) {
	if _, embedded := a.b.Embedded(); embedded {
		return surface.RecoveredOf(janitor.RecoveryReport{}), nil
	}
	if err := a.b.Ping(ctx, brokerTimeout); err != nil {
		return surface.Recovered{}, err
	}
	report, err := a.b.Recover(ctx, in.purged(), func(janitor.RecoveryProgress) {})
	return surface.RecoveredOf(report), err
}

func (a *API) simulatePolicy(ctx context.Context, _ *RawJSON, request surface.Simulation) (surface.Simulated, error) {
	return surface.Simulate(ctx, a.b, request)
}

func (a *API) drainWorker(ctx context.Context, in *IDPath) (surface.DrainedWorker, error) {
	id := holdfast.WorkerID(in.ID)
	return surface.DrainedWorker{Worker: id, Draining: true}, a.b.Store.Drain(ctx, id)
}

// drainRequest is a request to drain several workers.
type drainRequest struct {
	All bool `json:"all" doc:"Must be true: drain every worker that is live now."`
}

// drainedWorkers is the response to a drainRequest.
type drainedWorkers struct {
	Workers []surface.DrainedWorker `json:"workers"`
}

func (a *API) drainWorkers(ctx context.Context, _ *RawJSON, request drainRequest) (drainedWorkers, error) {
	if !request.All {
		return drainedWorkers{}, newProblem(http.StatusUnprocessableEntity, invalidBody, `all must be true; to drain one worker, use POST %s/workers/{id}/drain`, Prefix)
	}
	live, err := a.b.Store.Workers(ctx, false)
	if err != nil {
		return drainedWorkers{}, err
	}
	drained := drainedWorkers{Workers: []surface.DrainedWorker{}}
	for _, w := range slices.Backward(live) { // oldest first
		switch err := a.b.Store.Drain(ctx, w.ID); {
		case err == nil:
			drained.Workers = append(drained.Workers, surface.DrainedWorker{Worker: w.ID, Draining: true})
		case !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, holdfast.ErrConflict): // else the worker has ended
			return drained, err
		}
	}
	return drained, nil
}
