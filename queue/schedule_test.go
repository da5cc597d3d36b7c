package queue_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// declare declares a schedule and checks what that changed.
func (w *fixture) declare(q *queue.Client, s queue.Schedule, want queue.ScheduleChange) queue.ScheduleResult {
	w.Helper()
	result, err := q.Schedule(w.Context(), s)
	w.must(err)
	if result.Change != want {
		w.Errorf("schedule %s is %s, want %s", result.Name, result.Change, want)
	}
	return result
}

// editNote changes the note of a schedule as a person does.
func (w *fixture) editNote(q *queue.Client, name, note string) {
	w.Helper()
	_, _, err := queue.Backend(q).EditSchedule(w.Context(), store.Actor{Name: "ada", Surface: store.CommandLine}, name, func(s *plan.Schedule) error {
		s.Note = note
		return nil
	})
	w.must(err)
}

// spec returns a stored schedule.
func (w *fixture) spec(q *queue.Client, name string) plan.Schedule {
	w.Helper()
	s, err := queue.Backend(q).Schedule(w.Context(), name)
	w.must(err)
	return s.Spec
}

// audited returns the actions on a schedule in the audit log, oldest first, each with its actor.
func (w *fixture) audited(q *queue.Client, name string) string {
	w.Helper()
	entries, err := queue.Backend(q).Store.AuditLog(w.Context(), store.AuditFilter{Subject: store.PlanSubject(store.ScheduleKind, name), Limit: 100})
	w.must(err)
	var actions []string
	for _, e := range slices.Backward(entries) {
		actions = append(actions, string(e.Action)+" "+string(e.Surface))
	}
	return strings.Join(actions, ", ")
}

// A schedule stores its tasks in time, and the handler reads their moments.
func TestAScheduleStoresTasks(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		type run struct {
			task    holdfast.Task
			payload string
		}
		runs := make(chan run, 100)
		w.must(queue.Handle(q, "report", func(_ context.Context, task holdfast.Task, payload string) error {
			select {
			case runs <- run{task, payload}:
			default:
			}
			return nil
		}, queue.Queue("reports")))
		result := w.declare(q, queue.Every("tick", time.Second, "report", "daily", queue.Key("tenant"), queue.Tags("a"), queue.MaxAttempts(3)), queue.ScheduleCreated)
		if result.Paused || result.Next.IsZero() {
			t.Errorf("result %+v", result)
		}
		stop := w.run(q)
		for range 2 {
			select {
			case r := <-runs:
				at, ok := queue.ScheduledFor(r.task)
				if age := r.task.CreatedAt.Sub(at); !ok || age < -slow.Times(time.Second) || age > slow.Patience() {
					t.Errorf("task created at %v for %v, %v", r.task.CreatedAt, at, ok)
				}
				if r.payload != "daily" || r.task.Key != "tenant" || r.task.Queue != "reports" || r.task.MaxAttempts != 3 || !slices.Equal(r.task.Tags, []string{"a"}) {
					t.Errorf("task %+v", r.task)
				}
			case <-time.After(slow.Patience()):
				t.Fatal("the schedule stores no task")
			}
		}
		stop()
		if _, ok := queue.ScheduledFor(holdfast.Task{Unique: "order/17"}); ok {
			t.Error("a task of no schedule has a due moment")
		}
	})
}

