package api

import (
	"context"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// taggedSource is a source with its entity tag.
type taggedSource struct {
	surface.Source
	ETag string `json:"etag" doc:"The version of the settings of the source. Send it as If-Match."`
}

// sourcePage is a page of sources.
type sourcePage struct {
	Sources []taggedSource `json:"sources"`
	Next    *string        `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

// slicePage is a page of slices.
type slicePage struct {
	Slices []surface.Slice `json:"slices"`
	Next   *string         `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

func (a *API) listSources(ctx context.Context, in *surface.SourceQuery) (sourcePage, error) {
	found, next, err := surface.ListSources(ctx, a.b, *in)
	return sourcePage{surface.Each(found, func(l surface.Listed[surface.Source, app.Source]) taggedSource {
		return taggedSource{l.Form, SourceTag(l.From)}
	}), next}, err
}

// SourceTag returns the entity tag of a source. Each change by a person changes the tag. A slice and a change of the
// source default do not change the tag.
func SourceTag(s app.Source) string {
	_, created := s.Creator()
	return contentTag(store.ID(created.UnixMicro()), s.Spec)
}

// SourcePath has the parameter of routes about one source.
type SourcePath struct {
	Name string `path:"name" doc:"The name of the source or the backfill."`
}

func (a *API) getSource(ctx context.Context, in *SourcePath) (*tagged[surface.Source], error) {
	form, s, err := surface.GetSource(ctx, a.b, in.Name)
	return withTag(SourceTag(s), form, err)
}

// sourceReplacement has the parameters of the route that sets a source. Its body has the reason.
type sourceReplacement struct {
	SourcePath
	IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
	RawJSON
}

func (a *API) setSource(ctx context.Context, in *sourceReplacement, r surface.SetSourceRequest) (*tagged[surface.SourceSet], error) {
	set, s, err := surface.SetSource(ctx, a.b, actor(ctx, r.Reason), in.Name, r, unchangedRecord(in.IfMatch, "source", in.Name, SourceTag))
	return withTag(SourceTag(s), set, err)
}

// sourceAction has the parameters of the route that deletes a source.
type sourceAction struct {
	SourcePath
	Conditional
}

func (a *API) deleteSource(ctx context.Context, in *sourceAction) (surface.SourceSet, error) {
	deleted, _, err := surface.DeleteSource(ctx, a.b, actor(ctx, in.Reason), in.Name, unchangedRecord(in.IfMatch, "source", in.Name, SourceTag))
	return deleted, err
}

// sourceBackfill has the parameters of the route that starts a backfill of a source. Its body has the reason.
type sourceBackfill struct {
	SourcePath
	RawJSON
}

func (a *API) backfillSource(ctx context.Context, in *sourceBackfill, r surface.SourceBackfill) (*created[surface.Source], error) {
	form, s, err := surface.BackfillSource(ctx, a.b, actor(ctx, r.Reason), in.Name, r)
	return newCreated("/sources/"+s.Name, SourceTag(s), form), err
}

func (a *API) listSlices(ctx context.Context, in *surface.SliceQuery) (slicePage, error) {
	found, next, err := surface.ListSlices(ctx, a.b, *in)
	return slicePage{found, next}, err
}
