package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// passPause is the time from a dead pass to the next one, if the passes have no interval. Otherwise a broken handler
// would make dead tasks all the time.
const passPause = time.Minute

// stepShards makes a step of a shard job: it stores the next pass of each zone that is due. It returns when the next step
// is due.
func (e *Engine) stepShards(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	job, progress, err := ReadShardJob(p)
	if err != nil {
		return time.Time{}, 0, err
	}
	var newest []Run // also those that have ended: a person may have retried one
	for _, pass := range progress.Passes {
		newest = append(newest, Run{Task: pass.Task})
	}
	states, err := States(ctx, e.store, newest)
	if err != nil {
		return time.Time{}, 0, err
	}
	d := shardStep{job: job, passes: make(map[string]ShardPass), next: now.Add(time.Hour), moved: len(progress.Passes) == 0}
	zones := make(map[string]bool)
	for _, zone := range job.Zones {
		zones[zone] = true
	}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		d.zone(zone, progress.Passes[zone], states, now)
	}
	for zone, pass := range progress.Passes { // of zones that have lost all shards; the pass ends by itself
		if !zones[zone] && pass.Open {
			d.zone(zone, pass, states, now)
		}
	}
	if len(d.due) > 0 {
		d.due = slices.DeleteFunc(d.due, func(zone string) bool { return !zones[zone] })
	}
	if !d.moved && len(d.due) == 0 && p.Failures == 0 && d.poll > 0 {
		w := watch{plan: p, first: d.poll, slowest: openEvery, step: d.next}
		if next := now.Add(d.poll); next.Before(d.next) {
			d.next = next
		}
		if e.watchTasks(w, taskIDs(newest), states, now) || d.next.Sub(now) <= openEvery {
			return d.next, 0, nil
		}
	}
	if d.poll > 0 {
		d.at(now.Add(d.poll))
	}
	var tasks []holdfast.NewTask
	for _, zone := range d.due {
		tasks = append(tasks, holdfast.NewTask{
			Type: job.Type, Queue: zone, Key: p.Name, MaxAttempts: job.Attempts, Payload: encode(PassPayload{p.Name, zone}),
			Unique: shardPrefix + p.Name + "/" + zone + "/" + now.UTC().Format(sliceTime),
		})
	}
	after, err := e.store.StepPlan(ctx, store.PlanStep{From: p, Insert: tasks}, func(inserted store.Inserted) (store.Plan, []store.PlanItem) {
		passes := maps.Clone(d.passes)
		for i, zone := range d.due {
			passes[zone] = ShardPass{Task: inserted.Tasks[i].ID, Open: true, Next: now.Add(time.Duration(job.Every)).UTC()}
		}
		to := p
		to.Progress, to.NextAt = encode(ShardProgress{passes}), d.next
		return to, nil
	})
	if err != nil {
		return time.Time{}, 0, err
	}
	return after.NextAt, len(tasks), nil
}

// shardStep is what a step of a shard job does.
type shardStep struct {
	job    ShardJob
	passes map[string]ShardPass
	due    []string // zones whose next pass begins
	next   time.Time
	poll   time.Duration // the time between two checks of open passes; 0 if no pass is open
	moved  bool          // a pass has ended, or is open again
}

// zone decides what happens in a zone with the given newest pass.
func (d *shardStep) zone(zone string, pass ShardPass, states map[holdfast.TaskID]holdfast.State, now time.Time) {
	poll := openEvery
	if d.job.Every == 0 {
		poll = fullEvery
	}
	switch state := states[pass.Task]; {
	case state == holdfast.Ready || state == holdfast.Running:
		pass.Open, d.moved = true, d.moved || !pass.Open
		d.passes[zone], d.poll = pass, poll
		return
	case pass.Open:
		pass.Open, d.moved = false, true
		if pause := now.Add(passPause).UTC(); state == holdfast.Dead && pass.Next.Before(pause) {
			pass.Next = pause
		}
	}
	if setBack := pass.Next.Sub(now) > max(time.Duration(d.job.Every), passPause); pass.Next.After(now) && !setBack {
		d.passes[zone] = pass
		d.at(pass.Next)
		return
	}
	d.due = append(d.due, zone)
	d.at(now.Add(poll))
}

func (d *shardStep) at(t time.Time) {
	if t.Before(d.next) {
		d.next = t
	}
}

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
