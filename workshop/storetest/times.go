package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// The functions of this file are for tests of one adapter that move its clock. The suite cannot contain these tests,
// because the contract has no call that moves a clock.

// SentinelDue returns the one sentinel that is due.
func SentinelDue(t *testing.T, s desk.Store, when string) message.Sentinel {
	t.Helper()
	due, err := s.SentinelsDue(t.Context(), time.Minute, time.Hour)
	if err != nil || len(due) != 1 {
		t.Fatalf("%s: SentinelsDue returned %v, %v; want one sentinel", when, due, err)
	}
	return due[0]
}

// CheckLost calls UnticketLost with a slack of a minute and checks which of the tickets it found lost.
func CheckLost(t *testing.T, s desk.Store, when string, want map[message.Ticket]bool) {
	t.Helper()
	if _, _, err := s.UnticketLost(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	for ticket, want := range want {
		positions, err := s.Positions(t.Context(), []message.Ticket{ticket})
		if err != nil {
			t.Fatal(err)
		}
		if positions[0].Ticketed == want {
			t.Errorf("%s: the ticket of task %s counts as lost: %t", when, ticket.Task, !want)
		}
	}
}

// ComputeTimes makes the store compute a time for each of four tasks: for a retry, for a hand-back, for a park and for
// a refused publish. The worker claims the first two. It returns how long each task has to wait after the store has
// corrected these times; see store.Upkeep.
func ComputeTimes(t *testing.T, s desk.Store, worker holdfast.WorkerID, tickets []message.Ticket) (waits []time.Duration) {
	t.Helper()
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets[:2], store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	var moves []holdfast.Transition
	for i, cause := range []holdfast.Cause{holdfast.Returned(errors.New("failed")), holdfast.Interrupted(nil)} {
		move, err := holdfast.Settle(*claims[i].Task, cause, time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, move)
	}
	_, err = s.Apply(t.Context(), moves)
	_, unticketErr := s.Unticket(t.Context(), tickets[3:4])
	if err := errors.Join(err, s.Park(t.Context(), tickets[2:3], time.Second, "no handler"), unticketErr); err != nil {
		t.Fatal(err)
	}
	return []time.Duration{moves[0].Wait, 0, 0, 0}
}

// HandBack makes the worker claim a task. It returns a function that hands the task back.
func HandBack(t *testing.T, s desk.Store, worker holdfast.WorkerID, ticket message.Ticket) func() {
	t.Helper()
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), []message.Ticket{ticket}, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		move, err := holdfast.Settle(*claims[0].Task, holdfast.Interrupted(nil), time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(t.Context(), []holdfast.Transition{move}); err != nil {
			t.Fatal(err)
		}
	}
}

// EditTime makes a person give a task another time.
func EditTime(t *testing.T, s desk.Store, id holdfast.TaskID, at time.Time) {
	t.Helper()
	task, err := s.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	edit := store.Change{Action: store.ActionEdit, Task: task, Edit: &store.Edit{RunAt: at}}
	if made, err := s.Change(t.Context(), store.Actor{Name: "anna", Surface: store.API}, []store.Change{edit}); err != nil || !made[0] {
		t.Fatalf("edited: %v, %v", made, err)
	}
}

// BlockAtRate blocks tasks at a rate of one start in an hour, and makes the store give one permit.
func BlockAtRate(t *testing.T, s desk.Store, worker holdfast.WorkerID, tickets []message.Ticket) {
	t.Helper()
	by := store.Actor{Name: "anna", Surface: store.API}
	limit, err := s.SetLimit(t.Context(), by, store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "t"}}, Rate: store.Rate{Count: 1, Per: time.Hour}}.Change())
	if err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), tickets, store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Blocked || claims[0].Gate != limit.After.ID {
		t.Fatalf("the claims are %+v, %v; want the tasks to be blocked at the limit", claims, err)
	}
	if err := s.Block(t.Context(), limit.After.ID, tickets); err != nil {
		t.Fatal(err)
	}
	if released, err := s.ReleaseBlocked(t.Context(), len(tickets)); err != nil || released.Tasks != 1 {
		t.Fatalf("released %+v, %v; want one task", released, err)
	}
}

// TurnAfterSetBack stores two ordered tasks of a key, and calls setBack with the second one, which waits. When the turn
// of the first task ends, the second one must get a ticket at once.
func TurnAfterSetBack(t *testing.T, s desk.Store, setBack func(waits holdfast.TaskID)) {
	t.Helper()
	task := holdfast.NewTask{Type: "t", Queue: holdfast.DefaultQueue, Key: "k", Ordered: true}
	inserted, err := s.Insert(t.Context(), []holdfast.NewTask{task, task}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	setBack(inserted.Tasks[1].ID)
	first, err := s.Task(t.Context(), inserted.Tasks[0].ID)
	move, settleErr := holdfast.Settle(first, holdfast.Requested(holdfast.EventCancel), time.Now(), holdfast.DefaultPolicy())
	if err := errors.Join(err, settleErr); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), []holdfast.Transition{move}); err != nil {
		t.Fatal(err)
	}
	var due []holdfast.TaskID
	_, err = s.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, entries []store.OutboxEntry) []bool {
		for _, entry := range entries {
			due = append(due, ids(entry.Tickets)...)
		}
		return slices.Repeat([]bool{true}, len(entries))
	})
	if err != nil || !slices.Equal(due, []holdfast.TaskID{inserted.Tasks[1].ID}) {
		t.Errorf("the tasks %v get tickets, %v; want the second one", due, err)
	}
	if wait := Wait(t, s, inserted.Tasks[1].ID); wait > 0 {
		t.Errorf("the second task waits for %s", wait)
	}
}

// Wait returns the time until the task is due, by the clock of the store.
func Wait(t *testing.T, s desk.Store, task holdfast.TaskID) time.Duration {
	t.Helper()
	read, err := s.Task(t.Context(), task)
	now, nowErr := s.Now(t.Context())
	if err := errors.Join(err, nowErr); err != nil {
		t.Fatal(err)
	}
	return read.NextRunAt.Sub(now)
}

// DispatchOutbox publishes the outbox entries that are older than their grace and returns the number of their tickets.
func DispatchOutbox(t *testing.T, s desk.Store) (tickets int) {
	t.Helper()
	if _, err := s.DispatchOutbox(t.Context(), store.Queues{}, 100, func(_ context.Context, entries []store.OutboxEntry) []bool {
		for _, entry := range entries {
			tickets += len(entry.Tickets)
		}
		return slices.Repeat([]bool{true}, len(entries))
	}); err != nil {
		t.Fatal(err)
	}
	return tickets
}
