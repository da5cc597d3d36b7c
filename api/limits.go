package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// taggedLimit is a limit with its use and its entity tag.
type taggedLimit struct {
	store.LimitUse
	ETag string `json:"etag" doc:"The version of the limit. Send it as If-Match."`
}

// limitTag returns the entity tag of a limit. Each change by a person changes the tag.
func limitTag(l store.Limit) string {
	return contentTag(l.ID, l.Name, l.Surface, l.Reason, l.SetAt.UnixMicro(), l.Rate.Count, l.Rate.Per.Microseconds(), l.Concurrency)
}

// unchangedLimit returns a problem if If-Match does not name the entity tag of the limit. l is nil if there is no such
// limit.
func unchangedLimit(ifMatch string, l *store.Limit) error {
	if l == nil {
		return unchanged(ifMatch, "", "there is no such limit")
	}
	return unchanged(ifMatch, limitTag(*l), "limit %s has changed: it now has", l.ID)
}

func (a *API) getLimit(ctx context.Context, in *IDPath) (*tagged[store.LimitUse], error) {
	found, err := a.b.Store.Limits(ctx)
	i := slices.IndexFunc(found, func(l store.LimitUse) bool { return l.ID == store.ID(in.ID) })
	if i < 0 {
		return nil, cmp.Or(err, fmt.Errorf("%w: there is no limit %d", holdfast.ErrNotFound, in.ID))
	}
	return withTag(limitTag(found[i].Limit), found[i], err)
}

func (a *API) setLimit(ctx context.Context, in *replacement, r surface.NewLimit) (*tagged[surface.Limited], error) {
	set, err := surface.SetLimit(ctx, a.b, actor(ctx, ""), r, func(before *store.Limit) error { return unchangedLimit(in.IfMatch, before) })
	return withTag(limitTag(set.Limit), set, err)
}

func (a *API) unsetLimit(ctx context.Context, in *idAction) (store.Limit, error) {
	return a.b.Store.UnsetLimitByID(ctx, actor(ctx, in.Reason), store.ID(in.ID), func(l store.Limit) error { return unchangedLimit(in.IfMatch, &l) })
}
