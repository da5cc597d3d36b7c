package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// shardJob returns a job whose passes follow each other at once.
func shardJob(zones map[string]string) plan.ShardJob {
	return plan.ShardJob{Type: "report", Zones: zones}
}

// createShardJob stores a job with the name scan.
func (w *world) createShardJob(j plan.ShardJob) {
	w.Helper()
	w.must(j.Validate())
	_, err := w.CreatePlan(w.Context(), anna, j.Plan("scan", w.now))
	w.must(err)
}

// moveShards changes the shard map.
func (w *world) moveShards(change func(zones map[string]string)) {
	w.Helper()
	p, err := w.PlanByName(w.Context(), store.ShardKind, "scan")
	w.must(err)
	j, _, err := plan.ReadShardJob(p)
	w.must(err)
	zones := maps.Clone(j.Zones)
	change(zones)
	to, drop, err := j.Changed(p, zones, w.now)
	w.must(err)
	_, err = w.Client.StepPlan(w.Context(), store.PlanStep{From: p, Drop: drop, By: &anna, Action: store.ActionSet}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		return to, nil
	})
	w.must(err)
}

// offsets returns the stored offsets.
func (w *world) offsets() map[string]int64 {
	w.Helper()
	p, err := w.PlanByName(w.Context(), store.ShardKind, "scan")
	w.must(err)
	offsets, err := plan.ReadOffsets(w.Context(), w, p.ID)
	w.must(err)
	return offsets
}

// begin claims the open task of a zone and begins its pass. It returns nil if the zone has no open task.
func (w *world) begin(zone string) (*plan.Pass, holdfast.Task) {
	w.Helper()
	task, payload := w.claim(zone)
	if task.ID == 0 {
		return nil, task
	}
	pass, err := plan.BeginPass(w.Context(), w, payload, task)
	w.must(err)
	return pass, task
}

// claim claims the open task of a zone. It returns an empty task if the zone has no open task.
func (w *world) claim(zone string) (task holdfast.Task, payload plan.PassPayload) {
	w.Helper()
	page, err := w.List(w.Context(), store.Filter{Queue: zone, States: []holdfast.State{holdfast.Ready}, Limit: 10})
	w.must(err)
	for _, task := range page.Tasks {
		if task.NextRunAt.After(w.now) {
			continue
		}
		worker, err := w.RegisterWorker(w.Context(), store.WorkerInfo{Name: "w"}, 100*time.Hour)
		w.must(err)
		claims, err := w.Claim(w.Context(), worker, store.AnyOf("report"), []ticket{{Task: task.ID, Attempt: task.Attempt}}, store.IntoExecutors)
		w.must(err)
		if claims[0].Verdict != store.Claimed {
			continue
		}
		full, err := w.Task(w.Context(), task.ID)
		w.must(err)
		w.must(json.Unmarshal(full.Payload, &payload))
		return *claims[0].Task, payload
	}
	return holdfast.Task{}, payload
}

// settle ends an attempt.
func (w *world) settle(task holdfast.Task, cause holdfast.Cause) {
	w.Helper()
	move, err := holdfast.Settle(task, cause, w.now, holdfast.DefaultPolicy())
	w.must(err)
	_, err = w.Apply(w.Context(), []holdfast.Transition{move})
	w.must(err)
}

// Zone a has the shards 1 and 2 at the offset 3, zone b has the shard 0 at the offset 7. If the shard 1 moves to b, the
// pass of b ends, and the next one begins at 3.
func TestAShardThatMovesGoesOnFromItsOffset(t *testing.T) {
	w := newWorld(t, 1)
	w.createShardJob(shardJob(map[string]string{"0": "b", "1": "a", "2": "a"}))
	w.step()
	a, taskA := w.begin("a")
	b, taskB := w.begin("b")
	if !slices.Equal(a.Shards(), []string{"1", "2"}) || !slices.Equal(b.Shards(), []string{"0"}) {
		t.Fatalf("the passes have the shards %v and %v", a.Shards(), b.Shards())
	}
	w.must(a.Save(t.Context(), 3))
	w.must(b.Save(t.Context(), 7))
	w.must(b.Save(t.Context(), 5)) // an offset never decreases
	w.moveShards(func(zones map[string]string) { zones["1"] = "b" })
	for _, pass := range []*plan.Pass{a, b} {
		if err := pass.Check(t.Context()); !errors.Is(err, plan.ErrMapChanged) {
			t.Errorf("the pass of %s sees: %v", pass.Zone, err)
		}
		if err := pass.Save(t.Context(), 100); !errors.Is(err, plan.ErrMapChanged) {
			t.Errorf("the pass of %s saves: %v", pass.Zone, err)
		}
	}
	w.settle(taskA, holdfast.Returned(nil))
	w.settle(taskB, holdfast.Returned(nil))
	w.now = w.now.Add(time.Second)
	w.step()
	b, _ = w.begin("b")
	if b.Offset() != 3 || !b.Owns("1") || !b.Owns("0") || b.Owns("2") || b.OffsetOf("0") != 7 {
		t.Errorf("the next pass of b has the shards %v from %d", b.Shards(), b.Offset())
	}
	a, _ = w.begin("a")
	if a.Offset() != 3 || !slices.Equal(a.Shards(), []string{"2"}) {
		t.Errorf("the next pass of a has the shards %v from %d", a.Shards(), a.Offset())
	}
	w.must(b.Save(t.Context(), 9))
	if got := w.offsets(); !maps.Equal(got, map[string]int64{"0": 9, "1": 9, "2": 3}) {
		t.Errorf("the offsets are %v", got)
	}
}

