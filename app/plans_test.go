package app_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/memory"
)

var (
	hourly   = plan.Schedule{Every: plan.Duration(time.Hour), Missed: plan.MissedOne, CatchUp: plan.DefaultCatchUp, Overlap: 1, Task: plan.Task{Type: "report"}}
	shop     = plan.Source{Type: "pull", Every: new(plan.Duration(time.Hour))}
	scan     = plan.ShardJob{Type: "scan", Zones: map[string]string{"0": "a", "1": "b"}}
	pushable = plan.Batch{Stages: []plan.Stage{{Open: true}}}
)

// rival is a store in which another process makes a change just before the first change of this process.
type rival struct {
	desk.Store
	comesFirst func(desk.Store) error
	defaults   int // reads of plan.DefaultSource
}

func (r *rival) race() error {
	first := r.comesFirst
	if r.comesFirst = nil; first == nil {
		return nil
	}
	return first(r.Store)
}

func (r *rival) CreatePlan(ctx context.Context, by store.Actor, p store.Plan) (store.Plan, error) {
	if err := r.race(); err != nil {
		return p, err
	}
	return r.Store.CreatePlan(ctx, by, p)
}

func (r *rival) StepPlan(ctx context.Context, step store.PlanStep, finish func(store.Inserted) (store.Plan, []store.PlanItem)) (store.Plan, error) {
	if err := r.race(); err != nil {
		return step.From, err
	}
	return r.Store.StepPlan(ctx, step, finish)
}

func (r *rival) PlanByName(ctx context.Context, kind store.PlanKind, name string) (store.Plan, error) {
	if kind == store.SourceKind && name == plan.DefaultSource {
		r.defaults++
	}
	return r.Store.PlanByName(ctx, kind, name)
}

func backendOf(s desk.Store) *app.Backend {
	return &app.Backend{Store: s, Config: configs.Default()}
}

// A change that begins again computes the next step with the time of its last try.
func TestChangesUseTheTimeOfTheirTry(t *testing.T) {
	t.Parallel()
	ctx, anna := t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}
	var batch holdfast.BatchID
	for name, c := range map[string]struct {
		kind   store.PlanKind
		create func(*app.Backend) error
		change func(*app.Backend) (time.Time, error)
		late   time.Duration // from the time of the try to the next step
	}{
		"schedule": {store.ScheduleKind, func(b *app.Backend) error {
			s, err := b.NewSchedule(ctx, "x", hourly)
			if err == nil {
				_, err = b.CreateSchedule(ctx, anna, s)
			}
			return err
		}, func(b *app.Backend) (time.Time, error) {
			_, s, err := b.EditSchedule(ctx, anna, "x", func(s *plan.Schedule) error { s.Start = time.Time{}; s.Every *= 2; return nil })
			return s.DueAt(), err
		}, 2 * time.Hour},
		"shard job": {store.ShardKind, func(b *app.Backend) error {
			_, _, err := b.SetShardJob(ctx, anna, "x", scan)
			return err
		}, func(b *app.Backend) (time.Time, error) {
			_, j, err := b.MoveShard(ctx, anna, "x", "0", "b")
			return j.DueAt(), err
		}, 0},
		"batch": {store.BatchKind, func(b *app.Backend) error {
			started, _, err := b.StartBatch(ctx, anna, "x", pushable)
			if batch = started.ID; err == nil {
				_, _, err = b.PauseBatch(ctx, anna, batch)
			}
			return err
		}, func(b *app.Backend) (time.Time, error) {
			_, resumed, err := b.ResumeBatch(ctx, anna, batch)
			return resumed.DueAt(), err
		}, 0},
	} {
		now := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
		r := &rival{Store: desk.Without(memory.New(func() time.Time { return now }).Client(nil))}
		b := backendOf(r)
		if err := c.create(b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r.comesFirst = func(s desk.Store) error { // a step that changes nothing but the version, and takes a day
			now = now.Add(24 * time.Hour)
			p, err := s.PlanByName(ctx, c.kind, "x")
			if err == nil {
				_, err = s.StepPlan(ctx, store.PlanStep{From: p}, plan.WithoutItems(func(store.Inserted) store.Plan { return p }))
			}
			return err
		}
		due, err := c.change(b)
		if want := now.Add(c.late); err != nil || !due.Equal(want) {
			t.Errorf("%s: the next step is due at %s, %v; want %s", name, due, err, want)
		}
	}
}

// If another process creates the same record first, a change that may create it changes that one.
func TestALostCreationIsAChange(t *testing.T) {
	t.Parallel()
	ctx, anna, ada := t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, store.Actor{Name: "ada", Surface: store.CommandLine}
	for name, set := range map[string]func(b *app.Backend, by store.Actor) (found bool, creator string, err error){
		"source": func(b *app.Backend, by store.Actor) (bool, string, error) {
			before, after, err := b.SetSource(ctx, by, "x", func(s *plan.Source) error { *s = shop; return nil })
			creator, _ := after.Creator()
			return before != nil, creator.Name, err
		},
		"shard job": func(b *app.Backend, by store.Actor) (bool, string, error) {
			before, after, err := b.EditShardJob(ctx, by, "x", func(j *plan.ShardJob) error { *j = scan; return nil })
			creator, _ := after.Creator()
			return before != nil, creator.Name, err
		},
		"batch": func(b *app.Backend, by store.Actor) (bool, string, error) {
			started, isNew, err := b.StartBatch(ctx, by, "x", pushable)
			creator, _ := started.Creator()
			return !isNew, creator.Name, err
		},
	} {
		r := &rival{Store: desk.Without(memory.New(time.Now).Client(nil))}
		r.comesFirst = func(s desk.Store) error {
			_, _, err := set(backendOf(s), ada)
			return err
		}
		if found, creator, err := set(backendOf(r), anna); err != nil || !found || creator != ada.Name {
			t.Errorf("%s: found %v, created by %q, %v", name, found, creator, err)
		}
	}
	r := &rival{Store: desk.Without(memory.New(time.Now).Client(nil))}
	b := backendOf(r)
	s, err := b.NewSchedule(ctx, "x", hourly)
	if err != nil {
		t.Fatal(err)
	}
	r.comesFirst = func(other desk.Store) error {
		_, err := backendOf(other).CreateSchedule(ctx, ada, s)
		return err
	}
	if _, err := b.CreateSchedule(ctx, anna, s); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("a schedule that another process has created: %v", err)
	}
}

// Each try of a change of a source reads the settings of the source default once, so that it uses one version of them.
func TestAChangeOfASourceReadsTheDefaultOnce(t *testing.T) {
	t.Parallel()
	ctx, anna := t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}
	r := &rival{Store: desk.Without(memory.New(time.Now).Client(nil))}
	b := backendOf(r)
	set := func() error {
		_, _, err := b.SetSource(ctx, anna, "shop", func(s *plan.Source) error { *s = shop; return nil })
		return err
	}
	remove := func() error {
		_, _, err := b.DeleteSource(ctx, anna, "shop")
		return err
	}
	for i, change := range []func() error{set, set, remove} {
		r.defaults = 0
		if err := change(); err != nil || r.defaults != 1 {
			t.Errorf("change %d: %d reads of the source default, %v", i, r.defaults, err)
		}
	}
}