// Only a new declaration changes a stored schedule. It replaces the edits of persons, but does not end a pause.
func TestADeclarationChangesOnlyWhatHasChanged(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		first := queue.Cron("nightly", "0 30 2 * * *", "report", map[string]int{"days": 1}, queue.Timezone("Europe/Berlin"), queue.Overlap(queue.QueueOne), queue.Jitter(time.Minute))
		w.declare(q, first, queue.ScheduleCreated)
		w.declare(q, first, queue.ScheduleUnchanged)
		w.editNote(q, "nightly", "by ada")
		w.declare(q, first, queue.ScheduleUnchanged)
		if spec := w.spec(q, "nightly"); spec.Note != "by ada" || spec.Overlap != plan.OverlapQueue || spec.Timezone != "Europe/Berlin" || spec.Task.Queue != "default" {
			t.Errorf("spec %+v", spec)
		}
		w.must(q.PauseSchedule(t.Context(), "nightly", "upkeep"))
		second := queue.Cron("nightly", "0 30 3 * * *", "report", map[string]int{"days": 1})
		if result := w.declare(q, second, queue.ScheduleChanged); !result.Paused || !result.Next.IsZero() {
			t.Errorf("the declaration ended the pause: %+v", result)
		}
		if spec := w.spec(q, "nightly"); spec.Note != "" || spec.Cron != "0 30 3 * * *" || spec.Overlap != 1 {
			t.Errorf("spec %+v", spec)
		}
		w.must(q.ResumeSchedule(t.Context(), "nightly", "done"))
		if result := w.declare(q, second, queue.ScheduleUnchanged); result.Paused || result.Next.Minute() != 30 {
			t.Errorf("result %+v", result)
		}
		id, err := q.RunSchedule(t.Context(), "nightly")
		w.must(err)
		task, err := q.Task(t.Context(), id)
		w.must(err)
		if at, ok := queue.ScheduledFor(task); task.Type != "report" || !ok || task.CreatedAt.Sub(at).Abs() > slow.Patience() {
			t.Errorf("task %+v of %v", task, at)
		}
		w.must(q.DeleteSchedule(t.Context(), "nightly", "not needed"))
		w.declare(q, second, queue.ScheduleCreated)
		want := "create library, edit cli, pause library, edit library, resume library, run library, delete library, create library"
		if got := w.audited(q, "nightly"); got != want {
			t.Errorf("audit log: %s\nwant       %s", got, want)
		}
	})
}

// Intervals go on from their first begin if a later declaration does not name it.
func TestADeclarationKeepsTheBeginOfIntervals(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q, begin := w.open(), time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
		w.declare(q, queue.Every("tick", time.Hour, "report", nil, queue.StartAt(begin)), queue.ScheduleCreated)
		w.declare(q, queue.Every("tick", time.Hour, "report", nil, queue.Note("later")), queue.ScheduleChanged)
		if spec := w.spec(q, "tick"); !spec.Start.Equal(begin) || spec.Note != "later" {
			t.Errorf("spec %+v", spec)
		}
	})
}

// A declaration with a lower revision changes nothing. A higher revision alone keeps the edits of persons.
func TestRevisions(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		hourly := func(n int) queue.Schedule { return queue.Cron("s", "@hourly", "report", nil, queue.Revision(n)) }
		w.declare(q, hourly(2), queue.ScheduleCreated)
		w.declare(q, queue.Cron("s", "@daily", "report", nil, queue.Revision(1)), queue.ScheduleLeft)
		w.declare(q, queue.Cron("s", "@daily", "report", nil), queue.ScheduleLeft)
		w.editNote(q, "s", "by ada")
		w.declare(q, hourly(3), queue.ScheduleUnchanged)
		if spec := w.spec(q, "s"); spec.Revision != 3 || spec.Note != "by ada" || spec.Cron != "@hourly" {
			t.Errorf("spec %+v", spec)
		}
		w.declare(q, hourly(2), queue.ScheduleLeft)
		w.declare(q, queue.Cron("s", "@daily", "report", nil, queue.Revision(3)), queue.ScheduleChanged)
	})
}

