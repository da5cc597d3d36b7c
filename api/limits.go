package api

import (
	"context"
	"fmt"
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

// changeLimit has the parameters of the route that sets a limit.
type changeLimit struct {
	IfMatch string `header:"If-Match" doc:"Change the limit only if it still has this entity tag."`
	RawBody []byte `contentType:"application/json"`
}

func (a *API) setLimit(ctx context.Context, in *changeLimit) (*tagged[surface.Limited], error) {
	var request surface.NewLimit
	if err := decode(in.RawBody, &request); err != nil {
		return nil, err
	}
	set, err := surface.SetLimit(ctx, a.b, actor(ctx, ""), request, func(before *store.Limit) error { return matchesLimit(in.IfMatch, before) })
	if err != nil {
		return nil, err
	}
	return &tagged[surface.Limited]{limitTag(set.Limit), set}, nil
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
