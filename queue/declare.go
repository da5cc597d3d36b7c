package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// ScheduleAllOption is an option of Client.ScheduleAll.
type ScheduleAllOption interface {
	applyToScheduleAll(*scheduleSet) error
}

// scheduleSet has the options of Client.ScheduleAll.
type scheduleSet struct {
	owner    string
	revision int // greatest revision of the call
	newest   int // greatest stored revision of the owner
	prune    bool
}

// Prune makes ScheduleAll delete the schedules of the owner that are no longer declared. While processes with different
// declarations run, for example in a rollout, also give a [Revision]. Otherwise a start of an old process deletes the
// schedules that only new processes declare.
func Prune() ScheduleAllOption { return pruneOption{} }

type pruneOption struct{}

func (pruneOption) applyToScheduleAll(s *scheduleSet) error {
	s.prune = true
	return nil
}

// RevisionOption is an option of Cron and Every, for one schedule, and of ScheduleAll, for all schedules that have no
// revision of their own.
type RevisionOption interface {
	ScheduleOption
	ScheduleAllOption
}

// Revision orders declarations: one with a lower revision than the stored one changes nothing. Increase it with each
// change of a declaration, or use the number of the build. So an old process of a rollout that starts late does not undo
// the declarations of a new one. The default is 0.
func Revision(n int) RevisionOption { return revision(n) }

type revision int

func (n revision) check() error {
	if n < 0 {
		return fmt.Errorf("%w: the revision %d is negative", holdfast.ErrInvalid, n)
	}
	return nil
}

func (n revision) applyToSchedule(d *scheduleDraft) error {
	d.spec.Revision = int(n)
	return n.check()
}

func (n revision) applyToScheduleAll(s *scheduleSet) error {
	s.revision = int(n)
	return n.check()
}

// ScheduleChange is what a declaration has changed.
type ScheduleChange string

// The values of ScheduleChange.
const (
	ScheduleCreated   ScheduleChange = "created"
	ScheduleChanged   ScheduleChange = "changed"   // the declaration has replaced an earlier one and the edits of persons
	ScheduleUnchanged ScheduleChange = "unchanged" // the declaration was stored already; edits of persons stay
	ScheduleLeft      ScheduleChange = "left"      // a declaration with a higher revision is stored
	ScheduleEnded     ScheduleChange = "ended"     // no moment is left before EndAt; the schedule is not stored
)

// ScheduleResult is the result of one declaration.
type ScheduleResult struct {
	Name   string
	Change ScheduleChange
	Paused bool      // a person has paused the schedule, or PauseAfter
	Next   time.Time // next moment; zero if the schedule is paused or has no more moments
}

// ScheduleResults is the result of Client.ScheduleAll.
type ScheduleResults struct {
	Schedules []ScheduleResult // in the order of the declarations
	// Undeclared has the names of the stored schedules of the owner that are not among the declarations. With Prune they
	// are deleted. Those with a higher revision than all declarations are left out.
	Undeclared []string
}

// Schedule stores a schedule, or changes the stored one with its name. A program calls it at each start. Any process
// with a janitor then stores the tasks, at most one for each moment, whichever processes run.
//
// Schedule only writes if the declaration has changed since the last call, or if its revision is higher. The edit of a
// person stays until the declaration changes. A schedule that is paused stays paused even then. The next call creates a
// deleted schedule again; to stop it without a change of the program, pause it. If a change leaves the times as they
// are, moments that are due still run.
//
// Schedule returns ErrInvalid if the declaration is wrong. It returns ErrConflict if a person has created a schedule
// with the name, or if the schedule belongs to an owner; see ScheduleAll.
func (c *Client) Schedule(ctx context.Context, s Schedule) (ScheduleResult, error) {
	b, err := c.openBackend()
	if err != nil {
		return ScheduleResult{}, err
	}
	if err := s.check(b); err != nil {
		return ScheduleResult{}, err
	}
	return s.declare(ctx, b, scheduleSet{revision: s.spec.Revision})
}