// ScheduleAll reports and deletes only what its owner no longer declares.
func TestAnOwnerPrunes(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		q := w.open()
		daily := func(name string, opts ...queue.ScheduleOption) queue.Schedule {
			return queue.Cron(name, "@daily", "report", nil, opts...)
		}
		all := func(owner string, undeclared string, opts []queue.ScheduleAllOption, schedules ...queue.Schedule) []queue.ScheduleResult {
			t.Helper()
			results, err := q.ScheduleAll(t.Context(), owner, schedules, opts...)
			w.must(err)
			if got := strings.Join(results.Undeclared, " "); got != undeclared || len(results.Schedules) != len(schedules) {
				t.Errorf("undeclared %q, want %q; results %+v", got, undeclared, results)
			}
			return results.Schedules
		}
		prune := []queue.ScheduleAllOption{queue.Prune()}
		w.declare(q, daily("single"), queue.ScheduleCreated)
		w.declare(q, daily("adopted"), queue.ScheduleCreated)
		created := w.spec(q, "single")
		created.Declared = ""
		person, err := queue.Backend(q).NewSchedule(t.Context(), "person", created)
		w.must(err)
		person, err = queue.Backend(q).CreateSchedule(t.Context(), store.Actor{Name: "ada", Surface: store.CommandLine}, person)
		w.must(err)
		all("other", "", prune, daily("o"))
		all("billing", "", prune, daily("a"), daily("b"), daily("adopted"))
		all("billing", "a adopted", nil, daily("b"))
		if got := all("billing", "a adopted", prune, daily("b")); got[0].Change != queue.ScheduleUnchanged {
			t.Errorf("results %+v", got)
		}
		if got := all("billing", "", prune, daily("b"), daily("a")); got[1].Change != queue.ScheduleCreated {
			t.Errorf("results %+v", got)
		}
		// In a rollout a process of revision 2 starts between two of revision 1.
		rev := func(n int) []queue.ScheduleAllOption {
			return []queue.ScheduleAllOption{queue.Prune(), queue.Revision(n)}
		}
		all("billing", "", rev(1), daily("a"), daily("b"))
		all("billing", "b", rev(2), daily("a"), daily("new"))
		got := all("billing", "", rev(1), daily("a"), daily("b"))
		if got[0].Change != queue.ScheduleLeft || got[1].Change != queue.ScheduleLeft {
			t.Errorf("the old process changed schedules: %+v", got)
		}
		list, err := queue.Backend(q).Schedules(t.Context(), "", 100)
		w.must(err)
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != "a new o person single" {
			t.Errorf("stored: %s", got)
		}
		for name, s := range map[string]queue.Schedule{"of another owner": daily("o"), "of a person": daily(person.Name)} {
			_, err := q.ScheduleAll(t.Context(), "billing", []queue.Schedule{s}, queue.Revision(2))
			if !errors.Is(err, holdfast.ErrConflict) {
				t.Errorf("a schedule %s: %v", name, err)
			}
		}
		if _, err := q.Schedule(t.Context(), daily("a", queue.Revision(9))); !errors.Is(err, holdfast.ErrConflict) {
			t.Errorf("a schedule of an owner without it: %v", err)
		}
	})
}

// Processes that start at the same time may declare the same schedules.
func TestClientsDeclareAtTheSameTime(t *testing.T) {
	onEachBackend(t, func(w *fixture) {
		clients := []*queue.Client{w.open(), w.open()}
		var declaring sync.WaitGroup
		changes := make(chan queue.ScheduleChange, 100)
		for i := range 8 {
			declaring.Go(func() {
				for _, name := range []string{"a", "b", "c", "d"} {
					result, err := clients[i%2].Schedule(t.Context(), queue.Every(name, time.Hour, "report", nil))
					if err != nil {
						t.Error(err)
					}
					changes <- result.Change
				}
			})
		}
		declaring.Wait()
		close(changes)
		count := make(map[queue.ScheduleChange]int)
		for change := range changes {
			count[change]++
		}
		if count[queue.ScheduleCreated] != 4 || count[queue.ScheduleUnchanged] != 28 {
			t.Errorf("changes: %v", count)
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			if got := w.audited(clients[0], name); got != "create library" {
				t.Errorf("audit log of %s: %s", name, got)
			}
		}
	})
}

