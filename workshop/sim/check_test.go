package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// While a janitor dispatches a task, the clock of the store is set back, a worker drops the ticket, and the clock is set
// right. The task then has no ticket until the search for lost tickets finds it. Without the drop, it is forgotten.
func TestATicketDroppedDuringADispatchIsExcused(t *testing.T) {
	for _, dropped := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(Plan{Roles: []Role{Worker}}, false)
			client := w.store.Client(nil)
			tickets := insertTasks(t, w, holdfast.NewTask{Type: "work", Queue: "a", MaxAttempts: 3})
			if _, err := client.Unticket(t.Context(), tickets); err != nil {
				t.Fatal(err)
			}
			worker := register(t, w)
			_, err := client.DispatchDue(t.Context(), store.Queues{}, 1, func(context.Context, []store.Due) []bool {
				w.inject(Fault{Kind: StoreLeap, For: time.Minute, N: 1})
				if answers := claim(t, w, worker, tickets); dropped {
					w.check.droppedEarly(tickets, answers)
				}
				w.inject(Fault{Kind: StoreLeap, For: time.Minute})
				return []bool{true}
			})
			if err != nil {
				t.Fatal(err)
			}
			w.check.checkTickets()
			if task := w.store.Task(tickets[0].Task); !task.Ticketed() || (w.check.violation == "") != dropped {
				t.Errorf("dropped %t, ticketed %t, violation %q", dropped, task.Ticketed(), w.check.violation)
			}
		})
	}
}

// A janitor must not mark a task as ticketed before the clock is right again.
func TestATaskThatIsNotDueIsNotMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(Plan{Roles: []Role{Worker}}, false)
		before := w.store.Task(insertTasks(t, w, holdfast.NewTask{Type: "work", Queue: "a", MaxAttempts: 3})[0].Task)
		after := *before
		before.DueAt, before.NextRunAt = w.clock.now().Add(time.Second), w.clock.now().Add(time.Second)
		w.check.checkMarked(memory.Change{Op: "DispatchDue end", Before: before, After: &after})
		if w.check.violation == "" {
			t.Error("no violation")
		}
	})
}

// A bucket keeps a permit only for the oldest task that has left it. If an older task that has not left it gets a
// permit, or the limit changes, the checker expects no permit for a younger task that leaves later.
func TestOnlyTheOldestLeaverHasAReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := store.Limit{Scope: store.Scope{Subject: store.Subject{Key: "x"}}, Concurrency: 1}
		w := newWorld(Plan{Roles: []Role{Worker}, Limits: []LimitPlan{{Limit: limit}}}, false)
		set, err := w.store.Client(nil).SetLimit(t.Context(), person, limit.Change())
		if err != nil {
			t.Fatal(err)
		}
		task := holdfast.NewTask{Type: "work", Queue: "a", Key: "x", MaxAttempts: 3}
		tickets := insertTasks(t, w, task, task, task)
		answers := claim(t, w, register(t, w), tickets)
		for i, answer := range answers {
			if answer.Verdict != store.Blocked {
				t.Fatalf("the claim of task %s was answered with %d, want Blocked", tickets[i].Task, answer.Verdict)
			}
		}
		if err := w.store.Client(nil).Block(t.Context(), set.After.ID, tickets); err != nil {
			t.Fatal(err)
		}
		l, ref := w.check.limits, permit.Ref{Gate: set.After.ID}
		l.note()
		l.noteLeaver(w.store.Task(tickets[1].Task))
		l.checkPassing(w.store.Task(tickets[0].Task), ref)
		l.noteLeaver(w.store.Task(tickets[2].Task))
		if v := l.leavers[ref]; v == nil || v.task != tickets[1].Task || v.left.IsZero() {
			t.Errorf("the oldest leaver is %+v after an older task got a permit, want task %s", v, tickets[1].Task)
		}
		limit.Concurrency = 2
		if _, err := w.store.Client(nil).SetLimit(t.Context(), person, limit.Change()); err != nil {
			t.Fatal(err)
		}
		l.note()
		l.noteLeaver(w.store.Task(tickets[2].Task))
		if v := l.leavers[ref]; v == nil || v.task != tickets[1].Task || !v.left.IsZero() {
			t.Errorf("the oldest leaver is %+v after the limit changed, want task %s, at an unknown time", v, tickets[1].Task)
		}
	})
}

// The search for the smallest plan ends at its time limit. Nothing in these plans makes a task start.
func TestShrinkEndsInTime(t *testing.T) {
	plan := Plan{Roles: []Role{Janitor}, Net: NetPlan{Usual: time.Millisecond}, Tasks: []TaskPlan{{Name: "t0", Queue: "a"}, {Name: "t1", Queue: "a"}}}
	if smaller := Shrink(t, plan, time.Now()); len(smaller.Removed) > 0 {
		t.Errorf("parts %v were removed after the time limit", smaller.Removed)
	}
}

// insertTasks stores tasks, as a producer that has published their tickets.
func insertTasks(t *testing.T, w *world, tasks ...holdfast.NewTask) []message.Ticket {
	t.Helper()
	inserted, err := w.store.Client(nil).Insert(t.Context(), tasks, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Client(nil).DeleteOutbox(t.Context(), []int64{inserted.Entries[0].ID}); err != nil {
		t.Fatal(err)
	}
	return inserted.Entries[0].Tickets
}

func register(t *testing.T, w *world) holdfast.WorkerID {
	t.Helper()
	id, err := w.store.Client(nil).RegisterWorker(t.Context(), store.WorkerInfo{Name: "0.1", Concurrency: concurrency}, lease)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func claim(t *testing.T, w *world, worker holdfast.WorkerID, tickets []message.Ticket) []store.Claim {
	t.Helper()
	answers, err := w.store.Client(nil).Claim(t.Context(), worker, []store.Wanted{{Type: "work", MostCrashes: 3}}, tickets, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	return answers
}
