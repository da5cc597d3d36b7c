package surface

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// ShardJob is the JSON form of a shard job.
type ShardJob struct {
	Name        string        `json:"name"`
	Type        string        `json:"type" doc:"The type of the passes, which selects the handler."`
	Every       plan.Duration `json:"every" doc:"The time from the begin of a pass to the begin of the next one; 0s: as soon as the pass has ended."`
	MaxAttempts int           `json:"max_attempts,omitempty" doc:"Missing: the setting of the type."`
	Note        string        `json:"note,omitempty"`
	MapVersion  int64         `json:"map_version" doc:"The version of the shard map. Each change of the map increases it."`
	Shards      int           `json:"shards" doc:"How many shards the job has."`
	Zones       []ShardZone   `json:"zones" doc:"The zones, in the order of their names."`
	StepFailure
	Actor     string        `json:"actor" doc:"Who created the job."`
	Surface   store.Surface `json:"surface"`
	Reason    string        `json:"reason,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
}

// ShardZone is the JSON form of a zone of a shard job.
type ShardZone struct {
	Zone       string          `json:"zone" doc:"The zone, which is the name of its queue."`
	Shards     int             `json:"shards" doc:"How many shards the zone has; 0: its last pass has not ended yet."`
	Task       holdfast.TaskID `json:"task,omitzero" doc:"The task of the newest pass; missing if there was none."`
	Open       bool            `json:"open" doc:"The pass had not ended when a janitor last looked."`
	NextPassAt time.Time       `json:"next_pass_at,omitzero" doc:"The earliest begin of the next pass."`
	// GetShardJob sets State and Offset.
	State  holdfast.State `json:"state,omitempty" doc:"The state of that task; missing in lists."`
	Offset *int64         `json:"offset,omitempty" doc:"The lowest offset of the shards of the zone, with which its next pass begins; missing in lists."`
}

// ShardJobOf returns the JSON form of a shard job.
func ShardJobOf(j app.ShardJob) ShardJob {
	spec := j.Spec
	form := ShardJob{
		Name: j.Name, Type: spec.Type, Every: spec.Every, MaxAttempts: spec.Attempts, Note: spec.Note, MapVersion: spec.Map, Shards: len(spec.Zones),
	}
	zones := make(map[string]ShardZone)
	for _, zone := range spec.Zones {
		z := zones[zone]
		z.Shards++
		zones[zone] = z
	}
	for zone, pass := range j.Progress.Passes {
		if z, owns := zones[zone]; owns || pass.Open {
			z.Task, z.Open, z.NextPassAt = pass.Task, pass.Open, pass.Next
			zones[zone] = z
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		z := zones[zone]
		z.Zone = zone
		form.Zones = append(form.Zones, z)
	}
	form.FailedSteps, form.Failure = j.Failing()
	by, at := j.Creator()
	form.Actor, form.Surface, form.Reason, form.CreatedAt = by.Name, by.Surface, by.Reason, at
	return form
}

// GetShardJob returns the shard job with a name, with the offsets of its zones and the states of its passes, and what
// it was made from.
func GetShardJob(ctx context.Context, b *app.Backend, name string) (ShardJob, app.ShardJob, error) {
	j, err := b.ShardJob(ctx, name)
	if err != nil {
		return ShardJob{}, j, err
	}
	offsets, err := b.ShardOffsets(ctx, j)
	if err != nil {
		return ShardJob{}, j, err
	}
	var passes []holdfast.TaskID
	for _, pass := range j.Progress.Passes {
		passes = append(passes, pass.Task)
	}
	tasks, err := b.Store.TasksByID(ctx, passes)
	if err != nil {
		return ShardJob{}, j, err
	}
	states := make(map[holdfast.TaskID]holdfast.State)
	for _, task := range tasks {
		states[task.ID] = task.State
	}
	lowest := make(map[string]*int64)
	for shard, zone := range j.Spec.Zones {
		if offset := offsets[shard]; lowest[zone] == nil || offset < *lowest[zone] {
			lowest[zone] = &offset
		}
	}
	form := ShardJobOf(j)
	for i := range form.Zones {
		z := &form.Zones[i]
		z.State, z.Offset = states[z.Task], lowest[z.Zone]
	}
	return form, j, nil
}

// ShardJobQuery is a request for a page of shard jobs.
type ShardJobQuery struct {
	Limit int    `query:"limit" flag:"N" default:"50" minimum:"1" maximum:"1000" most:"1000" doc:"At most so many shard jobs."`
	After string `query:"after" flag:"NAME" doc:"Only greater names: the value next of the page before."`
}

// ListShardJobs reads a page of shard jobs in the order of their names, and the name after which the next page begins,
// which is nil on the last page.
func ListShardJobs(ctx context.Context, b *app.Backend, r ShardJobQuery) ([]Listed[ShardJob, app.ShardJob], *string, error) {
	found, err := b.ShardJobs(ctx, r.After, r.Limit+1)
	page, next := listed(found, r.Limit, ShardJobOf, func(j app.ShardJob) string { return j.Name })
	return page, next, err
}

// ZoneMap is the zone of each shard.
type ZoneMap map[string]string

// UnmarshalJSON implements json.Unmarshaler. It refuses a shard that is given twice.
func (m *ZoneMap) UnmarshalJSON(text []byte) error {
	*m = nil
	if string(text) == "null" {
		return nil
	}
	return ReadObject(text, "the shard map", (*map[string]string)(m))
}

// ParseZones parses a shard map in the form 0=a,1=a,2=b. Each text may have several shards.
func ParseZones(texts []string) (ZoneMap, error) {
	zones := make(ZoneMap)
	for _, text := range texts {
		for pair := range strings.SplitSeq(text, ",") {
			shard, zone, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if _, twice := zones[shard]; twice {
				return nil, fmt.Errorf("%w: the shard %.120q is given twice", holdfast.ErrInvalid, shard)
			}
			if !ok || shard == "" || zone == "" {
				return nil, fmt.Errorf("%w: %.120q is not a shard and a zone, such as 0=a", holdfast.ErrInvalid, pair)
			}
			zones[shard] = zone
		}
	}
	return zones, nil
}

// ShardJobSettings are the settings of a shard job that a request changes. A missing member keeps its value.
type ShardJobSettings struct {
	Type        Optional[string] `json:"type,omitzero" flag:"TYPE" doc:"The type of the passes, which selects the handler; a new job needs it."`
	Every       Optional[string] `json:"every,omitzero" flag:"DURATION" doc:"The time from the begin of a pass to the begin of the next one, at least 1s; null or 0s: as soon as the pass has ended."`
	MaxAttempts Optional[int]    `json:"max_attempts,omitzero" flag:"N" minimum:"1" doc:"A pass is dead after so many failed attempts; null restores the limit of the type."`
	Note        Optional[string] `json:"note,omitzero" flag:"TEXT" doc:"A text for people, of at most 1000 bytes; null removes it."`
}

// SetShardJobRequest is a request to create a shard job, or to change it.
type SetShardJobRequest struct {
	ShardJobSettings
	Zones       ZoneMap `json:"zones,omitempty" doc:"The shard map: the zone of each shard. A new job needs it. If it is missing, the map stays."`
	DropOffsets bool    `json:"drop_offsets,omitempty" flag:"-" doc:"The map may lack shards that have an offset; their offsets are deleted."`
	Reason      string  `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// apply changes a shard job.
func (r SetShardJobRequest) apply(j *plan.ShardJob) error {
	if r.Type.Given {
		j.Type = r.Type.Or("")
	}
	if r.Every.Given {
		if err := j.Every.UnmarshalText([]byte(r.Every.Or("0s"))); err != nil {
			return fmt.Errorf("%w: every %.100q is not a duration like 5m or 1h30m", holdfast.ErrInvalid, r.Every.Or(""))
		}
	}
	if n := r.MaxAttempts.Value; n != nil && *n < 1 {
		return fmt.Errorf("%w: max_attempts %d must be at least 1", holdfast.ErrInvalid, *n)
	}
	if r.MaxAttempts.Given {
		j.Attempts = r.MaxAttempts.Or(0)
	}
	if r.Note.Given {
		j.Note = r.Note.Or("")
	}
	if r.Zones != nil {
		j.Zones = maps.Clone(map[string]string(r.Zones))
	}
	return nil
}

// Check returns an error if the request is invalid for every shard job.
func (r SetShardJobRequest) Check() error {
	if reflect.ValueOf(r.ShardJobSettings).IsZero() && r.Zones == nil {
		return fmt.Errorf("%w: nothing to change; give at least one new value", holdfast.ErrInvalid)
	}
	j := plan.ShardJob{Type: "any", Zones: map[string]string{"any": "any"}}
	return cmp.Or(r.apply(&j), j.Validate())
}

// MovedShard is a shard that another zone has after a change of the shard map.
type MovedShard struct {
	Shard  string `json:"shard"`
	From   string `json:"from,omitempty" doc:"The zone before the change; missing if the shard is new."`
	To     string `json:"to,omitempty" doc:"The zone after the change; missing if the map lacks the shard now."`
	Offset int64  `json:"offset" doc:"How far the shard was done at the change. The next pass begins with the lowest offset of its shards."`
}

// movedShards compares two shard maps. offsets are those at the change.
func movedShards(before, after map[string]string, offsets map[string]int64) []MovedShard {
	moved := []MovedShard{}
	for shard, zone := range after {
		if from := before[shard]; from != zone {
			moved = append(moved, MovedShard{shard, from, zone, offsets[shard]})
		}
	}
	for shard, zone := range before {
		if _, stays := after[shard]; !stays {
			moved = append(moved, MovedShard{shard, zone, "", offsets[shard]})
		}
	}
	slices.SortFunc(moved, func(a, b MovedShard) int { return compareShards(a.Shard, b.Shard) })
	return moved
}

// compareShards compares the names of two shards. Names that are numbers are in the order of the numbers.
func compareShards(a, b string) int {
	number := func(name string) bool { return strings.Trim(name, "0123456789") == "" }
	if number(a) && number(b) {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	}
	return strings.Compare(a, b)
}

// ShardJobSet is the answer to a request that creates or changes a shard job.
type ShardJobSet struct {
	ShardJob
	Before *ShardJob    `json:"before,omitempty" doc:"The job before the change; missing if there was none."`
	Moved  []MovedShard `json:"moved" doc:"The shards whose zone has changed. A new job has none."`
}

// SetShardJob creates or changes a shard job. check, if it is not nil, may refuse that; before is nil if there is no
// job with the name.
func SetShardJob(
	ctx context.Context, b *app.Backend, by store.Actor, name string, r SetShardJobRequest, check func(before *app.ShardJob) error,
) (ShardJobSet, app.ShardJob, error) {
	by.Reason = r.Reason
	if err := cmp.Or(plan.CheckName(name), r.Check()); err != nil {
		return ShardJobSet{}, app.ShardJob{}, err
	}
	var offsets map[string]int64
	before, after, err := b.EditShardJob(ctx, by, name, r.apply, func(before *app.ShardJob) (err error) {
		if check != nil {
			err = check(before)
		}
		if err == nil && before != nil && r.Zones != nil {
			offsets, err = checkDropped(ctx, b, *before, r.Zones, r.DropOffsets)
		}
		return err
	})
	if err != nil {
		return ShardJobSet{}, after, err
	}
	set := ShardJobSet{ShardJob: ShardJobOf(after), Moved: []MovedShard{}}
	if before != nil {
		set.Before = new(ShardJobOf(*before))
		set.Moved = movedShards(before.Spec.Zones, after.Spec.Zones, offsets)
	}
	return set, after, nil
}

// checkDropped returns the offsets of a job. It returns an ErrConflict if a new shard map lacks a shard with an offset,
// and the request does not allow that.
func checkDropped(ctx context.Context, b *app.Backend, j app.ShardJob, zones map[string]string, allowed bool) (map[string]int64, error) {
	offsets, err := b.ShardOffsets(ctx, j)
	if err != nil || allowed {
		return offsets, err
	}
	var dropped []string
	for shard, offset := range offsets {
		if _, stays := zones[shard]; !stays && offset != 0 {
			dropped = append(dropped, shard)
		}
	}
	if len(dropped) == 0 {
		return offsets, nil
	}
	slices.SortFunc(dropped, compareShards)
	text := fmt.Sprintf("the map lacks the shard %s, which has the offset %d", dropped[0], offsets[dropped[0]])
	if n := len(dropped); n > 1 {
		text = fmt.Sprintf("the map lacks %d shards that have offsets, such as the shard %s with the offset %d", n, dropped[0], offsets[dropped[0]])
	}
	return offsets, holdfast.WithHint(fmt.Errorf("%w: %s", holdfast.ErrConflict, text), holdfast.Hint{Kind: holdfast.HintDropOffsets, Arg: j.Name})
}

// ShardMap is the JSON form of the shard map of a job, with the offsets.
type ShardMap struct {
	Job        string       `json:"job"`
	MapVersion int64        `json:"map_version" doc:"The version of the shard map. Each change of the map increases it."`
	Shards     []OwnedShard `json:"shards" doc:"The shards, in the order of their names or numbers."`
}

// OwnedShard is the JSON form of a shard.
type OwnedShard struct {
	Shard  string `json:"shard"`
	Zone   string `json:"zone"`
	Offset int64  `json:"offset" doc:"How far the shard is done; 0 for a new one."`
}

// GetShardMap returns the shard map of a job with the offsets, and the job.
func GetShardMap(ctx context.Context, b *app.Backend, name string) (ShardMap, app.ShardJob, error) {
	j, err := b.ShardJob(ctx, name)
	if err != nil {
		return ShardMap{}, j, err
	}
	offsets, err := b.ShardOffsets(ctx, j)
	m := ShardMap{Job: name, MapVersion: j.Spec.Map, Shards: []OwnedShard{}}
	for shard, zone := range j.Spec.Zones {
		m.Shards = append(m.Shards, OwnedShard{shard, zone, offsets[shard]})
	}
	slices.SortFunc(m.Shards, func(a, b OwnedShard) int { return compareShards(a.Shard, b.Shard) })
	return m, j, err
}

// ShardMapChange is the answer to a request that changes a shard map.
type ShardMapChange struct {
	Job        string       `json:"job"`
	MapVersion int64        `json:"map_version" doc:"The version of the shard map after the change."`
	Moved      []MovedShard `json:"moved" doc:"The shards whose zone has changed."`
}

// changeShardMap returns what a change that keeps all shards has done. change gets the checks of the change.
func changeShardMap(
	ctx context.Context, b *app.Backend, name string, checks []func(*app.ShardJob) error,
	change func(checks ...func(*app.ShardJob) error) (before *app.ShardJob, after app.ShardJob, err error),
) (ShardMapChange, app.ShardJob, error) {
	var offsets map[string]int64
	before, after, err := change(append(slices.Clone(checks), func(j *app.ShardJob) (err error) {
		offsets, err = b.ShardOffsets(ctx, *j)
		return err
	})...)
	if err != nil {
		return ShardMapChange{}, after, err
	}
	return ShardMapChange{name, after.Spec.Map, movedShards(before.Spec.Zones, after.Spec.Zones, offsets)}, after, nil
}

// ShardMove is a request to move a shard to another zone.
type ShardMove struct {
	Shard  string `json:"shard" arg:"1" doc:"The shard."`
	To     string `json:"to" flag:"ZONE" required:"true" doc:"The zone that gets the shard, which is the name of its queue."`
	Reason string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// Check returns an error if the request is invalid.
func (r ShardMove) Check() error {
	return (&plan.ShardJob{Type: "any", Zones: map[string]string{r.Shard: r.To}}).Validate()
}

// MoveShard moves a shard with its offset to another zone.
func MoveShard(
	ctx context.Context, b *app.Backend, by store.Actor, name string, r ShardMove, checks ...func(*app.ShardJob) error,
) (ShardMapChange, app.ShardJob, error) {
	by.Reason = r.Reason
	if err := r.Check(); err != nil {
		return ShardMapChange{}, app.ShardJob{}, err
	}
	return changeShardMap(ctx, b, name, checks, func(checks ...func(*app.ShardJob) error) (*app.ShardJob, app.ShardJob, error) {
		return b.MoveShard(ctx, by, name, r.Shard, r.To, checks...)
	})
}

// ZoneDrain is a request to move all shards of a zone to the other zones.
type ZoneDrain struct {
	Zone   string `json:"zone" arg:"1" doc:"The zone that loses its shards."`
	Reason string `json:"reason,omitempty" flag:"TEXT" doc:"Why, for the audit log."`
}

// DrainZone moves the shards of a zone with their offsets to the other zones, so that those have similar numbers.
func DrainZone(
	ctx context.Context, b *app.Backend, by store.Actor, name string, r ZoneDrain, checks ...func(*app.ShardJob) error,
) (ShardMapChange, app.ShardJob, error) {
	by.Reason = r.Reason
	return changeShardMap(ctx, b, name, checks, func(checks ...func(*app.ShardJob) error) (*app.ShardJob, app.ShardJob, error) {
		return b.DrainZone(ctx, by, name, r.Zone, checks...)
	})
}