func TestWrongSchedules(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	hourly := func(opts ...queue.ScheduleOption) queue.Schedule {
		return queue.Cron("s", "@hourly", "report", nil, opts...)
	}
	for text, s := range map[string]queue.Schedule{
		"name":            queue.Cron("a b", "@hourly", "report", nil),
		"cron expression": queue.Cron("s", "61 * * * *", "report", nil),
		"interval":        queue.Every("s", time.Millisecond, "report", nil),
		"real time":       queue.Every("s", time.Hour, "report", nil, queue.Timezone("Europe/Berlin")),
		"encode payload":  queue.Cron("s", "@hourly", "report", func() {}),
		"unique key":      hourly(queue.Unique("u")),
		"In or At":        hourly(queue.In(time.Hour)),
		"option In":       hourly(queue.At(time.Now())),
		"overlap 0":       hourly(queue.Overlap(0)),
		"overlap 5000":    hourly(queue.Overlap(5000)),
		"revision":        hourly(queue.Revision(-1)),
		"missed":          hourly(queue.Missed("some")),
		"max attempts":    hourly(queue.MaxAttempts(0)),
		"before the end":  hourly(queue.StartAt(time.Now().Add(time.Hour)), queue.EndAt(time.Now())),
		"zero Schedule":   {},
	} {
		_, err := q.Schedule(t.Context(), s)
		if !errors.Is(err, holdfast.ErrInvalid) || text != "zero Schedule" && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, call := range map[string]func() error{
		"owner": func() error { _, err := q.ScheduleAll(t.Context(), "", nil); return err },
		"twice": func() error {
			_, err := q.ScheduleAll(t.Context(), "o", []queue.Schedule{hourly(), hourly()})
			return err
		},
	} {
		if err := call(); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if list, err := queue.Backend(q).Schedules(t.Context(), "", 10); err != nil || len(list) > 0 {
		t.Errorf("stored %v, %v", list, err)
	}
}

// A program may go on declaring a schedule after its end.
func TestADeclaredScheduleHasEnded(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	w.declare(q, queue.Every("s", time.Hour, "report", nil, queue.RunAtStart(), queue.EndAt(time.Now().Add(-time.Hour))), queue.ScheduleEnded)
	if _, err := queue.Backend(q).Schedule(t.Context(), "s"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("the schedule is stored: %v", err)
	}
	w.declare(q, queue.Every("s", time.Hour, "report", nil, queue.EndAt(time.Now().Add(2*time.Hour))), queue.ScheduleCreated)
	ended := queue.Every("s", time.Hour, "report", nil, queue.EndAt(time.Now().Add(-time.Minute)))
	w.declare(q, ended, queue.ScheduleEnded)
	w.declare(q, ended, queue.ScheduleEnded)
	if got := w.audited(q, "s"); got != "create library, delete library" {
		t.Errorf("audit log: %s", got)
	}
}

func TestSchedulesThatDoNotExist(t *testing.T) {
	t.Parallel()
	w := onFile(t)
	q := w.open()
	calls := map[string]func() error{
		"RunSchedule":    func() error { _, err := q.RunSchedule(t.Context(), "s"); return err },
		"PauseSchedule":  func() error { return q.PauseSchedule(t.Context(), "s", "") },
		"ResumeSchedule": func() error { return q.ResumeSchedule(t.Context(), "s", "") },
		"DeleteSchedule": func() error { return q.DeleteSchedule(t.Context(), "s", "") },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.must(q.Close())
	calls["Schedule"] = func() error {
		_, err := q.Schedule(t.Context(), queue.Every("s", time.Hour, "report", nil))
		return err
	}
	calls["ScheduleAll"] = func() error { _, err := q.ScheduleAll(t.Context(), "o", nil); return err }
	for name, call := range calls {
		if err := call(); !errors.Is(err, queue.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
}
