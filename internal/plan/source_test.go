package plan_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// source returns valid settings of a source.
func source(change func(*plan.Source)) plan.Source {
	s := plan.Source{Type: "report", Queue: "default", Every: new(plan.Duration(5 * time.Minute)), InFlight: new(4), Start: &plan.Start{At: begin}}
	change(&s)
	return s
}

// createSource stores a source.
func (w *world) createSource(name string, s plan.Source) {
	w.Helper()
	w.must(s.Validate(name == plan.DefaultSource))
	_, err := w.CreatePlan(w.Context(), anna, s.Plan(name, plan.Source{}, w.now))
	w.must(err)
}

func (w *world) readSource(name string) (store.Plan, plan.SourceProgress) {
	w.Helper()
	p, err := w.PlanByName(w.Context(), store.SourceKind, name)
	w.must(err)
	_, progress, err := plan.ReadSource(p)
	w.must(err)
	return p, progress
}

// step calls Advance of a new engine once.
func (w *world) step() {
	w.Helper()
	_, _, err := plan.New(w).Advance(w.Context())
	w.must(err)
}

// pulls returns the payloads of the stored slices, in the order of their begins, as offsets from begin.
func (w *world) pulls() string {
	w.Helper()
	var pulls []string
	for _, task := range w.tasks() {
		full, err := w.Task(w.Context(), task.ID)
		w.must(err)
		var s plan.Slice
		w.must(json.Unmarshal(full.Payload, &s))
		pulls = append(pulls, fmt.Sprintf("%s-%s", s.From.Sub(begin), s.To.Sub(begin)))
	}
	return strings.Join(pulls, " ")
}

func TestASourceIsPulledInSlices(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource("shop", source(func(s *plan.Source) {
		s.Overlap, s.Lag, s.InFlight = new(plan.Duration(5*time.Second)), new(plan.Duration(30*time.Second)), new(2)
	}))
	w.now = begin.Add(5*time.Minute + 29*time.Second)
	w.step()
	if got := w.pulls(); got != "" {
		t.Errorf("before the lag: %s", got)
	}
	w.now = begin.Add(21 * time.Minute)
	w.step()
	if got := w.pulls(); got != "-5s-5m0s 4m55s-10m0s" {
		t.Errorf("two slices in flight: %s", got)
	}
	w.now = w.now.Add(time.Second)
	w.complete()
	w.step()
	if got := w.pulls(); got != "-5s-5m0s 4m55s-10m0s 9m55s-15m0s 14m55s-20m0s" {
		t.Errorf("after the first two: %s", got)
	}
	if _, p := w.readSource("shop"); p.DoneThrough.Sub(begin) != 10*time.Minute || p.Open != 2 || p.Done != 2 || p.Dead != 0 {
		t.Errorf("progress %+v", p)
	}
	if task := w.tasks()[0]; task.Key != "shop" || task.Unique != "slice/shop/2030-01-01T00:00:00.000000Z/2030-01-01T00:05:00.000000Z" {
		t.Errorf("the first slice is %+v", task)
	}
}

// A slice that is dead does not stop the source, and holds the time up to which everything is done. After a person has
// retried it, it counts again.
func TestADeadSliceDoesNotStopTheSource(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource("shop", source(func(*plan.Source) {}))
	w.now = begin.Add(10 * time.Minute)
	w.step()
	w.endTask(w.tasks()[0], holdfast.EventGiveUp)
	w.complete()
	for range 3 {
		w.now = w.now.Add(5 * time.Minute)
		w.step()
		w.complete()
	}
	w.step()
	p, progress := w.readSource("shop")
	if progress.Dead != 1 || !progress.DoneThrough.Equal(begin) || progress.Next.Sub(begin) != 25*time.Minute {
		t.Errorf("progress %+v", progress)
	}
	if items, err := w.PlanItems(t.Context(), p.ID, store.PlanItemFilter{State: store.ItemDead}); err != nil || len(items) != 1 {
		t.Errorf("dead slices %+v, %v", items, err)
	}
	w.requeue(w.tasks()[0])
	w.complete()
	for range 3 {
		w.now = w.now.Add(11 * time.Second)
		w.step()
	}
	if _, progress := w.readSource("shop"); progress.Dead != 0 || progress.DoneThrough.Sub(begin) != 25*time.Minute || progress.Done != 5 {
		t.Errorf("after the retry: %+v", progress)
	}
}

// requeue retries a dead task as a person does.
func (w *world) requeue(task holdfast.Task) {
	w.Helper()
	task, err := w.Task(w.Context(), task.ID)
	w.must(err)
	move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventRequeue), w.now, holdfast.DefaultPolicy())
	w.must(err)
	_, err = w.Apply(w.Context(), []holdfast.Transition{move})
	w.must(err)
}

