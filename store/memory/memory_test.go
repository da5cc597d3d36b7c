package memory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

var errCut = errors.New("connection cut")

// world is a store with a clock that the test sets, and a gate that fails chosen steps.
type world struct {
	*testing.T
	*memory.Store
	now    time.Time
	before string // Op of the step that fails before its effect
	after  string // Op of the step that fails after its effect
	late   string // Op of the step whose effect is left to the test
	effect func() // the effect of the step late
	steps  []string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Store = memory.New(func() time.Time { return w.now })
	return w
}

func (w *world) gate(_ context.Context, step memory.Step, effect func()) error {
	w.steps = append(w.steps, step.Op)
	switch step.Op {
	case w.before:
		return errCut
	case w.late:
		w.effect = effect
		return errCut
	}
	effect()
	if step.Op == w.after {
		return errCut
	}
	return nil
}

func (w *world) client() *memory.Client { return w.Client(w.gate) }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// insert stores tasks that are due at once, and returns their outbox entry.
func (w *world) insert(n int) store.OutboxEntry {
	w.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "a", Queue: holdfast.DefaultQueue, MaxAttempts: 3}
	}
	inserted, err := w.Client(nil).Insert(w.Context(), tasks, 0)
	w.must(err)
	return inserted.Entries[0]
}

// due stores tasks that are due and unticketed, and returns their tickets.
func (w *world) due(n int) []message.Ticket {
	w.Helper()
	tickets := w.insert(n).Tickets
	_, err := w.Client(nil).Unticket(w.Context(), tickets)
	w.must(err)
	return tickets
}

func (w *world) registerWorker() holdfast.WorkerID {
	w.Helper()
	worker, err := w.Client(nil).RegisterWorker(w.Context(), store.WorkerInfo{Name: "w", Concurrency: 1}, time.Minute)
	w.must(err)
	return worker
}

// given returns how many tasks a client gets to publish. It publishes none of them.
func (w *world) given(c *memory.Client) (n int) {
	w.Helper()
	_, err := c.DispatchDue(w.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		n = len(due)
		return make([]bool, n)
	})
	w.must(err)
	return n
}

func all(due []store.Due) []bool { return slices.Repeat([]bool{true}, len(due)) }

func TestLockedTasksAreNotDispatchedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.due(3)
	c := w.client()
	result, err := c.DispatchDue(t.Context(), store.Queues{}, 2, func(_ context.Context, due []store.Due) []bool {
		if len(due) != 2 || w.given(w.client()) != 1 || w.given(c) != 0 {
			t.Errorf("dispatched %v, and other callers get the same tasks", due)
		}
		return all(due)
	})
	if err != nil || result != (store.Dispatched{Given: 2, Marked: 2}) {
		t.Errorf("%+v, %v", result, err)
	}
	if !w.Task(tickets[0].Task).Ticketed() || w.Task(tickets[2].Task).Ticketed() {
		t.Error("the wrong tasks are ticketed")
	}
}

func TestDisconnectRollsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.due(2)
	entry := w.insert(1)
	c := w.client()
	_, err := c.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		c.Disconnect()
		return all(due)
	})
	if !errors.Is(err, holdfast.ErrUnavailable) || w.Task(tickets[0].Task).Ticketed() {
		t.Errorf("dispatched tasks without a connection: %v, %+v", err, w.Task(tickets[0].Task))
	}
	n, err := c.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, entries []store.OutboxEntry) []bool {
		c.Disconnect()
		return make([]bool, len(entries))
	})
	if n != 0 || !errors.Is(err, holdfast.ErrUnavailable) || len(w.OutboxEntries()) != 2 || w.OutboxEntries()[1].PublishAfter.After(w.now) {
		t.Errorf("dispatched outbox entries without a connection: %d, %v, %+v", n, err, w.OutboxEntries())
	}
	if w.given(c) != 2 {
		t.Error("the rows are still locked, or the client has no new connection")
	}
	w.must(c.DeleteOutbox(t.Context(), []int64{entry.ID}))
}

