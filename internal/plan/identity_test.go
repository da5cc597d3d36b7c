package plan_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// editedSchedule is a model of a schedule that people change: the moments that must have been used.
type editedSchedule struct {
	*world
	engine *plan.Engine
	every  int // minutes
	exists bool
	paused bool
	since  time.Time // moments after it are due
	used   int64     // moments that the row of the schedule has used up to since
	tasks  int64     // tasks of the rows that were deleted
}

// minutes counts the moments of the schedule after one time and up to another.
func (s *editedSchedule) minutes(after, to time.Time) int64 {
	n := func(t time.Time) int64 { return int64(t.Sub(begin) / (time.Duration(s.every) * time.Minute)) }
	return n(to) - n(after)
}

// spec returns a schedule with moments at the multiples of s.every minutes.
func (s *editedSchedule) spec(now plan.Schedule) plan.Schedule {
	now.Cron, now.Every, now.Start = fmt.Sprintf("*/%d * * * *", s.every), 0, time.Time{}
	if s.rng.IntN(2) == 0 {
		now.Cron, now.Every, now.Start = "", plan.Duration(s.every)*plan.Duration(time.Minute), begin
	}
	now.Missed = []plan.MissedRuns{plan.MissedAll, plan.MissedOne, plan.MissedSkip}[s.rng.IntN(3)]
	now.Overlap = []plan.Overlap{plan.OverlapQueue, 1, 2, plan.MaxOverlap}[s.rng.IntN(4)]
	now.CatchUp = plan.Duration(s.rng.IntN(40)) * plan.Duration(time.Minute)
	return now
}

// use lets janitors use all due moments, although calls fail and processes start again.
func (s *editedSchedule) use() {
	s.Helper()
	s.faults = 0.3
	for range 3 {
		if s.rng.IntN(2) == 0 {
			s.engine = plan.New(s.world)
		}
		if _, _, err := s.engine.Advance(s.Context()); err != nil && !errors.Is(err, errKilled) {
			s.Fatal(err)
		}
	}
	s.faults = 0
	s.now = s.now.Add(11 * time.Minute) // a failed step pauses the plan for up to ten minutes
	s.advance()
	if s.exists && !s.paused {
		s.used, s.since = s.used+s.minutes(s.since, s.now), s.now
	}
}

// check compares the progress and the tasks with the model.
func (s *editedSchedule) check(seed uint64) {
	s.Helper()
	runs := s.tasks
	if s.exists {
		_, _, p := s.read()
		counted := p.Runs + p.Skipped + p.Missed
		if !p.Waiting.IsZero() {
			counted++
		}
		if counted != s.used {
			s.Fatalf("seed %d at %s: the schedule has used %d of %d moments: %+v", seed, s.now.Sub(begin), counted, s.used, p)
		}
		runs += p.Runs
	}
	seen := make(map[time.Time]bool)
	for _, task := range s.world.tasks() {
		_, at, ok := plan.ScheduleOrigin(task.Unique)
		if !ok || seen[at] {
			s.Fatalf("seed %d: the moment %s has two tasks", seed, at.Sub(begin))
		}
		seen[at] = true
	}
	if int64(len(seen)) != runs {
		s.Fatalf("seed %d: %d tasks, but %d runs", seed, len(seen), runs)
	}
}

// act does what a person does with the schedule. All due moments have been used before.
func (s *editedSchedule) act() {
	s.Helper()
	switch n := s.rng.IntN(10); {
	case !s.exists:
		s.every = 1 + s.rng.IntN(5)
		s.create(s.spec(schedule(func(*plan.Schedule) {})))
		s.exists, s.paused, s.since, s.used = true, false, s.now, 0
	case n == 0:
		p, _, progress := s.read()
		s.tasks += progress.Runs
		_, err := s.Client.StepPlan(s.Context(), store.PlanStep{From: p}, func(store.Inserted) (store.Plan, []store.PlanItem) { return plan.Deleted(p), nil })
		s.must(err)
		s.exists = false
	case n < 3 && s.paused:
		s.change(func(p store.Plan, is plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
			return is.Resumed(p, progress, s.now)
		})
		s.paused, s.since = false, s.now
	case n < 3:
		s.change(func(p store.Plan, _ plan.Schedule, _ plan.ScheduleProgress) (store.Plan, error) {
			return plan.PausedSchedule(p), nil
		})
		s.paused = true
	case n < 6:
		s.every = 1 + s.rng.IntN(5)
		s.change(func(p store.Plan, was plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
			to := s.spec(was)
			return to.Edited(p, was, progress, s.now)
		})
		s.since = s.now
	}
}

// note edits the schedule without its times. There may be due moments.
func (s *editedSchedule) note() {
	s.Helper()
	s.change(func(p store.Plan, was plan.Schedule, progress plan.ScheduleProgress) (store.Plan, error) {
		to := was
		to.Note = fmt.Sprint(s.now)
		return to.Edited(p, was, progress, s.now)
	})
}