func TestAPassOfAnEndedAttemptSavesNothing(t *testing.T) {
	w := newWorld(t, 1)
	w.createShardJob(shardJob(map[string]string{"0": "a"}))
	w.step()
	old, task := w.begin("a")
	w.settle(task, holdfast.Crashed(5))
	w.now = w.now.Add(time.Minute)
	pass, _ := w.begin("a")
	if err := old.Save(t.Context(), 5); !errors.Is(err, store.ErrFenced) {
		t.Errorf("the first attempt saves: %v", err)
	}
	w.must(pass.Save(t.Context(), 4))
	if got := w.offsets(); got["0"] != 4 {
		t.Errorf("the offsets are %v", got)
	}
}

// A person retries a dead pass after the zone has begun the next one. The dead pass ends at once, and lowers no offset.
func TestARetriedPassDoesNothingBesideANewerOne(t *testing.T) {
	w := newWorld(t, 1)
	w.createShardJob(shardJob(map[string]string{"0": "a"}))
	w.step()
	old, dead := w.begin("a")
	w.must(old.Save(t.Context(), 3))
	w.settle(dead, holdfast.Returned(holdfast.Permanent(errors.New("no use"))))
	for range 2 { // the next pass begins a minute after a step has seen the death
		w.now = w.now.Add(2 * time.Minute)
		w.step()
	}
	newer, _ := w.begin("a")
	w.must(newer.Save(t.Context(), 10))
	w.requeue(dead)
	task, payload := w.claim("a")
	if _, err := plan.BeginPass(t.Context(), w, payload, task); task.ID != dead.ID || !errors.Is(err, plan.ErrPassReplaced) {
		t.Errorf("the retried pass %s begins: %v", task.ID, err)
	}
	if err := old.Check(t.Context()); !errors.Is(err, plan.ErrPassReplaced) {
		t.Errorf("the old pass sees: %v", err)
	}
}

// A person retries a dead pass while a janitor stores the next pass of its zone. The retried pass runs, and lowers no
// offset.
func TestAPassThatIsReplacedWhileItRunsSavesNothing(t *testing.T) {
	w := newWorld(t, 1)
	w.createShardJob(shardJob(map[string]string{"0": "a"}))
	w.step()
	_, dead := w.begin("a")
	w.settle(dead, holdfast.Returned(holdfast.Permanent(errors.New("no use"))))
	w.requeue(dead)
	retried, _ := w.begin("a")
	w.must(retried.Save(t.Context(), 3))
	w.replacePass("a")
	newer, _ := w.begin("a")
	w.must(newer.Save(t.Context(), 10))
	if err := retried.Save(t.Context(), 7); !errors.Is(err, plan.ErrPassReplaced) {
		t.Errorf("the retried pass saves: %v", err)
	}
	if got := w.offsets(); got["0"] != 10 {
		t.Errorf("the offsets are %v", got)
	}
}

// replacePass stores another pass of a zone, as a janitor does that has read the state of the newest one before.
func (w *world) replacePass(zone string) {
	w.Helper()
	p, err := w.PlanByName(w.Context(), store.ShardKind, "scan")
	w.must(err)
	_, progress, err := plan.ReadShardJob(p)
	w.must(err)
	payload, err := json.Marshal(plan.PassPayload{Job: "scan", Zone: zone})
	w.must(err)
	task := holdfast.NewTask{Type: "report", Queue: zone, Payload: payload}
	_, err = w.Client.StepPlan(w.Context(), store.PlanStep{From: p, Insert: []holdfast.NewTask{task}}, func(inserted store.Inserted) (store.Plan, []store.PlanItem) {
		progress.Passes[zone] = plan.ShardPass{Task: inserted.Tasks[0].ID, Open: true}
		to := p
		to.Progress, err = json.Marshal(progress)
		return to, nil
	})
	w.must(err)
}