// ScheduleAll calls Schedule for all schedules of a part of a program, the owner, and reports the stored schedules of
// the owner that are no longer declared. The option [Prune] deletes them. Schedules of other owners, of persons and of
// Client.Schedule are neither reported nor deleted. A name of an owner has letters, digits and . _ -.
//
// A schedule that Client.Schedule has stored gets the owner. ScheduleAll returns ErrConflict if a schedule has another
// owner. If a declaration is wrong or declared twice, ScheduleAll returns ErrInvalid and stores nothing. After any other
// error the results cover the leading schedules.
func (c *Client) ScheduleAll(ctx context.Context, owner string, schedules []Schedule, opts ...ScheduleAllOption) (ScheduleResults, error) {
	b, err := c.openBackend()
	if err != nil {
		return ScheduleResults{}, err
	}
	set := scheduleSet{owner: owner}
	schedules, err = set.complete(b, schedules, opts)
	if err != nil {
		return ScheduleResults{}, err
	}
	var results ScheduleResults
	stored, err := set.stored(ctx, b)
	if err != nil {
		return results, err
	}
	declared := make(map[string]bool, len(schedules))
	for _, s := range schedules {
		result, err := s.declare(ctx, b, set)
		if err != nil {
			return results, err
		}
		results.Schedules = append(results.Schedules, result)
		declared[s.name] = true
	}
	for _, s := range stored {
		if declared[s.Name] || s.Spec.Revision > set.revision {
			continue
		}
		if set.prune {
			if err := set.remove(ctx, b, s.Name); err != nil {
				return results, err
			}
		}
		results.Undeclared = append(results.Undeclared, s.Name)
	}
	return results, nil
}

// complete applies the options and returns the schedules with their revisions. It returns an ErrInvalid if one of them is
// wrong.
func (set *scheduleSet) complete(b *app.Backend, schedules []Schedule, opts []ScheduleAllOption) ([]Schedule, error) {
	if plan.CheckName(set.owner) != nil {
		return nil, fmt.Errorf("%w: the owner %.120q must be 1 to %d letters, digits or . _ -, and not begin with a dot", holdfast.ErrInvalid, set.owner, plan.MaxName)
	}
	for _, option := range opts {
		if option == nil {
			continue
		}
		if err := option.applyToScheduleAll(set); err != nil {
			return nil, err
		}
	}
	complete, names, common := make([]Schedule, len(schedules)), make(map[string]bool), set.revision
	for i, s := range schedules {
		if s.spec.Revision == 0 {
			s.spec.Revision = common
		}
		if err := s.check(b); err != nil {
			return nil, err
		}
		if names[s.name] {
			return nil, fmt.Errorf("schedule %s: %w: the schedule is declared twice", s.name, holdfast.ErrInvalid)
		}
		set.revision = max(set.revision, s.spec.Revision)
		complete[i], names[s.name] = s, true
	}
	return complete, nil
}

// stored returns the stored schedules of the owner, and sets newest.
func (set *scheduleSet) stored(ctx context.Context, b *app.Backend) ([]app.Schedule, error) {
	const page = 1000
	var own []app.Schedule
	for after := ""; ; {
		list, err := b.Schedules(ctx, after, page)
		if err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		for _, s := range list {
			if s.Spec.Owner == set.owner {
				own = append(own, s)
				set.newest = max(set.newest, s.Spec.Revision)
			}
		}
		if len(list) < page {
			return own, nil
		}
		after = list[page-1].Name
	}
}

// remove deletes a schedule that is no longer declared, unless another process has declared or deleted it meanwhile.
func (set *scheduleSet) remove(ctx context.Context, b *app.Backend, name string) error {
	_, _, err := b.DeleteSchedule(ctx, by("no longer declared by "+set.owner), name, func(s *app.Schedule) error {
		if s.Spec.Owner != set.owner || s.Spec.Revision > set.revision {
			return errSettled
		}
		return nil
	})
	if err != nil && !errors.Is(err, errSettled) && !errors.Is(err, holdfast.ErrNotFound) {
		return fmt.Errorf("delete schedule %s: %w", name, err)
	}
	return nil
}

// check returns an ErrInvalid if the schedule can never be stored.
func (s Schedule) check(b *app.Backend) error {
	err := s.err
	if err == nil {
		err = plan.CheckName(s.name)
	}
	if err == nil {
		err = s.spec.Validate(b.Config.Producer.MaxPayload)
	}
	if err == nil {
		err = b.CheckTask(s.spec.Task.New())
	}
	if err != nil {
		return fmt.Errorf("schedule %.100s: %w", s.name, err)
	}
	return nil
}

// errSettled ends a change of a stored schedule or source that needs none. errEnded ends one whose declaration has no
// moment left.
var (
	errSettled = errors.New("the declaration is stored")
	errEnded   = errors.New("the declaration has ended")
)

// declareTries is how often a declaration is tried while other processes create and delete the schedule.
const declareTries = 5