func TestSourcesHaveTheSettingsOfTheDefault(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource(plan.DefaultSource, plan.Source{Type: "report", Queue: "default", Every: new(plan.Duration(time.Minute)), InFlight: new(100)})
	_, err := w.CreatePlan(t.Context(), anna, plan.Source{Start: &plan.Start{At: begin}}.Plan("shop", plan.Source{Every: new(plan.Duration(time.Minute))}, w.now))
	w.must(err)
	w.now = begin.Add(3 * time.Minute)
	w.step()
	if got := w.pulls(); got != "0s-1m0s 1m0s-2m0s 2m0s-3m0s" {
		t.Errorf("pulls %s", got)
	}
	p, err := w.PlanByName(t.Context(), store.SourceKind, plan.DefaultSource)
	w.must(err)
	changed := plan.Source{Type: "other", Queue: "slow", InFlight: new(100), Every: new(plan.Duration(time.Minute))}.Plan(plan.DefaultSource, plan.Source{}, w.now)
	_, err = w.Client.StepPlan(t.Context(), store.PlanStep{From: p}, func(store.Inserted) (store.Plan, []store.PlanItem) { return changed, nil })
	w.must(err)
	w.now = begin.Add(4 * time.Minute)
	w.step()
	if task := w.tasks()[3]; task.Type != "other" || task.Queue != "slow" {
		t.Errorf("after a change of the default: %+v", task)
	}
}

func TestARateSpreadsSlices(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource("shop", source(func(s *plan.Source) { s.InFlight, s.Rate = new(1000), &store.Rate{Count: 60, Per: time.Minute} }))
	w.now = begin.Add(time.Hour)
	began := w.now
	for range 30 {
		w.step()
		w.now = w.now.Add(100 * time.Millisecond)
	}
	if n := len(w.tasks()); n != 3 {
		t.Errorf("%d slices in %s, want one a second", n, w.now.Sub(began))
	}
}

// A time of a rate that was stored while the clock was ahead does not delay a source.
func TestARateContinuesAfterASetBack(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource("shop", source(func(s *plan.Source) {
		s.InFlight, s.Rate, s.Start = new(1000), &store.Rate{Count: 60, Per: time.Minute}, &plan.Start{Ago: time.Hour}
	}))
	w.now = begin.Add(time.Hour)
	w.step()
	w.now = begin.Add(time.Minute)
	before := len(w.tasks())
	p, progress := w.readSource("shop")
	if wait := progress.RateAt.Sub(w.now); wait < 30*time.Minute {
		t.Fatalf("the rate allows the next slice in %s", wait)
	}
	p.NextAt = w.now // as the correction of the times does
	_, err := w.Client.StepPlan(t.Context(), store.PlanStep{From: p}, plan.WithoutItems(func(store.Inserted) store.Plan { return p }))
	w.must(err)
	w.step()
	if n := len(w.tasks()); n != before+1 {
		t.Errorf("%d slices after the set-back, want %d", n, before+1)
	}
}

func TestABackfillOfASourceEnds(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource("shop.backfill", source(func(s *plan.Source) {
		s.BackfillOf, s.From, s.To = "shop", begin.Add(-12*time.Minute), begin
	}))
	for range 3 {
		w.now = w.now.Add(time.Second)
		w.step()
		w.complete()
	}
	if got := w.pulls(); got != "-12m0s--7m0s -7m0s--2m0s -2m0s-0s" {
		t.Errorf("pulls %s", got)
	}
	if _, err := w.PlanByName(t.Context(), store.SourceKind, "shop.backfill"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the backfill has not ended: %v", err)
	}
	if task := w.tasks()[0]; task.Key != "shop" {
		t.Errorf("the slice has the key %s", task.Key)
	}
}

// A backfill with a dead slice stays in the list until a person has dealt with the slice.
func TestADeadSliceKeepsItsBackfill(t *testing.T) {
	w := newWorld(t, 1)
	w.createSource("shop.backfill", source(func(s *plan.Source) {
		s.BackfillOf, s.From, s.To = "shop", begin.Add(-5*time.Minute), begin
	}))
	w.step()
	w.end(1, holdfast.EventGiveUp)
	for range 3 {
		w.now = w.now.Add(11 * time.Second)
		w.step()
	}
	if p, progress := w.readSource("shop.backfill"); progress.Dead != 1 || p.State != store.PlanRunning {
		t.Errorf("the backfill is %s: %+v", p.State, progress)
	}
	w.requeue(w.tasks()[0])
	w.complete()
	for range 3 {
		w.now = w.now.Add(11 * time.Second)
		w.step()
	}
	if _, err := w.PlanByName(t.Context(), store.SourceKind, "shop.backfill"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the backfill has not ended: %v", err)
	}
}

