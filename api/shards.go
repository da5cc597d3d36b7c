package api

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// taggedShardJob is a shard job with its entity tag.
type taggedShardJob struct {
	surface.ShardJob
	ETag string `json:"etag" doc:"The version of the shard job. Send it as If-Match."`
}

// shardJobPage is a page of shard jobs.
type shardJobPage struct {
	ShardJobs []taggedShardJob `json:"shard_jobs"`
	Next      *string          `json:"next" doc:"The cursor of the next page, and null on the last page."`
}

func (a *API) listShardJobs(ctx context.Context, in *surface.ShardJobQuery) (shardJobPage, error) {
	found, next, err := surface.ListShardJobs(ctx, a.b, *in)
	return shardJobPage{surface.Each(found, func(l surface.Listed[surface.ShardJob, app.ShardJob]) taggedShardJob {
		return taggedShardJob{l.Form, ShardJobTag(l.From)}
	}), next}, err
}

// ShardJobTag returns the entity tag of a shard job. Each change by a person changes the tag. Passes and their offsets
// do not change the tag: otherwise they would make the requests of people fail.
func ShardJobTag(j app.ShardJob) string {
	_, created := j.Creator()
	return contentTag(store.ID(created.UnixMicro()), j.Spec)
}

// ShardMapTag returns the entity tag of the shard map of a job, which has the version of the map. Offsets have no
// influence.
func ShardMapTag(j app.ShardJob) string {
	_, created := j.Creator()
	return fmt.Sprintf(`"map-%d-%d"`, created.UnixMicro(), j.Spec.Map)
}

// ShardJobPath has the parameter of routes about one shard job.
type ShardJobPath struct {
	Name string `path:"name" doc:"The name of the shard job."`
}

// shardJobAction has the parameters of the route that deletes a shard job.
type shardJobAction struct {
	ShardJobPath
	Conditional
}

// shardJobChange has the parameters of routes that change a shard job. Their bodies have the reason.
type shardJobChange struct {
	ShardJobPath
	IfMatch string `header:"If-Match" doc:"Make the change only if what it changes still has this entity tag."`
	RawJSON
}

func (a *API) getShardJob(ctx context.Context, in *ShardJobPath) (*tagged[surface.ShardJob], error) {
	form, j, err := surface.GetShardJob(ctx, a.b, in.Name)
	return withTag(ShardJobTag(j), form, err)
}

func (a *API) setShardJob(ctx context.Context, in *shardJobChange, r surface.SetShardJobRequest) (*tagged[surface.ShardJobSet], error) {
	set, j, err := surface.SetShardJob(ctx, a.b, actor(ctx, r.Reason), in.Name, r, unchangedRecord(in.IfMatch, "shard job", in.Name, ShardJobTag))
	return withTag(ShardJobTag(j), set, err)
}

func (a *API) deleteShardJob(ctx context.Context, in *shardJobAction) (*tagged[surface.ShardJob], error) {
	_, j, err := a.b.DeleteShardJob(ctx, actor(ctx, in.Reason), in.Name, unchangedRecord(in.IfMatch, "shard job", in.Name, ShardJobTag))
	return withTag(ShardJobTag(j), surface.ShardJobOf(j), err)
}

func (a *API) getShardMap(ctx context.Context, in *ShardJobPath) (*tagged[surface.ShardMap], error) {
	form, j, err := surface.GetShardMap(ctx, a.b, in.Name)
	return withTag(ShardMapTag(j), form, err)
}

// changeShardMap returns a handler that changes the shard map of a job. The request has the reason.
func changeShardMap[R any](a *API, change func(
	ctx context.Context, b *app.Backend, by store.Actor, name string, r R, checks ...func(*app.ShardJob) error,
) (surface.ShardMapChange, app.ShardJob, error)) func(context.Context, *shardJobChange, R) (*tagged[surface.ShardMapChange], error) {
	return func(ctx context.Context, in *shardJobChange, r R) (*tagged[surface.ShardMapChange], error) {
		done, j, err := change(ctx, a.b, actor(ctx, ""), in.Name, r, unchangedRecord(in.IfMatch, "the shard map of", in.Name, ShardMapTag))
		return withTag(ShardMapTag(j), done, err)
	}
}
