package simstore_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
)

func TestRestoreLosesCommits(t *testing.T) {
	t.Parallel()
	for _, ids := range []simstore.IDs{simstore.IDsAgain, simstore.IDsOnce} {
		w := newWorld(t)
		kept, run, c := w.insert(2), w.openRun(), w.client()
		snapshot := w.Snapshot()
		_, err := c.Claim(t.Context(), run, store.AnyOf("a"), kept.Tickets, store.IntoExecutors)
		w.must(err)
		move, err := holdfast.Settle(w.Task(kept.Tickets[0].Task).Task, holdfast.Returned(errors.New("no")), w.now, holdfast.DefaultPolicy())
		w.must(err)
		_, err = c.Apply(t.Context(), []holdfast.Transition{move})
		w.must(err)
		lost := w.insert(1).Tickets[0].Task
		w.openRun()
		w.must(c.Discharge(t.Context(), []int64{kept.ID}))
		for range 2 { // it can be restored more than once
			w.Restore(snapshot, ids)
			if tasks := w.Tasks(); len(tasks) != 2 || tasks[0].State != holdfast.Ready || len(tasks[0].Attempts) != 0 || tasks[0].Attempt != 1 {
				t.Fatalf("the tasks are %+v", tasks)
			}
			if len(w.Receipts()) != 1 || len(w.Runs()) != 1 {
				t.Errorf("%d receipts and %d runs", len(w.Receipts()), len(w.Runs()))
			}
			again := w.insert(1).Tickets[0].Task
			if reused := again == lost; reused != (ids == simstore.IDsAgain) {
				t.Errorf("the next task is %s, the lost one was %s", again, lost)
			}
			lost = again
		}
	}
}

func TestASnapshotDoesNotChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, run, c := w.insert(1).Tickets, w.openRun(), w.client()
	fail := func() {
		claims, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors)
		w.must(err)
		move, err := holdfast.Settle(claims[0].Task, holdfast.Interrupted(errors.New("stop")), w.now, holdfast.DefaultPolicy())
		w.must(err)
		_, err = c.Apply(t.Context(), []holdfast.Transition{move})
		w.must(err)
		tickets[0].Attempt++
	}
	fail()
	snapshot := new(simstore.Snapshot)
	w.SnapshotInto(snapshot)
	want := w.Task(1).Attempts[0]
	w.now = w.now.Add(time.Second)
	fail()
	fail()
	w.Restore(snapshot, simstore.IDsAgain)
	tickets[0].Attempt = 2
	fail()
	w.Restore(snapshot, simstore.IDsAgain)
	if got := w.Task(1).Attempts; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("the attempts are %+v, want %+v", got, want)
	}
}

func TestARestartEndsTransactions(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*world, *simstore.Snapshot){
		"restarted": func(w *world, _ *simstore.Snapshot) { w.Restarted() },
		"restored":  func(w *world, s *simstore.Snapshot) { w.Restore(s, simstore.IDsAgain) },
	} {
		w := newWorld(t)
		ticket := w.due(1)[0]
		_, err := w.client().DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
			restart(w, w.Snapshot())
			return all(due)
		})
		if !errors.Is(err, holdfast.ErrUnavailable) || w.Task(ticket.Task).Ticketed() || w.given(w.client()) != 1 {
			t.Errorf("%s: %v, %+v", name, err, w.Task(ticket.Task))
		}
	}
}

func TestARestartedServerFencesNobodyForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run, c := w.openRun(), w.client()
	w.now = w.now.Add(time.Hour)
	w.Restarted()
	const settle = 10 * time.Second
	for _, step := range []time.Duration{0, settle - time.Microsecond} {
		w.now = w.now.Add(step)
		if fenced, err := c.Fence(t.Context(), w.now, 0, settle); err != nil || len(fenced) > 0 {
			t.Errorf("fenced %v, %v", fenced, err)
		}
	}
	w.now = w.now.Add(time.Microsecond)
	if fenced, err := c.Fence(t.Context(), w.now, 0, settle); err != nil || len(fenced) != 1 || w.Store.Run(run).State != store.RunDead {
		t.Errorf("fenced %v, %v", fenced, err)
	}
}

// A client remembers which lanes it has stored. An insert notices all the same that a failover has lost one.
func TestAnInsertStoresALaneAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	snapshot, c := w.Snapshot(), w.client()
	task := []holdfast.NewTask{{Type: "a", Lane: "new", MaxAttempts: 1}}
	insert := func() {
		_, err := c.Insert(t.Context(), task, 0)
		w.must(err)
	}
	insert()
	w.Restore(snapshot, simstore.IDsAgain)
	insert()
	if len(w.Lanes()) != 2 {
		t.Errorf("the lanes are %+v", w.Lanes())
	}
}

func TestObserverSeesEveryChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen []string
	w.Observe(func(c simstore.Change) {
		said := c.Op
		if c.Before != nil {
			said += " " + string(c.Before.State)
		}
		if c.After != nil {
			said += " > " + string(c.After.State)
		}
		if c.Move != nil {
			said += " " + string(c.Move.Event)
		}
		seen = append(seen, said)
	})
	tickets, run, c := w.insert(1).Tickets, w.openRun(), w.client()
	claims, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors)
	w.must(err)
	move, err := holdfast.Settle(claims[0].Task, holdfast.Returned(nil), w.now, holdfast.DefaultPolicy())
	w.must(err)
	for range 2 {
		_, err = c.Apply(t.Context(), []holdfast.Transition{move})
		w.must(err)
	}
	w.now = w.now.Add(time.Second)
	_, err = c.Prune(t.Context(), store.PruneAges{Done: time.Microsecond}, 10)
	w.must(err)
	want := []string{"Insert > ready", "Claim ready > running", "Apply running > done complete", "Prune tasks done"}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	notes := map[string]string{}
	c := w.Client(func(_ context.Context, step simstore.Step, effect func()) error {
		notes[step.Op] = step.Note()
		effect()
		return nil
	})
	w.due(2)
	_, err := c.DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool { return []bool{true, false} })
	w.must(err)
	claims, err := c.Claim(t.Context(), w.openRun(), store.AnyOf("a"), []message.Ticket{{Task: 1, Attempt: 1}}, store.IntoExecutors)
	w.must(err)
	move, err := holdfast.Settle(claims[0].Task, holdfast.Returned(nil), w.now, holdfast.DefaultPolicy())
	w.must(err)
	_, err = c.Apply(t.Context(), []holdfast.Transition{move})
	w.must(err)
	want := map[string]string{
		"DispatchDue begin": "", "DispatchDue end": "tickets 1/1 2/1!", "Claim": "run 1, tickets 1/1", "Apply": "moves complete:1/1",
	}
	if !reflect.DeepEqual(notes, want) {
		t.Errorf("the notes are %q, want %q", notes, want)
	}
}

func TestACallWithoutTimeLeftIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client().Now(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnavailable) || len(w.steps) > 0 {
		t.Errorf("%v, after %v", err, w.steps)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	if _, err := w.client().Now(late); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Error(err)
	}
}

func TestInsertTxIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := newWorld(t).client().InsertTx(t.Context(), nil, nil, 0); err == nil {
		t.Error("stored in a transaction of SQL that nobody can begin")
	}
}