// A person retries a dead pass before the zone has begun the next one. Then it is the pass of the zone again.
func TestARetriedPassIsThePassOfItsZone(t *testing.T) {
	w := newWorld(t, 1)
	w.createShardJob(shardJob(map[string]string{"0": "a"}))
	w.step()
	_, dead := w.begin("a")
	w.settle(dead, holdfast.Returned(holdfast.Permanent(errors.New("no use"))))
	w.now = w.now.Add(2 * time.Second)
	w.step()
	w.requeue(dead)
	w.now = w.now.Add(2 * time.Minute)
	w.step()
	if got := len(w.tasks()); got != 1 {
		t.Errorf("%d tasks, although the retried pass is open", got)
	}
	pass, task := w.begin("a")
	w.must(pass.Save(t.Context(), 5))
	w.settle(task, holdfast.Returned(nil))
	w.now = w.now.Add(2 * time.Minute)
	w.step()
	if got := len(w.tasks()); got != 2 {
		t.Errorf("%d tasks after the retried pass has ended", got)
	}
}

func TestPassesFollowEachOther(t *testing.T) {
	w := newWorld(t, 1)
	j := shardJob(map[string]string{"0": "a", "1": "b"})
	j.Every = plan.Duration(10 * time.Minute)
	w.createShardJob(j)
	w.step()
	if got := w.tasks(); len(got) != 2 || got[0].Queue != "a" || got[1].Queue != "b" || got[0].Key != "scan" {
		t.Fatalf("tasks %+v", got)
	}
	if job, zone, ok := plan.PassOrigin(w.tasks()[0].Unique); job != "scan" || zone != "a" || !ok {
		t.Errorf("the unique key is %s", w.tasks()[0].Unique)
	}
	_, task := w.begin("a")
	w.settle(task, holdfast.Returned(nil))
	w.now = begin.Add(9 * time.Minute)
	w.step()
	if got := len(w.tasks()); got != 2 {
		t.Errorf("%d tasks before the interval has ended", got)
	}
	w.now = begin.Add(10*time.Minute + time.Second)
	w.step()
	if got := w.tasks(); len(got) != 3 || got[2].Queue != "a" { // the pass of b is open
		t.Errorf("tasks %+v", got)
	}
	w.end(1, holdfast.EventGiveUp)
	w.now = w.now.Add(5 * time.Second)
	w.step()
	if got := len(w.tasks()); got != 3 {
		t.Errorf("%d tasks at once after a dead pass", got)
	}
}

func TestDrainedZonesGiveTheirShardsToTheOthers(t *testing.T) {
	j := shardJob(map[string]string{"0": "a", "1": "a", "2": "a", "3": "b", "4": "c", "5": "c"})
	zones, err := j.Drained("a")
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for _, zone := range zones {
		counts[zone]++
	}
	if !maps.Equal(counts, map[string]int{"b": 3, "c": 3}) || zones["3"] != "b" || zones["4"] != "c" {
		t.Errorf("the map is %v", zones)
	}
	if _, err := j.Drained("z"); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a zone without shards: %v", err)
	}
	one := shardJob(map[string]string{"0": "a"})
	if _, err := one.Drained("a"); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("the only zone: %v", err)
	}
}

// running is a pass that a test runs in parts.
type running struct {
	pass *plan.Pass
	task holdfast.Task
	todo []int64 // items that it has read and not handled
	last int64   // the last item that it has read
}

