package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Source is a stored source, which is pulled in slices of time. Spec has the settings that the source has itself.
type Source struct {
	Record[plan.Source, plan.SourceProgress]
	Effective plan.Source // the settings with those of plan.DefaultSource
}

// Lag returns how far the source is behind at the time now of the store; see plan.Source.Behind. A source that is up to
// date is behind by less than the length of a slice and the duration of a pull.
func (s *Source) Lag(now time.Time) time.Duration {
	if s.Name == plan.DefaultSource {
		return 0
	}
	return s.Effective.Behind(s.Progress, now)
}

// Late reports whether the source is behind by too much at the time now of the store; see plan.Source.Late.
func (s *Source) Late(now time.Time) bool {
	return s.Name != plan.DefaultSource && s.Effective.Late(s.Progress, now)
}

// sourceKind returns the kind of sources that rely on the given settings of plan.DefaultSource.
func sourceKind(defaults *plan.Source) kind[Source] {
	return kind[Source]{store.SourceKind, func(p store.Plan) (s Source, err error) {
		if s.Record, err = recordOf(p, plan.ReadSource); err != nil {
			s.Spec = plan.Source{}
		}
		if s.Effective = s.Spec.Effective(*defaults); p.Name == plan.DefaultSource { // defaults may be the settings before a change
			s.Effective = s.Spec.Effective(plan.Source{})
		}
		return s, err
	}}
}

// defaultSource returns the settings of plan.DefaultSource.
func (b *Backend) defaultSource(ctx context.Context) (plan.Source, error) {
	s, err := sourceKind(new(plan.Source)).get(ctx, b.Store, plan.DefaultSource)
	if errors.Is(err, holdfast.ErrNotFound) {
		return plan.Source{}, nil
	}
	return s.Spec, err
}

// Source returns the source or the backfill with a name. It returns an ErrNotFound if there is none.
func (b *Backend) Source(ctx context.Context, name string) (Source, error) {
	return b.readSource(ctx, name, new(plan.Source))
}

// readSource is like Source, and sets defaults to the settings of plan.DefaultSource.
func (b *Backend) readSource(ctx context.Context, name string, defaults *plan.Source) (s Source, err error) {
	if *defaults, err = b.defaultSource(ctx); err != nil {
		return s, err
	}
	return sourceKind(defaults).get(ctx, b.Store, name)
}

// Sources returns at most limit sources and backfills with names greater than after, in the order of their names.
func (b *Backend) Sources(ctx context.Context, after string, limit int) ([]Source, error) {
	defaults, err := b.defaultSource(ctx)
	if err != nil && !errors.Is(err, errUnread) {
		return nil, err
	}
	return sourceKind(&defaults).list(ctx, b.Store, store.PlanFilter{After: after, Limit: limit})
}

// changeSource changes a source. compute also gets the settings of plan.DefaultSource, which each try reads once.
func (b *Backend) changeSource(
	ctx context.Context, c planChange[Source], compute func(before *Source, defaults plan.Source, now time.Time) (planStep, error),
) (before *Source, after Source, err error) {
	var defaults plan.Source
	c.read = func(ctx context.Context) (Source, error) { return b.readSource(ctx, c.name, &defaults) }
	c.compute = func(before *Source, now time.Time) (planStep, error) { return compute(before, defaults, now) }
	return sourceKind(&defaults).change(ctx, b, c)
}

// SetSource creates a source, or changes it while workers run. change gets the present settings, or the zero value.
// before is nil if the source is new. Checks may refuse the change. The change of plan.DefaultSource concerns each source
// that does not have the setting itself. A start counts when the source is created.
func (b *Backend) SetSource(
	ctx context.Context, by store.Actor, name string, change func(*plan.Source) error, checks ...func(before *Source) error,
) (before *Source, after Source, err error) {
	c := planChange[Source]{by: by, name: name, action: store.ActionSet, checks: checks, create: true}
	return b.changeSource(ctx, c, func(before *Source, defaults plan.Source, now time.Time) (planStep, error) {
		var spec plan.Source
		if before != nil {
			spec = before.Spec
		} else if err := plan.CheckName(name); err != nil { // the name of a backfill is longer
			return planStep{}, err
		}
		if err := cmp.Or(change(&spec), b.checkSource(name, &spec, defaults)); err != nil {
			return planStep{}, err
		}
		if name == plan.DefaultSource {
			if err := b.checkReliant(ctx, defaults, spec); err != nil {
				return planStep{}, err
			}
		}
		p := spec.Plan(name, defaults, now)
		if before != nil {
			p.Progress = before.plan.Progress
		}
		return stepTo(p), nil
	})
}

