package simstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
)

var errCut = errors.New("the cable was cut")

// world is a database with a clock that stands still, and the gate of one client.
type world struct {
	*testing.T
	*simstore.Store
	now    time.Time
	before string // the step that fails before its effect
	after  string // the one that fails after it
	late   string // the one whose effect comes later
	effect func() // then it is here
	steps  []string
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.Store = simstore.New(func() time.Time { return w.now })
	return w
}

func (w *world) gate(_ context.Context, step simstore.Step, effect func()) error {
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

func (w *world) client() *simstore.Client { return w.Client(w.gate) }

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// insert stores tasks that are due at once and returns their tickets and receipt.
func (w *world) insert(n int) store.Receipt {
	w.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "a", Lane: holdfast.DefaultLane, MaxAttempts: 3}
	}
	inserted, err := w.Client(nil).Insert(w.Context(), tasks, 0)
	w.must(err)
	return inserted.Receipts[0]
}

// due stores tasks that DispatchDue gives.
func (w *world) due(n int) []message.Ticket {
	w.Helper()
	tickets := w.insert(n).Tickets
	_, err := w.Client(nil).Unticket(w.Context(), tickets)
	w.must(err)
	return tickets
}

func (w *world) openRun() holdfast.RunID {
	w.Helper()
	run, err := w.Client(nil).OpenRun(w.Context(), store.RunInfo{Name: "w", Concurrency: 1}, time.Minute)
	w.must(err)
	return run
}

// given counts what a client gets to publish, and publishes nothing.
func (w *world) given(c *simstore.Client) (n int) {
	w.Helper()
	_, err := c.DispatchDue(w.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		n = len(due)
		return make([]bool, n)
	})
	w.must(err)
	return n
}

func all(due []store.Due) []bool { return slices.Repeat([]bool{true}, len(due)) }

func TestWhatIsBeingPublishedIsGivenToNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.due(3)
	c := w.client()
	result, err := c.DispatchDue(t.Context(), store.Lanes{}, 2, func(_ context.Context, due []store.Due) []bool {
		if len(due) != 2 || w.given(w.client()) != 1 || w.given(c) != 0 {
			t.Errorf("given %v, and others get the same", due)
		}
		return all(due)
	})
	if err != nil || result != (store.Dispatched{Given: 2, Marked: 2}) {
		t.Errorf("%+v, %v", result, err)
	}
	if !w.Task(tickets[0].Task).Ticketed() || w.Task(tickets[2].Task).Ticketed() {
		t.Error("the wrong tasks are marked")
	}
}

func TestDisconnectRollsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets := w.due(2)
	receipt := w.insert(1)
	c := w.client()
	_, err := c.DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		c.Disconnect()
		return all(due)
	})
	if !errors.Is(err, holdfast.ErrUnavailable) || w.Task(tickets[0].Task).Ticketed() {
		t.Errorf("dispatched without a connection: %v, %+v", err, w.Task(tickets[0].Task))
	}
	n, err := c.DispatchReceipts(t.Context(), store.Lanes{}, 10, func(_ context.Context, receipts []store.Receipt) []bool {
		c.Disconnect()
		return make([]bool, len(receipts))
	})
	if n != 0 || !errors.Is(err, holdfast.ErrUnavailable) || len(w.Receipts()) != 2 || w.Receipts()[1].PublishAfter.After(w.now) {
		t.Errorf("dispatched receipts without a connection: %d, %v, %+v", n, err, w.Receipts())
	}
	if w.given(c) != 2 {
		t.Error("the rows are not free, or the client has no new connection")
	}
	w.must(c.Discharge(t.Context(), []int64{receipt.ID}))
}

// Whoever loses the connection of another process keeps its own.
func TestDisconnectIsOneClientsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.due(1)
	other := w.client()
	result, err := w.client().DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		other.Disconnect()
		return all(due)
	})
	if err != nil || result.Marked != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestAnIdleTransactionLetsItsRowsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.due(1)
	_, err := w.client().DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		w.now = w.now.Add(11 * time.Second)
		if w.given(w.client()) != 0 {
			t.Error("given too early")
		}
		w.now = w.now.Add(time.Microsecond)
		if w.given(w.client()) != 1 {
			t.Error("a frozen process keeps its rows for ever")
		}
		return all(due)
	})
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("it came back and marked them: %v", err)
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
		_, err := w.client().DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool { return all(due) })
		if !errors.Is(err, holdfast.ErrUnavailable) || !errors.Is(err, errCut) {
			t.Errorf("%s: %v", c.name, err)
		}
		if w.Task(ticket.Task).Ticketed() != c.ticketed {
			t.Errorf("%s: ticketed: %t", c.name, !c.ticketed)
		}
		w.before, w.after = "", ""
		if n := w.given(w.client()); n == 1 == c.ticketed {
			t.Errorf("%s: others get %d tasks", c.name, n)
		}
	}
}

func TestALostAnswerOfAClaimIsGivenAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, run, c := w.insert(2).Tickets, w.openRun(), w.client()
	w.before = "Claim"
	if _, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) || w.Task(tickets[0].Task).Run != 0 {
		t.Errorf("%v, %+v", err, w.Task(tickets[0].Task))
	}
	w.before, w.after = "", "Claim"
	if _, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) || w.Task(tickets[0].Task).Run != run {
		t.Errorf("%v, %+v", err, w.Task(tickets[0].Task))
	}
	w.after, w.steps = "", nil
	claims, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed || claims[1].Task.ID != tickets[1].Task {
		t.Errorf("%+v, %v", claims, err)
	}
	if want := []string{"Claim", "Claim refused", "Claim held"}; !slices.Equal(w.steps, want) {
		t.Errorf("the steps were %v, want %v", w.steps, want)
	}
}

func TestAnEffectMayComeAfterItsError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, run, c := w.insert(1).Tickets, w.openRun(), w.client()
	w.late = "Claim"
	if _, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Error(err)
	}
	tickets[0].Attempt = 9 // the caller's own again
	w.effect()
	if got := w.Tasks()[0]; got.State != holdfast.Running || got.Run != run {
		t.Errorf("the task is %+v", got)
	}
	due := w.due(1)[0]
	w.late = "DispatchDue end"
	_, err := c.DispatchDue(t.Context(), store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool { return all(due) })
	w.effect()
	if !errors.Is(err, holdfast.ErrUnavailable) || w.Task(due.Task).Ticketed() {
		t.Errorf("a transaction was stored after it was given up: %v", err)
	}
}

func TestNewsAreToldUntilTheAnswerArrived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tickets, run, c := w.insert(1).Tickets, w.openRun(), w.client()
	claims, err := c.Claim(t.Context(), run, store.AnyOf("a"), tickets, store.IntoExecutors)
	w.must(err)
	move, err := holdfast.Settle(claims[0].Task, holdfast.Asked(holdfast.EventCancel), w.now, holdfast.DefaultPolicy())
	w.must(err)
	_, err = c.Apply(t.Context(), []holdfast.Transition{move})
	w.must(err)
	for i, want := range []int{-1, 1, 0} {
		if w.after = ""; want < 0 {
			w.after = "Renew"
		}
		news, err := c.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Minute})
		if (err != nil) != (want < 0) || want >= 0 && len(news.Cancelled) != want {
			t.Errorf("renewal %d: %+v, %v", i, news, err)
		}
	}
	if left := w.Cancellations(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}
