package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Processes are killed with kill -9 while a schedule stores a task every second. Each moment from the first to the last
// has exactly one task, and every task runs. Tasks of killed processes stay open until their leases expire, so the
// schedule allows many open tasks.
func TestSchedulesSurviveKills(t *testing.T) { onBothBackends(t, schedulesSurviveKills) }

func schedulesSurviveKills(t *testing.T, w *world) {
	w.lease = shortLease()
	kills := slow.Pick(3, 12)
	tg := newTarget(t, func(call) int { return 200 })
	start := func(i int) *process { return w.serve(t, nil, "--name", fmt.Sprint("process-", i)) }
	live := []*process{start(0)}
	if !w.embedded {
		live = append(live, start(1), start(2))
	}
	task := httpTask(tg)
	tick, err := w.NewSchedule(t.Context(), "tick", plan.Schedule{
		Every: plan.Duration(time.Second), Missed: plan.MissedAll, CatchUp: plan.DefaultCatchUp, Overlap: plan.MaxOverlap,
		Task: plan.Task{Type: task.Type, Payload: task.Payload, MaxAttempts: 100},
	})
	if err == nil {
		_, err = w.CreateSchedule(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, tick)
	}
	if err != nil {
		t.Fatal(err)
	}
	for kill := range kills {
		seen, _ := tg.snapshot()
		tg.await(t, "the schedule has stored another task", func(calls []call) bool { return len(byTask(calls)) > len(byTask(seen)) })
		// On servers the process that stores the next task is a random one.
		live[0].signal(syscall.SIGKILL)
		live = append(live[1:], start(len(live)+1+kill))
	}
	tasks := w.tasks(t)
	last := tasks[len(tasks)-1]
	tg.await(t, "a task that was stored after the last kill runs", func(calls []call) bool {
		for _, c := range calls {
			if c.task > last.ID {
				return true
			}
		}
		return false
	})
	if _, _, err := w.PauseSchedule(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, "tick"); err != nil {
		t.Fatal(err)
	}

	tasks = w.tasks(t)
	w.awaitCount(t, holdfast.Done, int64(len(tasks)))
	s, err := w.Schedule(t.Context(), "tick")
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Progress; p.Runs != int64(len(tasks)) || p.Skipped != 0 || p.Missed != 0 {
		t.Errorf("the schedule counts %d runs, %d skipped and %d missed moments; the store has %d tasks", p.Runs, p.Skipped, p.Missed, len(tasks))
	}
	want := s.Progress.Next
	for _, task := range slices.Backward(tasks) {
		want = want.Add(-time.Second)
		if name, moment, ok := plan.ScheduleOrigin(task.Unique); !ok || name != "tick" || !moment.Equal(want) {
			t.Errorf("task %s has the unique key %q, want that of %s", task.ID, task.Unique, want)
		}
	}
	calls, _ := tg.snapshot()
	if ran := len(byTask(calls)); ran != len(tasks) {
		t.Errorf("%d tasks have called the target, want %d", ran, len(tasks))
	}
	eachAttemptOnce(t, w, calls)
	_, edited, err := w.EditSchedule(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, "tick", func(spec *plan.Schedule) error {
		spec.Start, spec.Note = time.Time{}, "as a program declares it"
		return nil
	})
	if err != nil || !edited.Spec.Start.Equal(s.Spec.Start) || edited.Spec.Note == "" {
		t.Errorf("the edited schedule is %+v, and its intervals began at %s: %v", edited.Spec, s.Spec.Start, err)
	}
	e, err := w.Explain(t.Context(), tasks[0].ID)
	if err != nil || e.Schedule == nil || !strings.HasSuffix(e.Schedule.Text, "; the schedule is paused") {
		t.Errorf("the explanation is %+v: %v", e.Schedule, err)
	}
}

// tasks returns the tasks of the world in the order of their ids.
func (w *world) tasks(t *testing.T) (tasks []holdfast.Task) {
	t.Helper()
	for f := (store.Filter{Limit: 100}); ; {
		page, err := w.Store.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, page.Tasks...)
		if f.Before = page.Next; f.Before == 0 {
			slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
			return tasks
		}
	}
}
