package plan

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// ShardJob is a job over data that zones own by shard. In each zone with shards, one pass after another runs as a task in
// the queue of the zone.
type ShardJob struct {
	Type     string   `json:"type"`
	Every    Duration `json:"every,omitzero"` // from the begin of a pass to the next one; 0: as soon as the pass has ended
	Attempts int      `json:"max_attempts,omitempty"`
	Note     string   `json:"note,omitempty"`
	// Zones is the shard map: the zone of each shard, which is the name of its queue. Map is the version of the shard
	// map. Each change of Zones increases it.
	Zones map[string]string `json:"zones"`
	Map   int64             `json:"map"`
}

// Limits of shard jobs.
const (
	MaxShards    = 10_000
	maxShardName = 100 // bytes
)

// Validate returns an ErrInvalid that describes the first problem of the job, or nil.
func (j *ShardJob) Validate() error {
	switch {
	case j.Type == "":
		return invalid("a shard job needs the type of its passes")
	case j.Type == holdfast.TypeHTTP:
		return invalid("the type http cannot run passes, because its tasks deliver webhooks; use a type of your own")
	case j.Every < 0 || j.Every > 0 && time.Duration(j.Every) < MinEvery || time.Duration(j.Every) > MaxDuration:
		return invalid("the time %s between passes must be 0, or between %s and ten years (%s)", time.Duration(j.Every), MinEvery, MaxDuration)
	case j.Attempts < 0:
		return invalid("max attempts %d must be at least 1, or 0 for the setting of the type", j.Attempts)
	case len(j.Note) > maxNote:
		return invalid("the note has %d bytes, the limit is %d", len(j.Note), maxNote)
	case len(j.Zones) == 0:
		return invalid("the shard map is empty; give the zone of each shard")
	case len(j.Zones) > MaxShards:
		return invalid("the shard map has %d shards, the limit is %d", len(j.Zones), MaxShards)
	}
	if err := (holdfast.NewTask{Type: j.Type}).Validate(0); err != nil {
		return err
	}
	for _, shard := range slices.Sorted(maps.Keys(j.Zones)) {
		if shard == "" || len(shard) > maxShardName || !utf8.ValidString(shard) || strings.ContainsAny(shard, "=, \t\r\n\x00") {
			return invalid("the shard %.120q must be 1 to %d bytes of text without spaces, commas and =", shard, maxShardName)
		}
		zone := j.Zones[shard]
		if zone == "" {
			return invalid("the shard %s has no zone", shard)
		}
		if err := (holdfast.NewTask{Type: "any", Queue: zone}).Validate(0); err != nil {
			return invalid("the zone %.120q must be at most %d lower-case letters, digits, _ or -, because it is the name of its queue",
				zone, holdfast.MaxNameLength)
		}
	}
	return nil
}

// Shards returns the shards of a zone in the order of their names.
func (j *ShardJob) Shards(zone string) []string {
	var shards []string
	for shard, of := range j.Zones {
		if of == zone {
			shards = append(shards, shard)
		}
	}
	slices.Sort(shards)
	return shards
}

// ShardProgress has the passes of a shard job by zone.
type ShardProgress struct {
	Passes map[string]ShardPass `json:"passes,omitempty"`
}

// ShardPass is the newest pass of a zone.
type ShardPass struct {
	Task holdfast.TaskID `json:"task"`
	Open bool            `json:"open"` // its task was not final at the last step
	Next time.Time       `json:"next"` // the earliest begin of the next pass
}

// replaced reports whether a zone has a newer pass than the task.
func (p ShardProgress) replaced(zone string, task holdfast.TaskID) bool {
	return p.Passes[zone].Task > task
}

// ReadShardJob returns the job of a plan and its progress.
func ReadShardJob(p store.Plan) (j ShardJob, progress ShardProgress, err error) {
	if err := decode(p.Spec, &j); err != nil {
		return j, progress, err
	}
	return j, progress, decode(p.Progress, &progress)
}

// shardItem is the data of the item of a shard. A shard without an item has the offset 0.
type shardItem struct {
	Offset int64 `json:"offset"`
}

// ReadOffsets returns the offsets of the shards of a job. Shards with the offset 0 are missing.
func ReadOffsets(ctx context.Context, s store.Plans, plan store.ID) (map[string]int64, error) {
	offsets := make(map[string]int64)
	for after := ""; ; {
		items, err := s.PlanItems(ctx, plan, store.PlanItemFilter{State: store.ItemOpen, After: after, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, i := range items {
			var data shardItem
			if err := decode(i.Data, &data); err != nil {
				return nil, err
			}
			offsets[i.Item], after = data.Offset, i.Item
		}
		if len(items) < 1000 {
			return offsets, nil
		}
	}
}

// PassPayload is the payload of the task of a pass.
type PassPayload struct {
	Job  string `json:"job"`
	Zone string `json:"zone"`
}

// shardPrefix begins the unique keys of the tasks of passes: shard/JOB/ZONE/TIME.
const shardPrefix = "shard/"

// PassOrigin returns the name of the job and the zone of a task from its unique key. ok is false if the key has another
// form. A program can store a task with such a key, too.
func PassOrigin(unique string) (job, zone string, ok bool) {
	parts := strings.Split(unique, "/")
	if len(parts) != 4 || parts[0]+"/" != shardPrefix {
		return "", "", false
	}
	_, err := time.Parse(sliceTime, parts[3])
	return parts[1], parts[2], err == nil
}
