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
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfastq/holdfast"
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
	// batch is the number of plans that one call of Advance reads.
	batch = 100
	// yield is how long an engine makes no step of a plan after another process has made one.
	yield = 2 * time.Second
)

// Engine makes the steps of plans; see New. Its methods must not be called concurrently.
type Engine struct {
	store   Store
	yielded map[store.ID]time.Time // when the engine left a plan to another process
	unknown map[store.ID]int64     // versions of plans that this build cannot read
	waits   map[store.ID]time.Time // until when a plan has nothing to do; it is due, because nothing was stored
	source  *Source                // settings of DefaultSource, if they were read in this call of Advance
}

// New returns an Engine.
func New(s Store) *Engine {
	return &Engine{store: s, yielded: make(map[store.ID]time.Time), unknown: make(map[store.ID]int64), waits: make(map[store.ID]time.Time)}
}

// Advance makes at most one step of each due plan. It returns how long the caller may wait before the next call, and
// how many tasks the steps have stored. An error of one plan does not delay the others.
func (e *Engine) Advance(ctx context.Context) (wait time.Duration, stored int, err error) {
	limit := batch + len(e.unknown) + len(e.yielded) + len(e.waits)
	due, err := e.store.DuePlans(ctx, []store.PlanKind{store.ScheduleKind, store.SourceKind, store.ShardKind, store.BatchKind}, Every, limit)
	if err != nil || len(due) == 0 {
		clear(e.unknown)
		clear(e.waits)
		clear(e.yielded)
		return Every, 0, err
	}
	now, err := e.store.Now(ctx)
	if err != nil {
		return 0, 0, err
	}
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
	e.source = nil
	wait = Every
	if len(due) == limit && !due[limit-1].NextAt.After(now) { // more plans may be due
		wait = 0
	}
	// Several processes read the same plans. In random orders they make the steps of different ones.
	rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	var problems []error
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
		step := e.stepSchedule
		switch p.Kind {
		case store.SourceKind:
			step = e.stepSource
		case store.ShardKind:
			step = e.stepShards
		case store.BatchKind:
			step = e.stepBatch
		}
		next, n, err := step(ctx, p, now)
		stored += n
		delete(e.waits, p.ID)
		if err == nil && n == 0 && !next.IsZero() {
			e.waits[p.ID] = next
		}
		switch {
		case errors.Is(err, errUnknown):
			e.unknown[p.ID] = p.Version
		case errors.Is(err, holdfast.ErrConflict): // another process or a person has changed the plan
			e.yielded[p.ID] = now
		case err != nil:
			problems = append(problems, fmt.Errorf("%s: %w", p.Subject(), err))
		case !next.IsZero():
			wait = min(wait, max(0, next.Sub(now)))
		}
	}
	return wait, stored, errors.Join(problems...)
}

// errUnknown means that a newer build has stored a plan with members that this build does not know. This build must not
// make its steps.
var errUnknown = errors.New("a newer version has stored this plan")

// stepSchedule makes a step of a schedule. It returns when the next step is due, and the number of stored tasks.
func (e *Engine) stepSchedule(ctx context.Context, p store.Plan, now time.Time) (next time.Time, stored int, err error) {
	s, progress, err := Read(p)
	if err != nil {
		return time.Time{}, 0, err
	}
	states, err := e.states(ctx, progress.Open)
	if err != nil {
		return time.Time{}, 0, err
	}
	d, err := s.step(p, progress, states, now)
	if err != nil {
		return time.Time{}, 0, err
	}
	step := store.PlanStep{From: p, Insert: d.tasks(p.Name, s)}
	if d.pause != "" {
		step.By, step.Action = &store.Actor{Name: "janitor", Surface: store.Janitor, Reason: d.pause}, store.ActionPause
	}
	to, err := e.store.StepPlan(ctx, step, WithoutItems(func(inserted store.Inserted) store.Plan { return d.plan(p, inserted) }))
	if err != nil {
		return time.Time{}, 0, err
	}
	return to.NextAt, len(step.Insert), nil
}

// WithoutItems returns the function that ends the step of a plan without items.
func WithoutItems(finish func(store.Inserted) store.Plan) func(store.Inserted) (store.Plan, []store.PlanItem) {
	return func(inserted store.Inserted) (store.Plan, []store.PlanItem) { return finish(inserted), nil }
}

// states returns the states of tasks. Deleted tasks are missing.
func (e *Engine) states(ctx context.Context, runs []Run) (map[holdfast.TaskID]holdfast.State, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	ids := make([]holdfast.TaskID, len(runs))
	for i, r := range runs {
		ids[i] = r.Task
	}
	tasks, err := e.store.TasksByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	states := make(map[holdfast.TaskID]holdfast.State, len(tasks))
	for _, task := range tasks {
		states[task.ID] = task.State
	}
	return states, nil
}