// A client that loses its connections does not affect other clients.
func TestDisconnectIsOneClientsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.due(1)
	other := w.client()
	result, err := w.client().DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		other.Disconnect()
		return all(due)
	})
	if err != nil || result.Marked != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestAnIdleTransactionReleasesItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.due(1)
	_, err := w.client().DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		w.now = w.now.Add(11 * time.Second)
		if w.given(w.client()) != 0 {
			t.Error("the rows were released too early")
		}
		w.now = w.now.Add(time.Microsecond)
		if w.given(w.client()) != 1 {
			t.Error("a frozen process keeps its rows forever")
		}
		return all(due)
	})
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("a process whose rows were released has marked them: %v", err)
	}
}

func TestALostAnswerFreesTheRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		before, after string
		ticketed      bool
	}{
		{"begin, not sent", "DispatchDue begin", "", false},
		{"begin, no answer", "", "DispatchDue begin", false},
		{"end, not sent", "DispatchDue end", "", false},
		{"end, no answer", "", "DispatchDue end", true},
	} {
		w := newWorld(t)
		ticket := w.due(1)[0]
		w.before, w.after = c.before, c.after
		_, err := w.client().DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool { return all(due) })
		if !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, errCut) {
			t.Errorf("%s: %v", c.name, err)
		}
		if w.Task(ticket.Task).Ticketed() != c.ticketed {
			t.Errorf("%s: ticketed is %t", c.name, !c.ticketed)
		}
		w.before, w.after = "", ""
		if n := w.given(w.client()); n == 1 == c.ticketed {
			t.Errorf("%s: other clients get %d tasks", c.name, n)
		}
	}
}

func TestALostAnswerOfAClaimIsGivenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, worker, c := w.insert(2).Tickets, w.registerWorker(), w.client()
	w.before = "Claim"
	if _, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) || w.Task(tickets[0].Task).Worker != 0 {
		t.Errorf("%v, %+v", err, w.Task(tickets[0].Task))
	}
	w.before, w.after = "", "Claim"
	if _, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) || w.Task(tickets[0].Task).Worker != worker {
		t.Errorf("%v, %+v", err, w.Task(tickets[0].Task))
	}
	w.after, w.steps = "", nil
	claims, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed || claims[1].Task.ID != tickets[1].Task {
		t.Errorf("%+v, %v", claims, err)
	}
	if want := []string{"Claim", "Claim refused", "Claim held"}; !slices.Equal(w.steps, want) {
		t.Errorf("got steps %v, want %v", w.steps, want)
	}
}

func TestAnEffectMayComeAfterItsError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, worker, c := w.insert(1).Tickets, w.registerWorker(), w.client()
	w.late = "Claim"
	if _, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Error(err)
	}
	tickets[0].Attempt = 9 // the slice belongs to the caller again
	w.effect()
	if got := w.Tasks()[0]; got.State != holdfast.Running || got.Worker != worker {
		t.Errorf("got task %+v", got)
	}
	due := w.due(1)[0]
	w.late = "DispatchDue end"
	_, err := c.DispatchDue(t.Context(), store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool { return all(due) })
	w.effect()
	if !errors.Is(err, holdfast.ErrUnavailable) || w.Task(due.Task).Ticketed() {
		t.Errorf("a transaction was committed after the client gave it up: %v", err)
	}
}

func TestCancellationsAreReturnedUntilARenewalSucceeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, worker, c := w.insert(1).Tickets, w.registerWorker(), w.client()
	claims, err := c.Claim(t.Context(), worker, store.AnyOf("a"), tickets, store.IntoExecutors)
	w.must(err)
	move, err := holdfast.Settle(*claims[0].Task, holdfast.Requested(holdfast.EventCancel), w.now, holdfast.DefaultPolicy())
	w.must(err)
	_, err = c.Apply(t.Context(), []holdfast.Transition{move})
	w.must(err)
	for i, want := range []int{-1, 1, 0} {
		if w.after = ""; want < 0 {
			w.after = "Renew"
		}
		result, err := c.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Minute})
		if (err != nil) != (want < 0) || want >= 0 && len(result.Cancelled) != want {
			t.Errorf("renewal %d: %+v, %v", i, result, err)
		}
	}
	if left := w.Cancellations(); len(left) > 0 {
		t.Errorf("cancellations are left: %v", left)
	}
}