// checkSource validates settings, and sets the queue of the type. That queue is used if neither the settings nor the
// default name one.
func (b *Backend) checkSource(name string, spec *plan.Source, defaults plan.Source) error {
	if name == plan.DefaultSource {
		return spec.Validate(true)
	}
	e := spec.Effective(defaults)
	if err := e.Validate(false); err != nil {
		return err
	}
	spec.TypeQueue = b.Settings().For(e.Type).Queue
	return nil
}

// checkReliant returns an ErrInvalid if a change of plan.DefaultSource would break sources that rely on it.
func (b *Backend) checkReliant(ctx context.Context, before, after plan.Source) error {
	const most = 5 // names in the error
	var broken []string
	var why error
	err := b.reliant(ctx, func(name string, spec plan.Source) {
		was, is := spec.Effective(before), spec.Effective(after)
		if err := b.checkSource(name, &is, plan.Source{}); err != nil && was.Validate(false) == nil {
			broken, why = append(broken, name), cmp.Or(why, err)
		}
	})
	if err != nil || len(broken) == 0 {
		return err
	}
	names := strings.Join(broken[:min(len(broken), most)], ", ")
	if more := len(broken) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%w; the change of default would stop the sources that rely on it; first give them settings of their own: %s", why, names)
}

// reliant calls visit for each source that may rely on plan.DefaultSource. A backfill has all settings itself.
func (b *Backend) reliant(ctx context.Context, visit func(name string, spec plan.Source)) error {
	const page = 1000
	for after := ""; ; {
		plans, err := b.Store.ListPlans(ctx, store.PlanFilter{Kind: store.SourceKind, After: after, Limit: page})
		if err != nil {
			return err
		}
		for _, p := range plans {
			after = p.Name
			if spec, _, err := plan.ReadSource(p); err == nil && p.Name != plan.DefaultSource && spec.BackfillOf == "" {
				visit(p.Name, spec)
			}
		}
		if len(plans) < page {
			return nil
		}
	}
}

// ReliantSources returns the number of sources that a change of plan.DefaultSource concerns.
func (b *Backend) ReliantSources(ctx context.Context) (n int, err error) {
	return n, b.reliant(ctx, func(string, plan.Source) { n++ })
}

// DeleteSource ends a source. Slices that are stored already stay. The source plan.DefaultSource can be deleted only if
// no source relies on it.
func (b *Backend) DeleteSource(ctx context.Context, by store.Actor, name string, checks ...func(*Source) error) (before *Source, after Source, err error) {
	c := planChange[Source]{by: by, name: name, action: store.ActionDelete, checks: checks}
	return b.changeSource(ctx, c, func(before *Source, _ plan.Source, _ time.Time) (planStep, error) {
		if name == plan.DefaultSource {
			if err := b.checkReliant(ctx, before.Spec, plan.Source{}); err != nil {
				return planStep{}, err
			}
		}
		return stepTo(plan.Deleted(before.plan)), nil
	})
}

// Slice is an open or a dead slice of a source, without the overlap.
type Slice struct {
	From, To time.Time
	State    store.PlanItemState
	Task     holdfast.TaskID
}

// Slices returns at most limit slices of a source in a state that begin after a time, the earliest first. Slices that
// have ended have no record.
func (b *Backend) Slices(ctx context.Context, name string, state store.PlanItemState, after time.Time, limit int) ([]Slice, error) {
	s, err := b.Source(ctx, name)
	if err != nil {
		return nil, err
	}
	items, err := b.Store.PlanItems(ctx, s.plan.ID, store.PlanItemFilter{State: state, After: plan.SliceName(after), Limit: limit})
	if err != nil {
		return nil, err
	}
	slices := make([]Slice, len(items))
	for i, item := range items {
		slices[i].State = state
		if slices[i].From, slices[i].To, slices[i].Task, err = plan.SliceOf(item); err != nil {
			return nil, fmt.Errorf("source %s: %w", name, err)
		}
	}
	return slices, nil
}

// BackfillSource pulls a source again from one time to another. It returns the backfill: a source of its own with the
// present settings. The backfill ends when all its slices have ended; a dead slice has not ended. inFlight is its
// maximum number of open slices; 0 means that of the source. It returns an ErrConflict if the same backfill has not
// ended.
func (b *Backend) BackfillSource(ctx context.Context, by store.Actor, name string, from, until time.Time, inFlight int) (Source, error) {
	s, err := b.Source(ctx, name)
	if err != nil {
		return Source{}, err
	}
	spec, backfill, err := s.Effective.Backfill(name, from, until, inFlight)
	if err != nil {
		return Source{}, err
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return Source{}, err
	}
	if until.After(now) {
		return Source{}, fmt.Errorf("%w: the end %s is in the future", holdfast.ErrInvalid, until.UTC().Format(time.RFC3339))
	}
	var defaults plan.Source // a backfill has all settings itself
	return sourceKind(&defaults).create(ctx, b.Store, by, spec.Plan(backfill, defaults, now))
}