// Whatever people do with a schedule, each of its moments has one task, or the schedule counts it as missed or skipped.
// They edit its times, pause, resume, delete and create it, and processes start again.
func TestEditsUseEachMomentOnce(t *testing.T) {
	t.Parallel()
	seeds := 30
	if slow.All() {
		seeds = 3000
	}
	for seed := range uint64(seeds) {
		s := &editedSchedule{world: newWorld(t, seed)}
		s.engine = plan.New(s.world)
		s.now = begin.Add(time.Second) // people change nothing at the very time of a run
		for range 60 {
			s.act()
			s.now = s.now.Add(time.Duration(s.rng.IntN(30)) * time.Minute)
			if s.rng.IntN(2) == 0 {
				s.end(s.rng.IntN(20), holdfast.EventCancel)
			}
			if s.exists && s.rng.IntN(3) == 0 {
				s.note()
			}
			s.use()
			s.check(seed)
		}
	}
}

// Whatever happens to the passes of a shard job, no offset of a shard decreases, and no pass saves an offset before the
// items up to it are handled. Shards move, attempts are interrupted but go on, passes die, and people retry dead passes
// beside newer ones.
func TestRetriedPassesSkipNoItem(t *testing.T) {
	t.Parallel()
	seeds := 40
	if slow.All() {
		seeds = 3000
	}
	const shards, items = 5, 300
	zones := []string{"a", "b", "c"}
	var moved, replaced, retried int
	for seed := range uint64(seeds) {
		w := newWorld(t, seed)
		owners := make(map[string]string)
		for i := range shards {
			owners[fmt.Sprint(i)] = zones[i%len(zones)]
		}
		w.createShardJob(shardJob(owners))
		engine := plan.New(w)
		var active []*running // also those whose attempts have ended
		var dead []holdfast.Task
		handled, before := make(map[int64]bool), make(map[string]int64)
		for range 400 {
			w.now = w.now.Add(time.Duration(w.rng.IntN(10_000)) * time.Millisecond)
			w.faults = 0.1
			if _, _, err := engine.Advance(t.Context()); err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			w.faults = 0
			switch n := w.rng.IntN(20); {
			case n == 0:
				w.moveShards(func(owners map[string]string) { owners[fmt.Sprint(w.rng.IntN(shards))] = zones[w.rng.IntN(len(zones))] })
			case n == 1 && len(dead) > 0:
				w.requeue(dead[0])
				dead = dead[1:]
				retried++
			case n == 2:
				if w.hasPasses() {
					w.replacePass(zones[w.rng.IntN(len(zones))])
				}
			case n < 8:
				task, payload := w.claim(zones[w.rng.IntN(len(zones))])
				if task.ID == 0 {
					break
				}
				pass, err := plan.BeginPass(t.Context(), w, payload, task)
				switch {
				case errors.Is(err, plan.ErrPassReplaced):
					replaced++
					w.settle(task, holdfast.Returned(nil))
				case err != nil:
					t.Fatal(err)
				default:
					active = append(active, &running{pass: pass, task: task, last: pass.Offset()})
				}
			case len(active) > 0:
				r := active[w.rng.IntN(len(active))]
				last := min(items, r.last+int64(w.rng.IntN(10)))
				for r.last < last {
					r.last++
					if r.pass.Owns(fmt.Sprint(r.last % shards)) {
						handled[r.last] = true
					}
				}
				if n < 14 {
					switch err := r.pass.Save(t.Context(), r.last); {
					case errors.Is(err, plan.ErrMapChanged), errors.Is(err, plan.ErrPassReplaced), errors.Is(err, store.ErrFenced):
						moved++
					case err != nil:
						t.Fatal(err)
					}
					break
				}
				if is, err := w.Task(t.Context(), r.task.ID); err != nil || is.Attempt != r.task.Attempt || is.State != holdfast.Running {
					break // another attempt
				}
				if n == 14 {
					w.settle(r.task, holdfast.Returned(holdfast.Permanent(errors.New("no use"))))
					dead = append(dead, r.task)
				} else if n == 15 {
					w.settle(r.task, holdfast.Interrupted(nil))
				}
			}
			for shard, offset := range w.offsets() {
				if offset < before[shard] {
					t.Fatalf("seed %d: the offset of shard %s has decreased from %d to %d", seed, shard, before[shard], offset)
				}
				before[shard] = offset
				for item := int64(1); item <= offset; item++ {
					if fmt.Sprint(item%shards) == shard && !handled[item] {
						t.Fatalf("seed %d: the offset of shard %s is %d, but item %d was not handled", seed, shard, offset, item)
					}
				}
			}
		}
	}
	if moved == 0 || replaced == 0 || retried == 0 {
		t.Errorf("%d refused saves, %d replaced passes and %d retries: the test does not reach all of them", moved, replaced, retried)
	}
}

// hasPasses reports whether the shard job has passes.
func (w *world) hasPasses() bool {
	w.Helper()
	p, err := w.PlanByName(w.Context(), store.ShardKind, "scan")
	w.must(err)
	_, progress, err := plan.ReadShardJob(p)
	w.must(err)
	return len(progress.Passes) > 0
}