// Three zones scan the same items, each the items of its shards. The map changes, attempts crash, and calls fail before
// and after their effects. No item is left out, and an item is handled again only if its pass ended before it saved, or
// if a shard with a lower offset came to its zone.
func TestMovesAndKillsSkipNoItem(t *testing.T) {
	seeds := 10
	if slow.All() {
		seeds = 1000
	}
	const items, shards, page = 200, 7, 5
	zones := []string{"a", "b", "c"}
	for seed := range uint64(seeds) {
		w := newWorld(t, seed)
		owners := make(map[string]string)
		for i := range shards {
			owners[fmt.Sprint(i)] = zones[i%len(zones)]
		}
		w.createShardJob(shardJob(owners))
		handled, repeats, allowed := make(map[int64]int), 0, 0
		active := make(map[string]*running)
		engine := plan.New(w)
		stop := func(zone string, cause holdfast.Cause) {
			allowed += page // of the page that was not saved
			w.settle(active[zone].task, cause)
			delete(active, zone)
		}
		done := func() bool { return len(handled) == items }
		for step := 0; !done(); step++ {
			if step > 20_000 {
				t.Fatalf("seed %d: %d of %d items are handled", seed, len(handled), items)
			}
			w.now = w.now.Add(time.Duration(w.rng.IntN(2000)) * time.Millisecond)
			w.faults = 0.1
			if _, _, err := engine.Advance(t.Context()); err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			w.faults = 0
			if w.rng.IntN(30) == 0 {
				w.moveShards(func(owners map[string]string) { owners[fmt.Sprint(w.rng.IntN(shards))] = zones[w.rng.IntN(len(zones))] })
			}
			zone := zones[w.rng.IntN(len(zones))]
			r := active[zone]
			switch {
			case r == nil:
				pass, task := w.begin(zone)
				if pass == nil {
					continue
				}
				r = &running{pass: pass, task: task, last: pass.Offset()}
				for _, shard := range pass.Shards() {
					allowed += int(pass.OffsetOf(shard) - pass.Offset())
				}
				active[zone] = r
			case w.rng.IntN(20) == 0:
				stop(zone, holdfast.Interrupted(nil)) // its worker was killed, and a janitor took the task back
			case len(r.todo) > 0:
				item := r.todo[0]
				r.todo = r.todo[1:]
				if r.pass.Owns(fmt.Sprint(item % shards)) {
					if handled[item]++; handled[item] > 1 {
						repeats++
					}
				}
			default:
				w.faults = 0.1
				err := r.pass.Save(t.Context(), r.last)
				w.faults = 0
				switch {
				case errors.Is(err, plan.ErrMapChanged):
					stop(zone, holdfast.Interrupted(err))
					continue
				case errors.Is(err, errKilled):
					stop(zone, holdfast.Interrupted(err))
					continue
				case err != nil:
					t.Fatalf("seed %d: %v", seed, err)
				}
				if r.last == items {
					w.settle(r.task, holdfast.Returned(nil))
					delete(active, zone)
					continue
				}
				for range page {
					if r.last < items {
						r.last++
						r.todo = append(r.todo, r.last)
					}
				}
			}
		}
		if repeats > allowed {
			t.Errorf("seed %d: %d items were repeated, at most %d may be", seed, repeats, allowed)
		}
	}
}

// saver is a store in which a pass saves an offset after a janitor has read the job and before its step.
type saver struct {
	*world
	pass  *plan.Pass
	saves int
}

func (s *saver) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	if s.saves > 0 {
		s.saves--
		s.must(s.pass.Save(ctx, s.pass.Offset()+1))
	}
	return s.world.StepPlan(ctx, step, finish)
}

// A zone whose pass saves offsets all the time does not delay the next pass of another zone.
func TestSavesDoNotDelayTheNextPass(t *testing.T) {
	w := newWorld(t, 1)
	w.createShardJob(shardJob(map[string]string{"0": "b", "1": "a"}))
	w.step()
	a, taskA := w.begin("a")
	_, taskB := w.begin("b")
	w.settle(taskB, holdfast.Returned(nil))
	w.now = w.now.Add(time.Second)
	s := &saver{world: w, pass: a, saves: 1}
	_, stored, err := plan.New(s).Advance(t.Context())
	if err != nil || stored != 1 || s.saves != 0 {
		t.Errorf("the step stored %d passes, with %d saves left: %v", stored, s.saves, err)
	}
	if next, _ := w.begin("b"); next == nil {
		t.Error("the zone b has no next pass")
	}
	if offset := w.offsets()["1"]; offset != 1 {
		t.Errorf("the offset is %d, not 1", offset)
	}

	// A job that a person deletes during a step stores nothing more.
	w.now = w.now.Add(time.Second)
	w.settle(taskA, holdfast.Returned(nil))
	gone := &deleter{world: w}
	if _, stored, err := plan.New(gone).Advance(t.Context()); err != nil || stored != 0 {
		t.Errorf("a deleted job stored %d passes: %v", stored, err)
	}
}

// deleter is a store in which a person deletes the job before the step of a janitor.
type deleter struct{ *world }

func (d *deleter) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	p, err := d.PlanByName(ctx, store.ShardKind, "scan")
	d.must(err)
	_, err = d.world.StepPlan(ctx, store.PlanStep{From: p, By: &anna, Action: store.ActionDelete}, func(store.Inserted) (store.Plan, []store.PlanItem) {
		return plan.Deleted(p), nil
	})
	d.must(err)
	return d.world.StepPlan(ctx, step, finish)
}
