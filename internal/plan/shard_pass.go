package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Reasons for a pass to end.
var (
	// ErrMapChanged means that the shard map has changed since the pass began. The next pass sees the new map.
	ErrMapChanged = errors.New("the shard map has changed")
	// ErrPassReplaced means that the zone has a newer pass. The pass was dead or cancelled, and a person has retried it.
	ErrPassReplaced = errors.New("the zone has a newer pass")
)

// Pass is one run of a shard job in a zone. It sees one shard map. It is not safe for concurrent use.
type Pass struct {
	Job  string
	Zone string

	store   store.Plans
	plan    store.ID
	fence   store.Fence
	version int64            // of the shard map
	offsets map[string]int64 // of the shards that the zone owns
}

// BeginPass reads the shard map and the offsets for the pass of an attempt. It returns ErrPassReplaced if the zone has a
// newer pass, and ErrNotFound if there is no such job.
func BeginPass(ctx context.Context, s store.Plans, payload PassPayload, task holdfast.Task) (*Pass, error) {
	p, err := s.PlanByName(ctx, store.ShardKind, payload.Job)
	if err != nil {
		return nil, err
	}
	job, progress, err := ReadShardJob(p)
	if err != nil {
		return nil, err
	}
	if progress.replaced(payload.Zone, task.ID) {
		return nil, ErrPassReplaced
	}
	// A map that is older than the one just read cannot save any more, so the offsets are final.
	stored, err := ReadOffsets(ctx, s, p.ID)
	if err != nil {
		return nil, err
	}
	pass := &Pass{
		Job: payload.Job, Zone: payload.Zone, store: s, plan: p.ID, version: job.Map, offsets: make(map[string]int64),
		fence: store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker},
	}
	for _, shard := range job.Shards(payload.Zone) {
		pass.offsets[shard] = stored[shard]
	}
	return pass, nil
}

// Shards returns the shards of the pass in the order of their names.
func (p *Pass) Shards() []string { return slices.Sorted(maps.Keys(p.offsets)) }

// Owns reports whether the pass handles a shard.
func (p *Pass) Owns(shard string) bool {
	_, owns := p.offsets[shard]
	return owns
}

// Offset returns the lowest offset of the shards: everything up to it is done in all of them.
func (p *Pass) Offset() int64 {
	if len(p.offsets) == 0 {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(p.offsets)))
}

// OffsetOf returns the offset of a shard of the pass.
func (p *Pass) OffsetOf(shard string) int64 { return p.offsets[shard] }

// saveTries is how often Save tries to save while janitors make steps of the job.
const saveTries = 50

// Save stores that everything up to the offset is done in the shards of the pass. The offset of a shard never decreases.
// Save returns ErrMapChanged if the shard map has changed, ErrPassReplaced if the zone has a newer pass, and
// store.ErrFenced if the attempt does not run any more. It has then changed nothing, and the pass must end.
func (p *Pass) Save(ctx context.Context, offset int64) error {
	var items []store.PlanItem
	for shard, stored := range p.offsets {
		if offset > stored {
			items = append(items, store.PlanItem{Item: shard, State: store.ItemOpen, Data: encode(shardItem{offset})})
		}
	}
	for range saveTries {
		plan, err := p.current(ctx)
		if err != nil {
			return err
		}
		switch err = p.store.SaveItems(ctx, plan, p.fence, items); {
		case err == nil:
			for _, i := range items {
				p.offsets[i.Item] = offset
			}
			return nil
		case !errors.Is(err, holdfast.ErrConflict):
			return err
		}
	}
	return fmt.Errorf("%w: janitors change shard job %s all the time", holdfast.ErrUnavailable, p.Job)
}

// Check returns ErrMapChanged if the shard map has changed since the pass began, and ErrPassReplaced if the zone has a
// newer pass.
func (p *Pass) Check(ctx context.Context) error {
	_, err := p.current(ctx)
	return err
}

// current returns the plan, ErrMapChanged or ErrPassReplaced.
func (p *Pass) current(ctx context.Context) (store.Plan, error) {
	plan, err := p.store.PlanByName(ctx, store.ShardKind, p.Job)
	if errors.Is(err, holdfast.ErrNotFound) {
		return plan, ErrMapChanged // a person has deleted the job
	}
	if err != nil {
		return plan, err
	}
	job, progress, err := ReadShardJob(plan)
	switch {
	case err != nil:
	case plan.ID != p.plan, job.Map != p.version:
		err = ErrMapChanged
	case progress.replaced(p.Zone, p.fence.Task):
		err = ErrPassReplaced
	}
	return plan, err
}
