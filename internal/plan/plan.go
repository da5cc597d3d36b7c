// Package plan makes the steps of plans, which store tasks at times that they determine. Janitors call Advance
// repeatedly. Any number of processes may do so: each step is one transaction, and the store accepts it from one
// process only. So no time of a plan is used twice and none is left out, even if processes crash.
//
// There are four kinds of plans:
//
//   - A schedule stores a task at the times of a cron expression, or after intervals; see Schedule.
//   - A source is pulled in slices of time; see Source.
//   - A shard job runs passes over the shards of each zone; see ShardJob and Pass.
//   - A batch has tasks that end together; see Batch and Push.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/store"
)

// Store is the part of a store that plans use.
type Store interface {
	store.Plans
	Now(ctx context.Context) (time.Time, error)
	TasksByID(ctx context.Context, ids []holdfast.TaskID) ([]holdfast.Task, error)
}

const (
	// Every is the longest time between two calls of Advance by a process without due plans.
	Every = time.Second
	// maxDue is the number of plans that one call of Advance reads.
	maxDue = 100
	// atOnce is the number of steps that one process makes at the same time. So a step that waits does not delay all
	// others.
	atOnce = 4
	// stepTimeout is the maximum time of a step. It exists only for faults: a step reads and stores a bounded amount.
	stepTimeout = 10 * time.Second
	// yield is how long an engine makes no step of a plan after another process has made one.
	yield = 2 * time.Second
	// A plan whose step has failed pauses for firstPause, and twice as long after each further failure in a row.
	firstPause = time.Second
	longPause  = 10 * time.Minute
)

// Engine makes the steps of plans; see New. Its methods must not be called concurrently.
type Engine struct {
	// Failed is called after a step has failed. A panic is a *holdfast.PanicError. The plan pauses until its next try,
	// and other plans are not concerned. Without Failed, Advance returns the errors of the steps.
	Failed func(p store.Plan, err error, pause time.Duration)

	store   Store
	yielded map[store.ID]time.Time // when the engine left a plan to another process
	unknown map[store.ID]int64     // versions of plans that this build cannot read
	waits   map[store.ID]time.Time // until when a plan has nothing to do; it is due, because nothing was stored

	mu         sync.Mutex // guards the members below while steps are made
	source     *Source    // settings of DefaultSource, if they were read in this call of Advance
	watched    map[store.ID]*watch
	watchedIDs int64 // the number of their tasks
}

// New returns an Engine.
func New(s Store) *Engine {
	return &Engine{store: s, yielded: make(map[store.ID]time.Time), unknown: make(map[store.ID]int64), waits: make(map[store.ID]time.Time), watched: make(map[store.ID]*watch)}
}

// Advance makes at most one step of each due plan. It returns how long the caller may wait before the next call, and
// how many tasks the steps have stored. The failure of one plan does not concern the others: Advance stores it, and
// postpones only that plan. An error means that the store cannot be used; see also Failed.
func (e *Engine) Advance(ctx context.Context) (wait time.Duration, stored int, err error) {
	limit := maxDue + len(e.unknown) + len(e.yielded) + len(e.waits)
	due, err := e.store.DuePlans(ctx, kinds(), Every, limit)
	if err != nil || len(due) == 0 {
		clear(e.unknown)
		clear(e.waits)
		clear(e.yielded)
		if err != nil || len(e.watched) == 0 {
			return Every, 0, err
		}
	}
	now, err := e.store.Now(ctx)
	if err != nil {
		return 0, 0, err
	}
	e.source = nil
	wait = Every
	if len(due) == limit && !due[limit-1].NextAt.After(now) { // more plans may be due
		wait = 0
	}
	ready, early := e.ready(due, now)
	wait = min(wait, early)
	var failures []store.PlanFailure
	var problems []error
	results := e.makeSteps(ctx, ready, now) // first, so that no count delays a schedule
	changed, notCounted := e.changed(ctx, now)
	for _, r := range append(results, e.makeSteps(ctx, changed, now)...) {
		p := r.plan
		stored += r.stored
		delete(e.waits, p.ID)
		switch {
		case errors.Is(r.err, errUnknown):
			e.unknown[p.ID] = p.Version
		case errors.Is(r.err, holdfast.ErrConflict): // another process or a person has changed the plan
			e.yielded[p.ID] = now
		case r.err != nil:
			failures = append(failures, store.PlanFailure{Plan: p, Error: r.err.Error(), Pause: pauseAfter(p.Failures)})
			problems = append(problems, r.err)
		case e.watched[p.ID] != nil: // nextCheck says when
		case !r.next.IsZero():
			if r.stored == 0 {
				e.waits[p.ID] = r.next
			}
			wait = min(wait, max(0, r.next.Sub(now)))
		}
	}
	if ctx.Err() != nil { // the steps have not failed, but were interrupted
		return wait, stored, ctx.Err()
	}
	err = errors.Join(notCounted, e.postpone(ctx, now), e.fail(ctx, failures, problems))
	return min(wait, e.nextCheck(now)), stored, err
}

