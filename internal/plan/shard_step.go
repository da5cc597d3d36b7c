package plan

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// passPause is the time from a dead pass to the next one, if the passes have no interval. Otherwise a broken handler
// would make one dead task after another.
const passPause = time.Minute

// stepShards makes a step of a shard job: it stores the next pass of each zone that is due. It returns when the next step
// is due.
func (e *Engine) stepShards(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	job, progress, err := ReadShardJob(p)
	if err != nil {
		return time.Time{}, 0, err
	}
	var newest []ScheduleRun // also those that have ended: a person may have retried one
	for _, pass := range progress.Passes {
		newest = append(newest, ScheduleRun{Task: pass.Task})
	}
	states, err := RunStates(ctx, e.store, newest)
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
