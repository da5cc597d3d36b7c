package janitor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// planReads is a store that counts the reads of due plans.
type planReads struct {
	Store
	reads *atomic.Int32
	read  func(n int32)
}

func (s planReads) DuePlans(ctx context.Context, kinds []store.PlanKind, within time.Duration, limit int) ([]store.Plan, error) {
	defer func() { s.read(s.reads.Add(1)) }()
	return s.Store.DuePlans(ctx, kinds, within, limit)
}

// schedule stores a schedule.
func (w *world) schedule(name string, s plan.Schedule) store.Plan {
	w.Helper()
	s.Missed, s.Overlap, s.CatchUp = plan.MissedOne, 1, plan.DefaultCatchUp
	s.Task = plan.TaskOf(newTask())
	w.must(s.Validate(1000))
	now, err := w.store.Now(w.Context())
	w.must(err)
	p, err := s.Plan(name, now)
	w.must(err)
	p, err = w.store.CreatePlan(w.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, p)
	w.must(err)
	return p
}

// A janitor stores the task of a due schedule, and publishes its ticket at once.
func TestSchedulesFire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	main := w.listen(w.main())
	w.schedule("nightly", plan.Schedule{Every: plan.Duration(time.Hour), RunAtStart: true})
	w.run(w.janitor(nil))
	var published []message.Ticket
	for len(published) == 0 { // the janitor also publishes a sentinel
		published = w.decode(main.next().Body).Tickets
	}
	task := w.task(published[0].Task)
	if name, _, ok := plan.ScheduleOrigin(task.Unique); !ok || name != "nightly" || task.Type != kind {
		t.Errorf("the janitor published %+v", task)
	}
	p, err := w.store.PlanByName(t.Context(), store.ScheduleKind, "nightly")
	w.must(err)
	_, progress, err := plan.ReadSchedule(p)
	w.must(err)
	if len(progress.Open) != 1 || progress.Open[0].Task != task.ID || progress.Runs != 1 || !p.NextAt.Equal(progress.Next) {
		t.Errorf("the schedule is due at %s, and its progress is %+v", p.NextAt, progress)
	}
}

// Without a due schedule, the janitor reads the due plans at most once a second.
func TestAnIdleJanitorRarelyReadsPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.schedule("nightly", plan.Schedule{Every: plan.Duration(time.Hour)})
	const reads = 3
	begin, enough := time.Now(), make(chan time.Duration, 1)
	w.run(w.janitor(func(o *Options) {
		o.Store = planReads{o.Store, new(atomic.Int32), func(n int32) {
			if n == reads {
				enough <- time.Since(begin)
			}
		}}
	}))
	if took := <-enough; took < (reads-1)*plan.Every {
		t.Errorf("%d reads took %s, want at least %s", reads, took, (reads-1)*plan.Every)
	}
}
