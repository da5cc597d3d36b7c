package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Source is a stored source, which is pulled in slices of time.
type Source struct {
	Name      string
	Spec      plan.Source // the settings that the source has itself
	Effective plan.Source // with those of plan.DefaultSource
	Progress  plan.SourceProgress
	plan      store.Plan
}

// Version returns the version of the source. Each change and each step increases it.
func (s *Source) Version() int64 { return s.plan.Version }

// Creator returns who created the source, and when.
func (s *Source) Creator() (by store.Actor, at time.Time) { return s.plan.Actor, s.plan.CreatedAt }

// Failing returns how many steps of the source have failed in a row, and why the last one did.
func (s *Source) Failing() (steps int, why string) { return s.plan.Failures, s.plan.Failure }

// Lag returns how far the source is behind at the time now of the store; see plan.Source.Behind. A source that is up to
// date is behind by less than the length of a slice and the duration of a pull.
func (s *Source) Lag(now time.Time) time.Duration {
	if s.Name == plan.DefaultSource {
		return 0
	}
	return s.Effective.Behind(s.Progress, now)
}

func (b *Backend) sourceOf(p store.Plan, defaults plan.Source) (s Source, err error) {
	s = Source{Name: p.Name, plan: p}
	if s.Spec, s.Progress, err = plan.ReadSource(p); err != nil {
		s.Spec, err = plan.Source{}, fmt.Errorf("%s: %w: %w", p.Subject(), errUnread, err)
	}
	if p.Name == plan.DefaultSource {
		defaults = plan.Source{} // after a change, they are the settings before it
	}
	s.Effective = s.Spec.Effective(defaults)
	return s, err
}

// defaultSource returns the settings of plan.DefaultSource.
func (b *Backend) defaultSource(ctx context.Context) (plan.Source, error) {
	p, err := b.Store.PlanByName(ctx, store.SourceKind, plan.DefaultSource)
	if errors.Is(err, holdfast.ErrNotFound) {
		return plan.Source{}, nil
	}
	if err != nil {
		return plan.Source{}, err
	}
	s, err := b.sourceOf(p, plan.Source{})
	return s.Spec, err
}

// Source returns the source or the backfill with a name. It returns an ErrNotFound if there is none.
func (b *Backend) Source(ctx context.Context, name string) (Source, error) {
	defaults, err := b.defaultSource(ctx)
	if err != nil {
		return Source{}, err
	}
	p, err := b.Store.PlanByName(ctx, store.SourceKind, name)
	if err != nil {
		return Source{}, err
	}
	return b.sourceOf(p, defaults)
}

// Sources returns at most limit sources and backfills with names greater than after, in the order of their names.
func (b *Backend) Sources(ctx context.Context, after string, limit int) ([]Source, error) {
	defaults, err := b.defaultSource(ctx)
	if err != nil && !errors.Is(err, errUnread) {
		return nil, err
	}
	plans, err := b.Store.ListPlans(ctx, store.PlanFilter{Kind: store.SourceKind, After: after, Limit: limit})
	if err != nil {
		return nil, err
	}
	sources := make([]Source, len(plans))
	for i, p := range plans {
		s, err := b.sourceOf(p, defaults)
		s.plan = listed(p, err)
		sources[i] = s
	}
	return sources, nil
}

// SetSource creates a source, or changes it while workers run. change gets the present settings, or the zero value.
// before is nil if the source is new. Checks may refuse the change. The change of plan.DefaultSource concerns each source
// that does not have the setting itself. A start counts when the source is created.
func (b *Backend) SetSource(
	ctx context.Context, by store.Actor, name string, change func(*plan.Source) error, checks ...func(before *Source) error,
) (before *Source, after Source, err error) {
	for range tries {
		defaults, err := b.defaultSource(ctx)
		if err != nil {
			return nil, Source{}, err
		}
		before = nil
		stored, err := b.Source(ctx, name)
		switch {
		case err == nil:
			before = &stored
		case !errors.Is(err, holdfast.ErrNotFound):
			return nil, Source{}, err
		default:
			if err := plan.CheckName(name); err != nil { // the name of a backfill is longer
				return nil, Source{}, err
			}
		}
		for _, check := range checks {
			if err := check(before); err != nil {
				return before, Source{}, err
			}
		}
		after, err = b.setSource(ctx, by, name, before, defaults, change)
		if !errors.Is(err, holdfast.ErrConflict) {
			return before, after, err
		}
	}
	return nil, Source{}, fmt.Errorf("%w: source %s changes all the time; try again", holdfast.ErrConflict, name)
}

func (b *Backend) setSource(
	ctx context.Context, by store.Actor, name string, before *Source, defaults plan.Source, change func(*plan.Source) error,
) (Source, error) {
	var spec plan.Source
	if before != nil {
		spec = before.Spec
	}
	if err := change(&spec); err != nil {
		return Source{}, err
	}
	if err := b.checkSource(name, &spec, defaults); err != nil {
		return Source{}, err
	}
	if name == plan.DefaultSource {
		if err := b.checkReliant(ctx, defaults, spec); err != nil {
			return Source{}, err
		}
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return Source{}, err
	}
	p := spec.Plan(name, defaults, now)
	if before == nil {
		p, err = b.Store.CreatePlan(ctx, by, p)
	} else {
		p.Progress = before.plan.Progress
		step := store.PlanStep{From: before.plan, By: &by, Action: store.ActionSet}
		p, err = b.Store.StepPlan(ctx, step, plan.WithoutItems(to(p)))
	}
	if err != nil {
		return Source{}, err
	}
	return b.sourceOf(p, defaults)
}

// checkSource validates settings, and sets the queue of the type, for when neither they nor the default have a queue. It
// refuses a type whose payloads cannot be slices, such as http.
func (b *Backend) checkSource(name string, spec *plan.Source, defaults plan.Source) error {
	if name == plan.DefaultSource {
		return spec.Validate(true)
	}
	e := spec.Effective(defaults)
	if err := e.Validate(false); err != nil {
		return err
	}
	slice, err := json.Marshal(plan.Slice{Source: name})
	if err != nil {
		return err
	}
	if err := b.CheckTask(holdfast.NewTask{Type: e.Type, Queue: e.Queue, Payload: slice}); err != nil {
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
func (b *Backend) DeleteSource(ctx context.Context, by store.Actor, name string, checks ...func(*Source) error) (Source, error) {
	for range tries {
		s, err := b.Source(ctx, name)
		if err != nil && !deletable(s.plan, store.ActionDelete) {
			return Source{}, err
		}
		for _, check := range checks {
			if err := check(&s); err != nil {
				return s, err
			}
		}
		if name == plan.DefaultSource {
			if err := b.checkReliant(ctx, s.Spec, plan.Source{}); err != nil {
				return s, err
			}
		}
		_, err = b.Store.StepPlan(ctx, store.PlanStep{From: s.plan, By: &by, Action: store.ActionDelete}, plan.WithoutItems(to(plan.Deleted(s.plan))))
		if !errors.Is(err, holdfast.ErrConflict) {
			return s, err
		}
	}
	return Source{}, fmt.Errorf("%w: source %s changes all the time; try again", holdfast.ErrConflict, name)
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
// present settings, which ends when all its slices have ended; a dead slice keeps it. inFlight is its maximum number of
// open slices; 0 means that of the source. It returns an ErrConflict if the same backfill has not ended.
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
	p, err := b.Store.CreatePlan(ctx, by, spec.Plan(backfill, plan.Source{}, now))
	if err != nil {
		return Source{}, err
	}
	return b.sourceOf(p, plan.Source{})
}
