package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Plan returns a new plan for a shard job, and the items of its shards. now is the time of the store.
func (j ShardJob) Plan(name string, now time.Time) store.Plan {
	j.Map = max(1, j.Map)
	return store.Plan{Kind: store.ShardKind, Name: name, State: store.PlanRunning, NextAt: now, Spec: encode(j)}
}

// Changed returns the plan with another shard map. Offsets stay: a shard that moves goes on from its offset, and a new
// shard begins at 0. drop has the items of the shards that are no longer in the map.
func (j ShardJob) Changed(p store.Plan, zones map[string]string, now time.Time) (after store.Plan, drop []string, err error) {
	for shard := range j.Zones {
		if _, stays := zones[shard]; !stays {
			drop = append(drop, shard)
		}
	}
	slices.Sort(drop)
	j.Zones = zones
	j.Map++
	p.Spec, p.NextAt = encode(j), now
	return p, drop, j.Validate()
}

// Drained returns the shard map without a zone: its shards go to the other zones, to the one with the fewest shards
// first. It returns an ErrInvalid if the zone has no shards, or if there is no other zone.
func (j *ShardJob) Drained(zone string) (map[string]string, error) {
	moving := j.Shards(zone)
	if len(moving) == 0 {
		return nil, fmt.Errorf("%w: the zone %s has no shards", holdfast.ErrInvalid, zone)
	}
	counts := make(map[string]int)
	for _, of := range j.Zones {
		counts[of]++
	}
	delete(counts, zone)
	if len(counts) == 0 {
		return nil, fmt.Errorf("%w: no other zone has shards; move them with a new shard map", holdfast.ErrInvalid)
	}
	zones := maps.Clone(j.Zones)
	for _, shard := range moving {
		least := slices.MinFunc(slices.Sorted(maps.Keys(counts)), func(a, b string) int { return cmp.Compare(counts[a], counts[b]) })
		zones[shard] = least
		counts[least]++
	}
	return zones, nil
}
