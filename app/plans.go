package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Record is a stored plan. Spec is what was asked for, and Progress how far it is.
type Record[S, P any] struct {
	Name     string
	State    store.PlanState
	Spec     S
	Progress P
	plan     store.Plan
}

// Version returns the version of the record. Each change and each step increases it.
func (r Record[S, P]) Version() int64 { return r.plan.Version }

// Creator returns who created the record, and when.
func (r Record[S, P]) Creator() (by store.Actor, at time.Time) { return r.plan.Actor, r.plan.CreatedAt }

// Failing returns how many steps of the plan have failed in a row, and why the last one did. If this version cannot read
// the plan, that is the reason.
func (r Record[S, P]) Failing() (steps int, why string) { return r.plan.Failures, r.plan.Failure }

// DueAt returns when the next step is due, or the zero time if no time is known. For a schedule, it includes the jitter.
func (r Record[S, P]) DueAt() time.Time { return r.plan.NextAt }

func (r Record[S, P]) stored() store.Plan { return r.plan }

// errUnread means that this version cannot read a schedule, a source, a shard job or a batch.
var errUnread = fmt.Errorf("%w: this version cannot read it; use the version that has stored it, or delete it", holdfast.ErrUnavailable)

// recordOf reads a plan. The error is an errUnread. The record then has it as a failure, so that a list can show it.
func recordOf[S, P any](p store.Plan, read func(store.Plan) (S, P, error)) (r Record[S, P], err error) {
	r = Record[S, P]{Name: p.Name, State: p.State, plan: p}
	if r.Spec, r.Progress, err = read(p); err != nil {
		err = fmt.Errorf("%s: %w: %w", p.Subject(), errUnread, err)
		r.plan.Failures, r.plan.Failure = max(1, p.Failures), err.Error()
	}
	return r, err
}

// kind is a kind of plans. R is the type of their records.
type kind[R interface{ stored() store.Plan }] struct {
	kind store.PlanKind
	of   func(store.Plan) (R, error)
}

// get returns the record with a name. It returns an ErrNotFound if there is none.
func (k kind[R]) get(ctx context.Context, s store.Plans, name string) (r R, err error) {
	p, err := s.PlanByName(ctx, k.kind, name)
	if err != nil {
		return r, err
	}
	return k.of(p)
}

// list returns the records that a filter selects. If this version cannot read one of them, list still returns the
// others.
func (k kind[R]) list(ctx context.Context, s store.Plans, f store.PlanFilter) ([]R, error) {
	f.Kind = k.kind
	plans, err := s.ListPlans(ctx, f)
	if err != nil {
		return nil, err
	}
	records := make([]R, len(plans))
	for i, p := range plans {
		records[i], _ = k.of(p)
	}
	return records, nil
}

// create stores a new plan, and returns its record. It returns an ErrConflict if there is one with the name.
func (k kind[R]) create(ctx context.Context, s store.Plans, by store.Actor, p store.Plan) (r R, err error) {
	if p, err = s.CreatePlan(ctx, by, p); err != nil {
		return r, err
	}
	return k.of(p)
}

// planChange is a change of a plan by a person or a program.
type planChange[R any] struct {
	by     store.Actor
	name   string
	action store.Action
	checks []func(before *R) error // may refuse the change
	// create makes a change also if there is no such plan. Checks and compute then get nil.
	create  bool
	read    func(context.Context) (R, error) // if nil, kind.get reads the record
	compute func(before *R, now time.Time) (planStep, error)
}

// planStep is what a change stores.
type planStep struct {
	insert []holdfast.NewTask
	drop   []string                        // items
	to     func(store.Inserted) store.Plan // nil means that there is nothing to store
}

// stepTo returns the step that stores a plan.
func stepTo(p store.Plan) planStep {
	return planStep{to: func(store.Inserted) store.Plan { return p }}
}

// stepIfChanged is like stepTo, but stores nothing if only the time of the next step has changed.
func stepIfChanged(before, after store.Plan) planStep {
	if before.State == after.State && string(before.Spec) == string(after.Spec) && string(before.Progress) == string(after.Progress) {
		return planStep{}
	}
	return stepTo(after)
}

// delete ends a plan, also one that this version cannot read.
func (k kind[R]) delete(ctx context.Context, b *Backend, by store.Actor, name string, checks []func(*R) error) (before *R, after R, err error) {
	return k.change(ctx, b, planChange[R]{
		by: by, name: name, action: store.ActionDelete, checks: checks,
		compute: func(before *R, _ time.Time) (planStep, error) { return stepTo(plan.Deleted((*before).stored())), nil },
	})
}

// planTries is how often a change of a plan is tried while janitors and splits make steps, and others change it.
const planTries = 50

// change reads a record, checks it, and stores what compute makes of it at the present time of the store. If others have
// changed, created or deleted the plan meanwhile, it begins again. It returns the record before the change, or nil if
// there was none, and the record after it. If it stores nothing, after is the record as it was read.
func (k kind[R]) change(ctx context.Context, b *Backend, c planChange[R]) (before *R, after R, err error) {
	for range planTries {
		before, after, err = k.try(ctx, b, c)
		if !errors.Is(err, errLost) {
			return before, after, err
		}
	}
	return before, after, fmt.Errorf("%w: %s changes all the time; try again", holdfast.ErrConflict, store.PlanSubject(k.kind, c.name))
}

// errLost means that another process has changed the plan between the read and the write of a change.
var errLost = errors.New("lost a race")

// try tries a change once. It returns an errLost if another change came first.
func (k kind[R]) try(ctx context.Context, b *Backend, c planChange[R]) (before *R, after R, err error) {
	if c.read == nil {
		c.read = func(ctx context.Context) (R, error) { return k.get(ctx, b.Store, c.name) }
	}
	after, err = c.read(ctx)
	deletes := c.action == store.ActionDelete // a plan that this version cannot read can still be deleted
	switch {
	case err == nil, deletes && errors.Is(err, errUnread) && after.stored().ID != 0:
		before = new(after)
	case !c.create || !errors.Is(err, holdfast.ErrNotFound):
		return nil, after, err
	}
	for _, check := range c.checks {
		if err := check(before); err != nil {
			return before, after, err
		}
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return before, after, err
	}
	step, err := c.compute(before, now)
	if err != nil || step.to == nil {
		return before, after, err
	}
	var p store.Plan
	if before == nil {
		p, err = b.Store.CreatePlan(ctx, c.by, step.to(store.Inserted{}))
	} else {
		stored := store.PlanStep{From: (*before).stored(), Insert: step.insert, Drop: step.drop, By: &c.by, Action: c.action}
		p, err = b.Store.StepPlan(ctx, stored, plan.WithoutItems(step.to))
	}
	switch {
	case errors.Is(err, holdfast.ErrConflict):
		return before, after, errLost
	case err != nil:
		return before, after, err
	}
	if after, err = k.of(p); deletes {
		err = nil
	}
	return before, after, err
}