// A source without a rate can be pulled again, more than once.
func TestABackfillCanBeRepeated(t *testing.T) {
	w := newWorld(t, 1)
	for round := range 2 {
		settings := source(func(*plan.Source) {}).Effective(plan.Source{})
		spec, name, err := settings.Backfill("shop", begin.Add(-10*time.Minute), begin, 2)
		w.must(err)
		w.createSource(name, spec)
		w.now = w.now.Add(time.Second)
		w.step()
		tasks := w.tasks()
		if len(tasks) != 2*(round+1) {
			t.Fatalf("round %d: %d slices", round, len(tasks))
		}
		for _, task := range tasks {
			if of, from, ok := plan.SliceOrigin(task.Unique); !ok || of != name || from.Before(begin.Add(-10*time.Minute)) {
				t.Errorf("the slice %q is of %s at %s, %t", task.Unique, of, from, ok)
			}
		}
		w.now = w.now.Add(time.Second)
		w.complete()
		w.step()
	}
}

// The queue of a source is its own, that of the default, or that of its type, whatever was set first.
func TestTheQueueOfASource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, defaults, want string }{
		{"own", "shared", "own"}, {"own", "", "own"}, {"", "shared", "shared"}, {"", "", "of-type"},
	} {
		s := source(func(s *plan.Source) { s.Queue, s.TypeQueue = c.own, "of-type" })
		if got := s.Effective(plan.Source{Queue: c.defaults}).Queue; got != c.want {
			t.Errorf("own %q, default %q: %q, want %q", c.own, c.defaults, got, c.want)
		}
	}
}

func TestRatesOfSources(t *testing.T) {
	t.Parallel()
	for _, rate := range []store.Rate{{Count: -1}, {Count: 1}, {Count: 10, Per: time.Millisecond}} {
		s := source(func(s *plan.Source) { s.Rate = &rate })
		if err := s.Validate(false); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("rate %s: %v", rate, err)
		}
	}
	s := source(func(s *plan.Source) { s.Rate = new(store.Rate) })
	if back, _, err := plan.ReadSource(s.Plan("shop", plan.Source{}, begin)); err != nil || back.Rate == nil || *back.Rate != (store.Rate{}) {
		t.Errorf("no rate is read as %v, %v", back.Rate, err)
	}
}

// Five processes make the steps of two sources, calls fail before and after their effects, the clock leaps, and slices
// end, die and are retried. No slice is left out or stored twice, and the source knows what is done.
func TestSlicesWithFaultsAndLeaps(t *testing.T) {
	seeds := 60
	if slow.All() {
		seeds = 5000
	}
	for seed := range uint64(seeds) {
		if t.Failed() {
			return
		}
		w := newWorld(t, seed)
		inFlight := 1 + w.rng.IntN(5)
		for _, name := range []string{"a", "b"} {
			w.createSource(name, source(func(s *plan.Source) {
				s.InFlight, s.Every = new(inFlight), new(plan.Duration(time.Duration(1+w.rng.IntN(10))*time.Minute))
				if w.rng.IntN(3) == 0 {
					s.Rate = &store.Rate{Count: 10, Per: time.Minute}
				}
			}))
		}
		var engines []*plan.Engine
		for range 5 {
			engines = append(engines, plan.New(w))
		}
		for range 150 {
			if w.rng.IntN(20) == 0 {
				w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(2*time.Hour))) - time.Hour)
			} else {
				w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(5 * time.Second))))
			}
			if w.now.Before(begin) {
				w.now = begin
			}
			_, err := w.CorrectTimes(t.Context())
			w.must(err)
			i := w.rng.IntN(len(engines))
			if w.rng.IntN(10) == 0 {
				engines[i] = plan.New(w) // the process was started again
			}
			w.faults = 0.2
			if _, _, err := engines[i].Advance(t.Context()); err != nil && !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			w.faults = 0
			w.endSome()
			w.checkSlices(seed, inFlight)
		}
		for range 60 { // until every slice has been looked at
			w.now = w.now.Add(11 * time.Second)
			w.step()
		}
		w.checkSlices(seed, inFlight)
		for _, name := range []string{"a", "b"} {
			w.checkDone(seed, name)
		}
	}
}

// endSome ends some tasks: some with success, some are dead, and some dead ones are retried.
func (w *world) endSome() {
	w.Helper()
	for _, task := range w.tasks() {
		switch {
		case task.State == holdfast.Ready && !task.NextRunAt.After(w.now) && w.rng.IntN(6) == 0:
			w.endTask(task, holdfast.EventGiveUp)
		case task.State == holdfast.Ready && w.rng.IntN(2) == 0:
			w.endTask(task, holdfast.EventCancel)
		case task.State == holdfast.Dead && w.rng.IntN(20) == 0:
			w.requeue(task)
		}
	}
}

