package plan

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// watchLease is how long the store postpones a plan that an engine watches. If the process of the engine is killed,
	// another engine finds the plan after that time. The engine postpones the plan again after watchRenew.
	watchLease = 15 * time.Second
	watchRenew = 10 * time.Second
	// maxWatches is the number of plans that an engine watches, and maxWatchedIDs that of their tasks.
	maxWatches    = 5000
	maxWatchedIDs = 100_000
	// maxPlanIDs is the maximum number of tasks of a plan that is watched.
	maxPlanIDs = 2000
	// watchGroup is the maximum number of plans in a statement.
	watchGroup = 500
)

// watch is a plan that only waits for tasks. The engine counts the tasks of all such plans in one statement, and makes a
// step when they have changed. Meanwhile the plan is postponed in the store, so that no process reads or writes it.
type watch struct {
	plan   store.Plan // without its documents
	chunks []store.PlanChunk
	counts []watchCount // of the chunks
	ids    int64
	// first is the time between the first checks. It grows with the time that the plan waits, up to slowest.
	first, slowest time.Duration
	step           time.Time     // when a step is due even if no task has changed; zero means never
	defaults       string        // the hash of the settings of DefaultSource, for a source
	since          time.Time     // when the engine began to watch
	every          time.Duration // from the last check to the next one
	check          time.Time     // when the next check is due
	renew          time.Time     // when the plan is to be postponed again; zero means that it is not yet postponed
}

// watchCount is the part of a tally that matters to plans.
type watchCount struct{ open, done, dead, cancelled, missing int64 }

func countOf(t store.Tally) watchCount {
	by := t.By
	return watchCount{
		by[holdfast.Ready] + by[holdfast.Running], by[holdfast.Done], by[holdfast.Dead],
		by[holdfast.Cancelled] + by[holdfast.Archived], t.Missing,
	}
}

// countOfState returns the count of one task. Deleted tasks have no state.
func countOfState(states map[holdfast.TaskID]holdfast.State, id holdfast.TaskID) watchCount {
	if state, stored := states[id]; stored {
		return countOf(store.Tally{By: map[holdfast.State]int64{state: 1}})
	}
	return watchCount{missing: 1}
}

// watchTasks watches a plan that waits for tasks in the given states; see watchPlan.
func (e *Engine) watchTasks(w watch, ids []holdfast.TaskID, states map[holdfast.TaskID]holdfast.State, now time.Time) bool {
	for _, id := range ids {
		w.chunks = append(w.chunks, store.PlanChunk{Tasks: []store.IDRange{{First: id, Last: id}}})
		w.counts = append(w.counts, countOfState(states, id))
	}
	return e.watchPlan(w, now)
}

// watchPlan begins to watch a plan. It returns false, and changes nothing, if the engine would watch too many plans or
// tasks. Then steps check the plan.
func (e *Engine) watchPlan(w watch, now time.Time) bool {
	for _, chunk := range w.chunks {
		for _, ids := range chunk.Tasks {
			w.ids += ids.Size()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if w.ids == 0 || w.ids > maxPlanIDs || len(e.watched) >= maxWatches || e.watchedIDs+w.ids > maxWatchedIDs {
		return false
	}
	w.plan.Spec, w.plan.Progress = nil, nil
	w.since, w.every, w.check = now, w.first, now.Add(w.first)
	e.forget(w.plan.ID)
	e.watched[w.plan.ID], e.watchedIDs = &w, e.watchedIDs+w.ids
	return true
}

// forget ends the watch of a plan.
func (e *Engine) forget(id store.ID) {
	if w := e.watched[id]; w != nil {
		e.watchedIDs -= w.ids
		delete(e.watched, id)
	}
}

// changed returns the watched plans of which a step is due, as the store has them now.
func (e *Engine) changed(ctx context.Context, now time.Time) (plans []store.Plan, err error) {
	var due []*watch
	var ids []store.ID
	var defaults string
	for _, w := range e.watched {
		if w.plan.Kind == store.SourceKind && defaults == "" {
			s, err := e.defaults(ctx)
			if err != nil {
				return nil, err
			}
			defaults = hash(s)
		}
		switch {
		case w.plan.Kind == store.SourceKind && w.defaults != defaults:
			ids = append(ids, w.plan.ID)
		case !w.step.IsZero() && !w.step.After(now), now.Before(w.since): // the clock was set back
			ids = append(ids, w.plan.ID)
		case w.check.Sub(now) <= w.every/2: // checks that are due soon are made now, so that one statement serves many plans
			due = append(due, w)
		}
	}
	for group := range slices.Chunk(due, watchGroup) {
		var chunks []store.PlanChunk
		for _, w := range group {
			chunks = append(chunks, w.chunks...)
		}
		tallies, err := e.store.PlanTally(ctx, chunks)
		if err != nil {
			return nil, err
		}
		for _, w := range group {
			own := tallies[:len(w.chunks)]
			tallies = tallies[len(w.chunks):]
			w.every = min(max(w.first, now.Sub(w.since)/4), w.slowest)
			w.check = now.Add(w.every)
			if !slices.EqualFunc(own, w.counts, func(t store.Tally, c watchCount) bool { return countOf(t) == c }) {
				ids = append(ids, w.plan.ID)
			}
		}
	}
	for group := range slices.Chunk(ids, maxDue) {
		found, err := e.store.ListPlans(ctx, store.PlanFilter{IDs: group, Ended: true, Limit: len(group)})
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if !p.State.Ended() && !p.NextAt.IsZero() {
				p.NextAt = now
				plans = append(plans, p)
			}
		}
		for _, id := range group {
			e.forget(id)
		}
	}
	return plans, nil
}

// postpone postpones the watched plans whose time has come, and forgets those that others have changed: they are due by
// themselves.
func (e *Engine) postpone(ctx context.Context, now time.Time) error {
	var plans []store.Plan
	for _, w := range e.watched {
		if !w.renew.After(now) {
			plans = append(plans, w.plan)
		}
	}
	slices.SortFunc(plans, func(a, b store.Plan) int { return cmp.Compare(a.ID, b.ID) })
	for group := range slices.Chunk(plans, watchGroup) {
		postponed, err := e.store.PostponePlans(ctx, group, watchLease)
		for _, p := range group {
			if w := e.watched[p.ID]; err == nil && slices.Contains(postponed, p.ID) {
				w.renew = now.Add(watchRenew)
			} else {
				e.forget(p.ID)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextCheck returns how long the engine may wait before it checks the watched plans.
func (e *Engine) nextCheck(now time.Time) time.Duration {
	wait := Every
	for _, w := range e.watched {
		wait = min(wait, w.check.Sub(now))
		if !w.step.IsZero() {
			wait = min(wait, w.step.Sub(now))
		}
	}
	return max(0, wait)
}

// Release makes the watched plans due, so that another engine finds them at once. The engine must not be used afterwards.
func (e *Engine) Release(ctx context.Context) error {
	var plans []store.Plan
	for id := range maps.Keys(e.watched) {
		plans = append(plans, e.watched[id].plan)
	}
	for group := range slices.Chunk(plans, watchGroup) {
		if _, err := e.store.PostponePlans(ctx, group, 0); err != nil {
			return err
		}
	}
	return nil
}