// ready returns the plans of which Advance must make a step now, in the order of the steps, and how long it may wait
// for the others. Several processes read the same plans. The order is random, so that they make the steps of different
// plans. Plans whose last step has failed come last.
func (e *Engine) ready(due []store.Plan, now time.Time) (ready []store.Plan, wait time.Duration) {
	for id, at := range e.yielded {
		if age := now.Sub(at); age < 0 || age >= yield {
			delete(e.yielded, id)
		}
	}
	for id, until := range e.waits {
		if !until.After(now) {
			delete(e.waits, id)
		}
	}
	wait = Every
	for _, p := range due {
		if version, unknown := e.unknown[p.ID]; unknown && version == p.Version {
			continue
		}
		if _, yields := e.yielded[p.ID]; yields {
			continue
		}
		if until, waits := e.waits[p.ID]; waits && until.After(p.NextAt) && until.Sub(now) <= Every { // unless the clock was set back
			p.NextAt = until
		}
		if early := p.NextAt.Sub(now); early > 0 {
			wait = min(wait, early)
			continue
		}
		e.forget(p.ID) // somebody has changed it
		ready = append(ready, p)
	}
	rand.Shuffle(len(ready), func(i, j int) { ready[i], ready[j] = ready[j], ready[i] })
	slices.SortStableFunc(ready, func(a, b store.Plan) int { return cmp.Compare(min(a.Failures, 1), min(b.Failures, 1)) })
	return ready, wait
}

// stepResult is the result of a step.
type stepResult struct {
	plan   store.Plan // before the step
	next   time.Time  // when the next step is due
	stored int        // tasks
	err    error
}

// makeSteps makes a step of each plan, some of them at the same time.
func (e *Engine) makeSteps(ctx context.Context, plans []store.Plan, now time.Time) []stepResult {
	results := make([]stepResult, len(plans))
	var begun atomic.Int64
	var steps sync.WaitGroup
	for range min(atOnce, len(plans)) {
		steps.Go(func() {
			for i := begun.Add(1) - 1; i < int64(len(plans)); i = begun.Add(1) - 1 {
				results[i] = e.makeStep(ctx, plans[i], now)
			}
		})
	}
	steps.Wait()
	return results
}

// steps has the function that makes a step of each kind. It returns when the next step is due, and the number of stored
// tasks.
var steps = map[store.PlanKind]func(*Engine, context.Context, store.Plan, time.Time) (next time.Time, stored int, err error){
	store.ScheduleKind: (*Engine).stepSchedule,
	store.SourceKind:   (*Engine).stepSource,
	store.ShardKind:    (*Engine).stepShards,
	store.BatchKind:    (*Engine).stepBatch,
}

// kinds returns the kinds of which an Engine makes steps.
func kinds() []store.PlanKind { return slices.Sorted(maps.Keys(steps)) }

// makeStep makes a step of a plan. A panic is an error of the step, because any row that people have stored may cause it.
func (e *Engine) makeStep(ctx context.Context, p store.Plan, now time.Time) (r stepResult) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	r.plan = p
	r.err = contain.Call(func() (err error) {
		step, known := steps[p.Kind]
		if !known {
			return fmt.Errorf("%w: its kind is %q", errUnknown, p.Kind)
		}
		if len(p.Spec) == 0 { // DuePlans has left out a large one
			if p, err = PlanByID(ctx, e.store, p.ID); err != nil {
				return err
			}
			if p.Version != r.plan.Version { // the plan may have ended
				return fmt.Errorf("%w: the %s has changed since it was found due", holdfast.ErrConflict, p.Subject())
			}
		}
		r.next, r.stored, err = step(e, ctx, p, now)
		return err
	})
	return r
}

// fail stores the failures of steps, so that the plans pause in all processes. If the store refuses that, it has more
// problems than these plans.
func (e *Engine) fail(ctx context.Context, failures []store.PlanFailure, causes []error) error {
	if len(failures) == 0 {
		return nil
	}
	if err := e.store.FailPlans(ctx, failures); err != nil {
		return errors.Join(append(causes, err)...)
	}
	if e.Failed == nil {
		return errors.Join(causes...)
	}
	for i, f := range failures {
		e.Failed(f.Plan, causes[i], f.Pause)
	}
	return nil
}

// pauseAfter returns the pause of a plan whose step has failed, after so many earlier failures in a row.
func pauseAfter(failures int) time.Duration { return min(firstPause<<min(failures, 16), longPause) }

// errUnknown means that a newer build has stored a plan with members that this build does not know. This build must not
// make its steps.
var errUnknown = errors.New("a newer version has stored this plan")

// WithoutItems returns the function that ends the step of a plan without items.
func WithoutItems(finish func(store.Inserted) store.Plan) func(store.Inserted) (store.Plan, []store.PlanItem) {
	return func(inserted store.Inserted) (store.Plan, []store.PlanItem) { return finish(inserted), nil }
}

// Deleted returns the plan in the state deleted. Stored tasks stay.
func Deleted(p store.Plan) store.Plan {
	p.State, p.NextAt = store.PlanDeleted, time.Time{}
	return p
}

// PlanByID returns a plan, which may have ended. It returns an ErrNotFound if there is none.
func PlanByID(ctx context.Context, s planLister, id store.ID) (store.Plan, error) {
	found, err := s.ListPlans(ctx, store.PlanFilter{IDs: []store.ID{id}, Ended: true, Limit: 1})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: there is no plan %d", holdfast.ErrNotFound, int64(id))
	}
	if err != nil {
		return store.Plan{}, err
	}
	return found[0], nil
}

// planLister is the part of store.Plans that PlanByID uses.
type planLister interface {
	ListPlans(ctx context.Context, f store.PlanFilter) ([]store.Plan, error)
}