// checkSlices compares the stored slices of each source with a walk without gaps.
func (w *world) checkSlices(seed uint64, inFlight int) {
	w.Helper()
	ends, open := make(map[string]time.Time), make(map[string]int)
	for _, task := range w.tasks() {
		full, err := w.Task(w.Context(), task.ID)
		w.must(err)
		var s plan.Slice
		w.must(json.Unmarshal(full.Payload, &s))
		if end, known := ends[s.Source]; known && !s.From.Equal(end) || !known && !s.From.Equal(begin) {
			w.Errorf("seed %d: a slice of %s begins at %s, the one before it ends at %s", seed, s.Source, s.From, end)
		}
		ends[s.Source] = s.To
		if task.State == holdfast.Ready && task.Attempt == 1 { // a person may retry any number of dead slices
			open[s.Source]++
		}
	}
	for name, n := range open {
		if n > inFlight {
			w.Errorf("seed %d: %d slices of %s are in flight, want at most %d", seed, n, name, inFlight)
		}
	}
	if slices.ContainsFunc(w.steps, func(s step) bool { return s.twice }) {
		w.Errorf("seed %d: a slice was stored twice", seed)
	}
}

// checkDone compares the progress of a source with its tasks, after all steps.
func (w *world) checkDone(seed uint64, name string) {
	w.Helper()
	_, progress := w.readSource(name)
	through, dead, open := progress.Next, 0, 0
	for _, task := range w.tasks() {
		full, err := w.Task(w.Context(), task.ID)
		w.must(err)
		var s plan.Slice
		w.must(json.Unmarshal(full.Payload, &s))
		if s.Source != name || task.State == holdfast.Cancelled || task.State == holdfast.Done {
			continue
		}
		if task.State == holdfast.Dead {
			dead++
		} else {
			open++
		}
		if s.From.Before(through) {
			through = s.From
		}
	}
	if !progress.DoneThrough.Equal(through) || progress.Dead != dead || progress.Open != open {
		w.Errorf("seed %d: the progress of %s is %+v, want done through %s, %d dead, %d open", seed, name, progress, through, dead, open)
	}
}

// removeSource deletes a source. Its tasks stay.
func (w *world) removeSource(name string) {
	w.Helper()
	p, _ := w.readSource(name)
	_, err := w.Client.StepPlan(w.Context(), store.PlanStep{From: p}, plan.WithoutItems(func(store.Inserted) store.Plan { return plan.Deleted(p) }))
	w.must(err)
}

// Whatever people do with a source, it is never done through an instant that no successful slice has covered.
func TestDoneThroughPassesOverNoInstant(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		w := newWorld(t, seed)
		exists := false
		for range 60 {
			switch n := w.rng.IntN(10); {
			case n == 0 && exists:
				w.removeSource("shop")
				exists = false
			case n < 3 && !exists:
				w.createSource("shop", source(func(s *plan.Source) {
					s.Every, s.Overlap = new(plan.Duration(1+w.rng.IntN(5))*plan.Duration(time.Minute)), new(plan.Duration(w.rng.IntN(2))*plan.Duration(time.Minute))
					s.Start = &plan.Start{At: begin.Add(time.Duration(w.rng.IntN(3)) * time.Minute)}
				}))
				exists = true
			case n < 7:
				w.now = w.now.Add(time.Duration(w.rng.IntN(300)) * time.Second)
				w.step()
			default:
				for _, task := range w.tasks() {
					switch {
					case task.State == holdfast.Ready && w.rng.IntN(5) == 0:
						w.endTask(task, holdfast.EventGiveUp)
					case task.State == holdfast.Dead && w.rng.IntN(5) == 0:
						w.requeue(task)
					}
				}
				w.complete()
			}
			if exists {
				w.checkCovered(seed)
			}
		}
	}
}

// checkCovered compares how far the source shop is done with the slices that have succeeded.
func (w *world) checkCovered(seed uint64) {
	w.Helper()
	p, progress := w.readSource("shop")
	s, _, err := plan.ReadSource(p)
	w.must(err)
	through := s.Start.At
	for moved := true; moved; {
		moved = false
		for _, task := range w.tasks() {
			full, err := w.Task(w.Context(), task.ID)
			w.must(err)
			var slice plan.Slice
			w.must(json.Unmarshal(full.Payload, &slice))
			if task.State == holdfast.Done && !slice.From.After(through) && slice.To.After(through) {
				through, moved = slice.To, true
			}
		}
	}
	if progress.DoneThrough.After(through) {
		w.Fatalf("seed %d: the source is done through %s, but nothing has pulled what comes after %s", seed, progress.DoneThrough, through)
	}
}
