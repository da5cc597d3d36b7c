package memory_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

func TestRestoreLosesCommits(t *testing.T) {
	t.Parallel()
	for _, ids := range []memory.IDs{memory.IDsAgain, memory.IDsOnce} {
		w := newWorld(t)
		kept, worker, c := w.insert(2), w.registerWorker(), w.client()
		snapshot := w.Snapshot()
		_, err := c.Claim(t.Context(), worker, store.AnyOf("a"), kept.Tickets, store.IntoExecutors)
		w.must(err)
		move, err := holdfast.Settle(w.Task(kept.Tickets[0].Task).Task, holdfast.Returned(errors.New("no")), w.now, holdfast.DefaultPolicy())
		w.must(err)
		_, err = c.Apply(t.Context(), []holdfast.Transition{move})
		w.must(err)
		lost := w.insert(1).Tickets[0].Task
		w.registerWorker()
		w.must(c.DeleteOutbox(t.Context(), []int64{kept.ID}))
		for range 2 { // a snapshot can be restored more than once
			w.Restore(snapshot, ids)
			if tasks := w.Tasks(); len(tasks) != 2 || tasks[0].State != holdfast.Ready || len(tasks[0].Attempts) != 0 || tasks[0].Attempt != 1 {
				t.Fatalf("got tasks %+v", tasks)
			}
			if len(w.OutboxEntries()) != 1 || len(w.Workers()) != 1 {
				t.Errorf("got %d outbox entries and %d workers, want one each", len(w.OutboxEntries()), len(w.Workers()))
			}
			next := w.insert(1).Tickets[0].Task
			if reused := next == lost; reused != (ids == memory.IDsAgain) {
				t.Errorf("the next task is %s, the lost one was %s", next, lost)
			}
			lost = next
		}
	}
}

func TestASnapshotDoesNotChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, worker, c := w.insert(1).Tickets, w.registerWorker(), w.client()
	fail := func() {
		claims, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors)
		w.must(err)
		move, err := holdfast.Settle(*claims[0].Task, holdfast.Interrupted(errors.New("stop")), w.now, holdfast.DefaultPolicy())
		w.must(err)
		_, err = c.Apply(t.Context(), []holdfast.Transition{move})
		w.must(err)
		tickets[0].Attempt++
	}
	fail()
	snapshot := new(memory.Snapshot)
	w.SnapshotInto(snapshot)
	want := w.Task(1).Attempts[0]
	w.now = w.now.Add(time.Second)
	fail()
	fail()
	w.Restore(snapshot, memory.IDsAgain)
	tickets[0].Attempt = 2
	fail()
	w.Restore(snapshot, memory.IDsAgain)
	if got := w.Task(1).Attempts; len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("got attempts %+v, want %+v", got, want)
	}
}

func TestARestartEndsTransactions(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*world, *memory.Snapshot){
		"restarted": func(w *world, _ *memory.Snapshot) { w.Restarted() },
		"restored":  func(w *world, s *memory.Snapshot) { w.Restore(s, memory.IDsAgain) },
	} {
		w := newWorld(t)
		ticket := w.due(1)[0]
		_, err := w.client().DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
			restart(w, w.Snapshot())
			return all(due)
		})
		if !errors.Is(err, holdfast.ErrUnavailable) || w.Task(ticket.Task).Ticketed() || w.given(w.client()) != 1 {
			t.Errorf("%s: %v, %+v", name, err, w.Task(ticket.Task))
		}
	}
}

func TestARestartedServerFencesAfterItsSettleTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker, c := w.registerWorker(), w.client()
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
	if fenced, err := c.Fence(t.Context(), w.now, 0, settle); err != nil || len(fenced) != 1 || w.Store.Worker(worker).State != store.WorkerDead {
		t.Errorf("fenced %v, %v", fenced, err)
	}
}

// A client remembers which queues it has stored. If a failover has lost one, the next insert stores it again.
func TestAnInsertStoresAQueueAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	snapshot, c := w.Snapshot(), w.client()
	task := []holdfast.NewTask{{Type: "a", Queue: "new", MaxAttempts: 1}}
	insert := func() {
		_, err := c.Insert(t.Context(), task, 0)
		w.must(err)
	}
	insert()
	w.Restore(snapshot, memory.IDsAgain)
	insert()
	if len(w.Queues()) != 2 {
		t.Errorf("got queues %+v, want 2", w.Queues())
	}
}

func TestObserverSeesEveryChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var seen []string
	w.Observe(func(c memory.Change) {
		text := c.Op
		if c.Before != nil {
			text += " " + string(c.Before.State)
		}
		if c.After != nil {
			text += " > " + string(c.After.State)
		}
		if c.Move != nil {
			text += " " + string(c.Move.Event)
		}
		seen = append(seen, text)
	})
	tickets, worker, c := w.insert(1).Tickets, w.registerWorker(), w.client()
	claims, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors)
	w.must(err)
	move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(nil), w.now, holdfast.DefaultPolicy())
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
	c := w.Client(func(_ context.Context, step memory.Step, effect func()) error {
		notes[step.Op] = step.Note()
		effect()
		return nil
	})
	w.due(2)
	_, err := c.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool { return []bool{true, false} })
	w.must(err)
	claims, err := c.Claim(t.Context(), w.registerWorker(), store.AnyOf("a"), []message.Ticket{{Task: 1, Attempt: 1}}, store.IntoExecutors)
	w.must(err)
	move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(nil), w.now, holdfast.DefaultPolicy())
	w.must(err)
	_, err = c.Apply(t.Context(), []holdfast.Transition{move})
	w.must(err)
	want := map[string]string{
		"DispatchDue begin": "", "DispatchDue end": "tickets 1/1 2/1!", "Claim": "worker 1, tickets 1/1", "Apply": "moves complete:1/1",
	}
	if !reflect.DeepEqual(notes, want) {
		t.Errorf("got notes %q, want %q", notes, want)
	}
}

func TestACallWithoutTimeLeftIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.client().Now(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnavailable) || len(w.steps) > 0 {
		t.Errorf("got error %v after steps %v", err, w.steps)
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
		t.Error("InsertTx returned no error")
	}
}
