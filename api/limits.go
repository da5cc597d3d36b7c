package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/surface"
	"github.com/holdfastq/holdfast/store"
)

// taggedLimit is a limit with its use and its entity tag.
type taggedLimit struct {
	store.LimitUse
	ETag string `json:"etag" doc:"The version of the limit. Send it as If-Match."`
}

// limitList is a list of limits.
type limitList struct {
	Limits []taggedLimit `json:"limits"`
}

func (a *API) listLimits(ctx context.Context, _ *struct{}) (limitList, error) {
	found, err := a.b.Store.Limits(ctx)
	list := limitList{make([]taggedLimit, len(found))}
	for i, l := range found {
		list.Limits[i] = taggedLimit{l, limitTag(l.Limit)}
	}
	return list, err
}

// limitTag returns the entity tag of a limit. Each change by a person changes it.
func limitTag(l store.Limit) string {
	return contentTag(l.ID, l.Name, l.Surface, l.Reason, l.SetAt.UnixMicro(), l.Rate.Count, l.Rate.Per.Microseconds(), l.Concurrency)
}

// matchesLimit returns a problem if If-Match does not name the entity tag of the limit. l is nil if there is none.
func matchesLimit(ifMatch string, l *store.Limit) error {
	switch {
	case ifMatch == "":
		return nil
	case l == nil:
		return changed("there is no such limit")
	case !matches(ifMatch, limitTag(*l)):
		return changed("limit %s has changed: it now has the entity tag %s", l.ID, limitTag(*l))
	}
	return nil
}

func (a *API) getLimit(ctx context.Context, in *LimitPath) (*tagged[store.LimitUse], error) {
	found, err := a.b.Store.Limits(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(found, func(l store.LimitUse) bool { return l.ID == store.ID(in.ID) })
	if i < 0 {
		return nil, fmt.Errorf("%w: there is no limit %d", holdfast.ErrNotFound, in.ID)
	}
	return &tagged[store.LimitUse]{limitTag(found[i].Limit), found[i]}, nil
}

// newLimit is a request to set a limit, or to change it.
type newLimit struct {
	Queue       string           `json:"queue,omitempty" doc:"Only tasks of this queue."`
	Type        string           `json:"type,omitempty" doc:"Only tasks of this type."`
	Key         string           `json:"key,omitempty" doc:"Only tasks with this key."`
	Target      string           `json:"target,omitempty" doc:"Only tasks of type http that call this target: a URL, of which the scheme, the host and the port count."`
	Per         string           `json:"per,omitempty" enum:"key,target" doc:"A limit of its own for each key or target."`
	Rate        optional[string] `json:"rate,omitzero" doc:"How many tasks start in a time: 100/s, 5000/m, 10/h or 3/90s; null removes the rate; if it is missing, the rate stays."`
	Concurrency optional[int]    `json:"concurrency,omitzero" doc:"How many tasks run at the same time; null removes it; if it is missing, it stays."`
	Reason      optional[string] `json:"reason,omitzero" doc:"Why; null removes the reason; if it is missing, the reason of a limit stays."`
}

// change returns the change that the request describes.
func (l *newLimit) change() (store.LimitChange, error) {
	target, err := targetOf(l.Target)
	c := store.LimitChange{
		Scope: store.Scope{
			Subject: store.Subject{Queue: l.Queue, Type: l.Type, Key: l.Key, Target: target},
			Per:     store.Per(l.Per),
		},
		NoReason: l.Reason.removes(""),
	}
	if err != nil {
		return c, err
	}
	if !l.Rate.given && !l.Concurrency.given && !l.Reason.given {
		return c, newProblem(http.StatusUnprocessableEntity, "invalid", "the body must have a rate, a concurrency or a reason")
	}
	if l.Rate.given {
		var rate store.Rate
		if l.Rate.value != nil {
			var err error
			if rate, err = store.ParseRate(*l.Rate.value); err != nil {
				return c, err
			}
		}
		c.Rate = &rate
	}
	if l.Concurrency.given {
		n := l.Concurrency.or(0)
		if l.Concurrency.value != nil && n < 1 {
			return c, newProblem(http.StatusUnprocessableEntity, "invalid", "concurrency %d must be at least 1; null removes it", n)
		}
		c.Concurrency = &n
	}
	return c, nil
}

// changeLimit has the parameters of the route that sets a limit.
type changeLimit struct {
	IfMatch string `header:"If-Match" doc:"Change the limit only if it still has this entity tag."`
	RawBody []byte `contentType:"application/json"`
}

func (a *API) setLimit(ctx context.Context, in *changeLimit) (*tagged[surface.Limited], error) {
	var request newLimit
	if err := decode(in.RawBody, &request); err != nil {
		return nil, err
	}
	change, err := request.change()
	if err != nil {
		return nil, err
	}
	change.Check = func(before *store.Limit) error { return matchesLimit(in.IfMatch, before) }
	set, err := a.b.SetLimit(ctx, actor(ctx, request.Reason.or("")), change)
	if err != nil {
		return nil, err
	}
	return &tagged[surface.Limited]{limitTag(set.After), surface.LimitedOf(set)}, nil
}

// LimitPath has the parameter of routes about one limit; see TaskPath.
type LimitPath struct {
	ID int64 `path:"id" minimum:"1" doc:"The id of the limit."`
}

// limitAction has the parameters of the route that removes a limit.
type limitAction struct {
	LimitPath
	IfMatch string `header:"If-Match" doc:"Remove the limit only if it still has this entity tag."`
	Reason  string `query:"reason" doc:"Why, for the audit log."`
}

func (a *API) unsetLimit(ctx context.Context, in *limitAction) (store.Limit, error) {
	return a.b.Store.UnsetLimitByID(ctx, actor(ctx, in.Reason), store.ID(in.ID), func(l store.Limit) error { return matchesLimit(in.IfMatch, &l) })
}
