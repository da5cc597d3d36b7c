package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// ShardJob is a stored shard job.
type ShardJob = Record[plan.ShardJob, plan.ShardProgress]

var shardJobs = kind[ShardJob]{store.ShardKind, func(p store.Plan) (ShardJob, error) { return recordOf(p, plan.ReadShardJob) }}

// ShardJob returns the shard job with a name. It returns an ErrNotFound if there is none.
func (b *Backend) ShardJob(ctx context.Context, name string) (ShardJob, error) {
	return shardJobs.get(ctx, b.Store, name)
}

// ShardJobs returns at most limit shard jobs with names greater than after, in the order of their names.
func (b *Backend) ShardJobs(ctx context.Context, after string, limit int) ([]ShardJob, error) {
	return shardJobs.list(ctx, b.Store, store.PlanFilter{After: after, Limit: limit})
}

// ShardOffsets returns the offset of each shard of a job.
func (b *Backend) ShardOffsets(ctx context.Context, j ShardJob) (map[string]int64, error) {
	stored, err := plan.ReadOffsets(ctx, b.Store, j.plan.ID)
	if err != nil {
		return nil, err
	}
	offsets := make(map[string]int64, len(j.Spec.Zones))
	for shard := range j.Spec.Zones {
		offsets[shard] = stored[shard]
	}
	return offsets, nil
}

// EditShardJob creates a shard job, or changes it, in one step. change gets the present job, or the zero value. If it
// changes Zones, passes that run end; see ChangeShardMap. before is nil if the job is new. Checks may refuse the
// change; they get nil if there is no job.
func (b *Backend) EditShardJob(
	ctx context.Context, by store.Actor, name string, change func(*plan.ShardJob) error, checks ...func(before *ShardJob) error,
) (before *ShardJob, after ShardJob, err error) {
	return shardJobs.change(ctx, b, planChange[ShardJob]{
		by: by, name: name, action: store.ActionSet, checks: checks, create: true,
		compute: func(before *ShardJob, now time.Time) (planStep, error) {
			if before == nil {
				var spec plan.ShardJob
				err := cmp.Or(plan.CheckName(name), change(&spec), spec.Validate())
				return stepTo(spec.Plan(name, now)), err
			}
			spec := before.Spec
			spec.Zones = maps.Clone(spec.Zones)
			if err := change(&spec); err != nil {
				return planStep{}, err
			}
			zones := spec.Zones
			spec.Zones, spec.Map = before.Spec.Zones, before.Spec.Map
			if !maps.Equal(zones, spec.Zones) {
				return mapStep(before, spec, zones, now)
			}
			p := before.plan
			p.Spec, p.NextAt = spec.Plan(name, now).Spec, now
			return stepIfChanged(before.plan, p), spec.Validate()
		},
	})
}

// mapStep returns the step that gives a job new settings and another shard map.
func mapStep(before *ShardJob, spec plan.ShardJob, zones map[string]string, now time.Time) (planStep, error) {
	p, drop, err := spec.Changed(before.plan, zones, now)
	step := stepTo(p)
	step.drop = drop
	return step, err
}

// SetShardJob creates a shard job, or changes its type, interval, attempts and note. The shard map of an existing job
// stays; see ChangeShardMap.
func (b *Backend) SetShardJob(ctx context.Context, by store.Actor, name string, spec plan.ShardJob) (before *ShardJob, after ShardJob, err error) {
	return b.EditShardJob(ctx, by, name, func(j *plan.ShardJob) error {
		zones := j.Zones
		*j = spec
		if len(zones) > 0 {
			j.Zones = zones
		}
		return nil
	})
}

// ChangeShardMap gives a shard job the shard map that change returns. change gets a copy of the present one. Passes that
// run end within about a second, and save nothing more. Shards keep their offsets; new ones begin at 0, and the offsets
// of those that are no longer in the map are deleted.
func (b *Backend) ChangeShardMap(
	ctx context.Context, by store.Actor, name string, change func(zones map[string]string) (map[string]string, error), checks ...func(*ShardJob) error,
) (before *ShardJob, after ShardJob, err error) {
	return shardJobs.change(ctx, b, planChange[ShardJob]{
		by: by, name: name, action: store.ActionSet, checks: checks,
		compute: func(before *ShardJob, now time.Time) (planStep, error) {
			zones, err := change(maps.Clone(before.Spec.Zones))
			if err != nil || maps.Equal(zones, before.Spec.Zones) {
				return planStep{}, err
			}
			return mapStep(before, before.Spec, zones, now)
		},
	})
}

// MoveShard moves a shard to another zone; see ChangeShardMap. It returns an ErrNotFound if the job has no such shard.
func (b *Backend) MoveShard(ctx context.Context, by store.Actor, name, shard, zone string, checks ...func(*ShardJob) error) (before *ShardJob, after ShardJob, err error) {
	return b.ChangeShardMap(ctx, by, name, func(zones map[string]string) (map[string]string, error) {
		if _, known := zones[shard]; !known {
			return nil, fmt.Errorf("%w: shard job %s has no shard %s", holdfast.ErrNotFound, name, shard)
		}
		zones[shard] = zone
		return zones, nil
	}, checks...)
}

// DrainZone moves the shards of a zone to the other zones; see ChangeShardMap.
func (b *Backend) DrainZone(ctx context.Context, by store.Actor, name, zone string, checks ...func(*ShardJob) error) (before *ShardJob, after ShardJob, err error) {
	return b.ChangeShardMap(ctx, by, name, func(zones map[string]string) (map[string]string, error) {
		j := plan.ShardJob{Zones: zones}
		return j.Drained(zone)
	}, checks...)
}

// DeleteShardJob ends a shard job. Passes that run end within about a second.
func (b *Backend) DeleteShardJob(ctx context.Context, by store.Actor, name string, checks ...func(*ShardJob) error) (before *ShardJob, after ShardJob, err error) {
	return shardJobs.delete(ctx, b, by, name, checks)
}
