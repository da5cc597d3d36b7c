package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// ShardJob is a stored shard job.
type ShardJob struct {
	Name     string
	Spec     plan.ShardJob
	Progress plan.ShardProgress
	plan     store.Plan
}

// Creator returns who created the job, and when.
func (j *ShardJob) Creator() (by store.Actor, at time.Time) { return j.plan.Actor, j.plan.CreatedAt }

// Failing returns how many steps of the shard job have failed in a row, and why the last one did.
func (j *ShardJob) Failing() (steps int, why string) { return j.plan.Failures, j.plan.Failure }

func shardJobOf(p store.Plan) (j ShardJob, err error) {
	j = ShardJob{Name: p.Name, plan: p}
	if j.Spec, j.Progress, err = plan.ReadShardJob(p); err != nil {
		return j, fmt.Errorf("%s: %w: %w", p.Subject(), errUnread, err)
	}
	return j, nil
}

// ShardJob returns the shard job with a name. It returns an ErrNotFound if there is none.
func (b *Backend) ShardJob(ctx context.Context, name string) (ShardJob, error) {
	p, err := b.Store.PlanByName(ctx, store.ShardKind, name)
	if err != nil {
		return ShardJob{}, err
	}
	return shardJobOf(p)
}

// ShardJobs returns at most limit shard jobs with names greater than after, in the order of their names.
func (b *Backend) ShardJobs(ctx context.Context, after string, limit int) ([]ShardJob, error) {
	plans, err := b.Store.ListPlans(ctx, store.PlanFilter{Kind: store.ShardKind, After: after, Limit: limit})
	if err != nil {
		return nil, err
	}
	jobs := make([]ShardJob, len(plans))
	for i, p := range plans {
		j, err := shardJobOf(p)
		j.plan = listed(p, err)
		jobs[i] = j
	}
	return jobs, nil
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

// stepShardJob reads a job, checks it, and stores what change makes of it. If the job has changed meanwhile, it begins
// again. Without a change it returns the job.
func (b *Backend) stepShardJob(
	ctx context.Context, by store.Actor, name string, action store.Action, checks []func(ShardJob) error,
	change func(j ShardJob, now time.Time) (after store.Plan, drop []string, err error),
) (before, after ShardJob, err error) {
	now, err := b.Store.Now(ctx)
	if err != nil {
		return before, after, err
	}
	for range tries {
		if before, err = b.ShardJob(ctx, name); err != nil && !deletable(before.plan, action) {
			return before, after, err
		}
		for _, check := range checks {
			if err := check(before); err != nil {
				return before, after, err
			}
		}
		changed, drop, err := change(before, now)
		if err != nil {
			return before, after, err
		}
		if string(changed.Spec) == string(before.plan.Spec) && changed.State == before.plan.State {
			return before, before, nil
		}
		p, err := b.Store.StepPlan(ctx, store.PlanStep{From: before.plan, Drop: drop, By: &by, Action: action}, plan.WithoutItems(to(changed)))
		if err == nil {
			if after, err = shardJobOf(p); action == store.ActionDelete {
				err = nil
			}
			return before, after, err
		}
		if !errors.Is(err, holdfast.ErrConflict) {
			return before, after, err
		}
	}
	return before, after, fmt.Errorf("%w: shard job %s changes all the time; try again", holdfast.ErrConflict, name)
}

// EditShardJob creates a shard job, or changes it, in one step. change gets the present job, or the zero value. If it
// changes Zones, passes that run end; see ChangeShardMap. before is nil if the job is new. Checks may refuse the
// change; they get nil if there is no job.
func (b *Backend) EditShardJob(
	ctx context.Context, by store.Actor, name string, change func(*plan.ShardJob) error, checks ...func(before *ShardJob) error,
) (before *ShardJob, after ShardJob, err error) {
	if err := plan.CheckName(name); err != nil {
		return nil, after, err
	}
	present := func(j ShardJob) error {
		for _, check := range checks {
			if err := check(&j); err != nil {
				return err
			}
		}
		return nil
	}
	found := false
	stored, after, err := b.stepShardJob(ctx, by, name, store.ActionSet, []func(ShardJob) error{present}, func(j ShardJob, now time.Time) (store.Plan, []string, error) {
		found = true
		spec := j.Spec
		spec.Zones = maps.Clone(spec.Zones)
		if err := change(&spec); err != nil {
			return j.plan, nil, err
		}
		zones := spec.Zones
		spec.Zones, spec.Map = j.Spec.Zones, j.Spec.Map
		if !maps.Equal(zones, spec.Zones) {
			return spec.Changed(j.plan, zones, now)
		}
		p := j.plan
		p.Spec, p.NextAt = spec.Plan(name, now).Spec, now
		return p, nil, spec.Validate()
	})
	if found || !errors.Is(err, holdfast.ErrNotFound) {
		return &stored, after, err
	}
	for _, check := range checks {
		if err := check(nil); err != nil {
			return nil, after, err
		}
	}
	var spec plan.ShardJob
	if err := change(&spec); err != nil {
		return nil, after, err
	}
	if err := spec.Validate(); err != nil {
		return nil, after, err
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return nil, after, err
	}
	p, err := b.Store.CreatePlan(ctx, by, spec.Plan(name, now))
	if err != nil {
		return nil, after, err
	}
	after, err = shardJobOf(p)
	return nil, after, err
}

// SetShardJob creates a shard job, or changes its type, interval, attempts and note. The shard map of an existing job
// stays; see ChangeShardMap.
func (b *Backend) SetShardJob(ctx context.Context, by store.Actor, name string, spec plan.ShardJob) (after ShardJob, err error) {
	for range tries {
		_, after, err = b.EditShardJob(ctx, by, name, func(j *plan.ShardJob) error {
			zones := j.Zones
			*j = spec
			if len(zones) > 0 {
				j.Zones = zones
			}
			return nil
		})
		if !errors.Is(err, holdfast.ErrConflict) { // another process may have created the job meanwhile
			break
		}
	}
	return after, err
}

// ChangeShardMap gives a shard job the shard map that change returns. change gets a copy of the present one. Passes that
// run end within about a second, and save nothing more. Shards keep their offsets; new ones begin at 0, and the offsets
// of those that are no longer in the map are deleted. It returns the job before and after the change.
func (b *Backend) ChangeShardMap(
	ctx context.Context, by store.Actor, name string, change func(zones map[string]string) (map[string]string, error), checks ...func(ShardJob) error,
) (before, after ShardJob, err error) {
	return b.stepShardJob(ctx, by, name, store.ActionSet, checks, func(j ShardJob, now time.Time) (store.Plan, []string, error) {
		zones, err := change(maps.Clone(j.Spec.Zones))
		if err != nil || maps.Equal(zones, j.Spec.Zones) {
			return j.plan, nil, err
		}
		return j.Spec.Changed(j.plan, zones, now)
	})
}

// MoveShard moves a shard to another zone; see ChangeShardMap. It returns an ErrNotFound if the job has no such shard.
func (b *Backend) MoveShard(ctx context.Context, by store.Actor, name, shard, zone string, checks ...func(ShardJob) error) (before, after ShardJob, err error) {
	return b.ChangeShardMap(ctx, by, name, func(zones map[string]string) (map[string]string, error) {
		if _, known := zones[shard]; !known {
			return nil, fmt.Errorf("%w: shard job %s has no shard %s", holdfast.ErrNotFound, name, shard)
		}
		zones[shard] = zone
		return zones, nil
	}, checks...)
}

// DrainZone moves the shards of a zone to the other zones; see ChangeShardMap.
func (b *Backend) DrainZone(ctx context.Context, by store.Actor, name, zone string, checks ...func(ShardJob) error) (before, after ShardJob, err error) {
	return b.ChangeShardMap(ctx, by, name, func(zones map[string]string) (map[string]string, error) {
		j := plan.ShardJob{Zones: zones}
		return j.Drained(zone)
	}, checks...)
}

// DeleteShardJob ends a shard job. Passes that run end within about a second.
func (b *Backend) DeleteShardJob(ctx context.Context, by store.Actor, name string, checks ...func(ShardJob) error) (ShardJob, error) {
	before, _, err := b.stepShardJob(ctx, by, name, store.ActionDelete, checks, func(j ShardJob, _ time.Time) (store.Plan, []string, error) {
		return plan.Deleted(j.plan), nil, nil
	})
	return before, err
}