// declare creates or changes the stored schedule.
func (s Schedule) declare(ctx context.Context, b *app.Backend, set scheduleSet) (ScheduleResult, error) {
	d := declaration{s.name, s.spec, false}
	d.spec.Owner, d.spec.Declared = set.owner, s.spec.Hash()
	var err error
	if !d.spec.End.IsZero() {
		if d.ended, err = hasEnded(ctx, b, d.spec); err != nil {
			return ScheduleResult{}, fmt.Errorf("schedule %s: %w", s.name, err)
		}
	}
	for range declareTries {
		var result ScheduleResult
		result, err = d.change(ctx, b)
		switch {
		case !errors.Is(err, holdfast.ErrNotFound):
		case set.newest > set.revision: // a newer declaration of the owner has removed it
			return ScheduleResult{Name: s.name, Change: ScheduleLeft}, nil
		case d.ended:
			return ScheduleResult{Name: s.name, Change: ScheduleEnded}, nil
		default:
			var stored app.Schedule
			if stored, err = b.NewSchedule(ctx, s.name, d.spec); err == nil {
				stored, err = b.CreateSchedule(ctx, by(""), stored)
			}
			if errors.Is(err, holdfast.ErrConflict) {
				continue // another process has created it
			}
			result = resultOf(stored, ScheduleCreated)
		}
		if err != nil {
			return ScheduleResult{}, fmt.Errorf("schedule %s: %w", s.name, err)
		}
		return result, nil
	}
	return ScheduleResult{}, fmt.Errorf("schedule %s: %w", s.name, err)
}

// hasEnded reports whether a schedule with an end has no moment left.
func hasEnded(ctx context.Context, b *app.Backend, spec plan.Schedule) (bool, error) {
	now, err := b.Store.Now(ctx)
	if err != nil {
		return false, err
	}
	spec = spec.Begun(now)
	moments, err := spec.Moments(now, 1)
	return len(moments) == 0, err
}

// declaration is a schedule as it is declared, with its owner and its hash.
type declaration struct {
	name  string
	spec  plan.Schedule
	ended bool // no moment is left
}

// change changes or deletes the stored schedule if the declaration requires it. It returns an ErrNotFound if there is
// none.
func (d declaration) change(ctx context.Context, b *app.Backend) (ScheduleResult, error) {
	var change ScheduleChange
	check := func(stored *app.Schedule) (err error) {
		change, err = d.compare(stored)
		return err
	}
	_, stored, err := b.EditSchedule(ctx, by(""), d.name, func(spec *plan.Schedule) error {
		if change == ScheduleChanged {
			*spec = d.spec
		}
		spec.Owner, spec.Revision = d.spec.Owner, d.spec.Revision // a revision alone keeps the edits of persons
		return nil
	}, check)
	if errors.Is(err, errEnded) {
		_, _, err = b.DeleteSchedule(ctx, by("its declared end has passed"), d.name, func(stored *app.Schedule) error {
			if err := check(stored); !errors.Is(err, errEnded) {
				return cmp.Or(err, errSettled)
			}
			return nil
		})
		stored = app.Schedule{Name: d.name}
	}
	if err != nil && !errors.Is(err, errSettled) {
		return ScheduleResult{}, err
	}
	return resultOf(stored, change), nil
}

// compare returns what the declaration changes in the stored schedule. The error is errSettled if the declaration
// changes nothing, and errEnded if it deletes the schedule. It is an ErrConflict if the schedule belongs to others.
func (d declaration) compare(stored *app.Schedule) (ScheduleChange, error) {
	was := stored.Spec
	switch {
	case was.Declared == "":
		person, _ := stored.Creator()
		return "", personsOwn("schedule", person)
	case was.Owner != "" && was.Owner != d.spec.Owner:
		return "", fmt.Errorf("%w: the schedule belongs to the owner %s; delete it first", holdfast.ErrConflict, was.Owner)
	case was.Revision > d.spec.Revision:
		return ScheduleLeft, errSettled
	case was.Declared != d.spec.Declared && d.ended:
		return ScheduleEnded, errEnded
	case was.Declared != d.spec.Declared:
		return ScheduleChanged, nil
	case was.Owner == d.spec.Owner && was.Revision == d.spec.Revision:
		return ScheduleUnchanged, errSettled
	}
	return ScheduleUnchanged, nil
}

// personsOwn returns the error of a declaration with the name of a schedule or source that a person has created.
func personsOwn(noun string, person store.Actor) error {
	return fmt.Errorf("%w: %s has created a %s with this name; delete it first", holdfast.ErrConflict, person.Name, noun)
}

func resultOf(s app.Schedule, change ScheduleChange) ScheduleResult {
	result := ScheduleResult{Name: s.Name, Change: change, Paused: s.State == store.PlanPaused}
	if !result.Paused {
		result.Next = s.Progress.Next
	}
	return result
}
