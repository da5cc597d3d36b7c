package api

import (
	"context"

	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// limitList is a list of limits.
type limitList struct {
	Limits []store.LimitUse `json:"limits"`
}

func (a *API) listLimits(ctx context.Context, _ *struct{}) (limitList, error) {
	found, err := a.b.Store.Limits(ctx)
	return limitList{append([]store.LimitUse{}, found...)}, err
}

// newLimit is a request to set a limit.
type newLimit struct {
	Queue       string `json:"queue,omitempty" doc:"Only tasks of this queue."`
	Type        string `json:"type,omitempty" doc:"Only tasks of this type."`
	Key         string `json:"key,omitempty" doc:"Only tasks with this key."`
	Target      string `json:"target,omitempty" doc:"Only tasks of type http that call this target: a URL, of which the scheme, the host and the port count."`
	Per         string `json:"per,omitempty" enum:"key,target" doc:"A limit of its own for each key or target."`
	Rate        string `json:"rate,omitempty" doc:"How many tasks start in a time: 100/s, 5000/m, 10/h or 3/90s; if it is missing, any number."`
	Concurrency int    `json:"concurrency,omitempty" doc:"How many tasks run at the same time; if it is missing, any number."`
	Reason      string `json:"reason,omitempty" doc:"Why, for the audit log."`
}

func (a *API) setLimit(ctx context.Context, in *rawBody) (surface.Limited, error) {
	var request newLimit
	if err := decode(in.RawBody, &request); err != nil {
		return surface.Limited{}, err
	}
	limit := store.Limit{
		Scope: store.Scope{
			Subject: store.Subject{Queue: request.Queue, Type: request.Type, Key: request.Key, Target: targetOf(request.Target)},
			Per:     store.Per(request.Per),
		},
		Concurrency: request.Concurrency,
	}
	if request.Rate != "" {
		var err error
		if limit.Rate, err = store.ParseRate(request.Rate); err != nil {
			return surface.Limited{}, err
		}
	}
	set, err := a.b.SetLimit(ctx, actor(ctx, request.Reason), limit)
	if err != nil {
		return surface.Limited{}, err
	}
	return surface.LimitedOf(set), nil
}

// limitPath has the parameters of routes about one limit.
type limitPath struct {
	ID     int64  `path:"id" minimum:"1" doc:"The id of the limit."`
	Reason string `query:"reason" doc:"Why, for the audit log."`
}

func (a *API) unsetLimit(ctx context.Context, in *limitPath) (store.Limit, error) {
	return a.b.UnsetLimitByID(ctx, actor(ctx, in.Reason), store.ID(in.ID))
}
