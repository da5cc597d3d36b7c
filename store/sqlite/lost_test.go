package sqlite_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

func publishAll(_ context.Context, due []store.Due) []bool {
	outcomes := make([]bool, len(due))
	for i := range outcomes {
		outcomes[i] = true
	}
	return outcomes
}

// ticketed stores a task that was ticketed some time ago.
func ticketed(t *testing.T, s *sqlite.Store, m *machine, ago time.Duration, requeued bool) message.Ticket {
	t.Helper()
	ticket := insert(t, s, 1)[0]
	now, _ := m.read()
	change(t, s, "delete from outbox")
	change(t, s, "update tasks set ticketed_at = ?2, requeued = ?3 where id = ?1", int64(ticket.Task), now.Add(-ago).UnixMicro(), requeued)
	return ticket
}

// drainQueue records the delivery of a sentinel that was sent some time ago.
func drainQueue(t *testing.T, s *sqlite.Store, m *machine, ago time.Duration) {
	t.Helper()
	now, _ := m.read()
	if err := s.Drained(t.Context(), message.Sentinel{Queue: holdfast.DefaultQueue, At: now.Add(-ago)}); err != nil {
		t.Fatal(err)
	}
}

// A sentinel that was delivered just now proves nothing yet, because all tickets before it were also delivered only
// now.
func TestLostOnlySomeTimeAfterTheProof(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	old := ticketed(t, s, m, time.Hour, false)
	drainQueue(t, s, m, 30*time.Minute) // the sentinel has waited behind a backlog
	storetest.CheckLost(t, s, "the sentinel was delivered just now", map[message.Ticket]bool{old: false})
	young := ticketed(t, s, m, 29*time.Minute, false)
	slightlyOlder := ticketed(t, s, m, 30*time.Minute+5*time.Second, false)
	m.advance(50 * time.Second)
	storetest.CheckLost(t, s, "50 s after the delivery", map[message.Ticket]bool{old: false, young: false, slightlyOlder: false})
	drainQueue(t, s, m, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 50 s later", map[message.Ticket]bool{old: false, young: false, slightlyOlder: false})
	m.advance(20 * time.Second)
	storetest.CheckLost(t, s, "70 s after the delivery, and no other sentinel was sent since", map[message.Ticket]bool{old: false, young: false, slightlyOlder: false})
	drainQueue(t, s, m, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 70 s later", map[message.Ticket]bool{old: true, young: false, slightlyOlder: false})
}

// If sentinels are delivered every ten seconds, one of them still becomes old enough for a proof.
func TestLostAlthoughSentinelsKeepComing(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	old := ticketed(t, s, m, time.Hour, false)
	for elapsed := time.Duration(0); elapsed < 150*time.Second; elapsed += 10 * time.Second {
		drainQueue(t, s, m, time.Second)
		if elapsed%(30*time.Second) == 0 {
			storetest.CheckLost(t, s, fmt.Sprint("after ", elapsed), map[message.Ticket]bool{old: elapsed >= 90*time.Second})
		}
		m.advance(10 * time.Second)
	}
	// During this time, the store keeps the next proof.
	next := ticketed(t, s, m, 3*time.Minute, false)
	m.advance(30 * time.Second)
	drainQueue(t, s, m, time.Second)
	storetest.CheckLost(t, s, "at the end", map[message.Ticket]bool{next: true})
}

// The ticket of a requeued task is in the requeue queue, so it is treated as lost only later.
func TestLostAgainTakesLonger(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	drainQueue(t, s, m, 2*time.Minute)
	storetest.CheckLost(t, s, "the store keeps the first sentinel", nil)
	m.advance(2 * time.Minute) // so the sentinel was sent four minutes ago
	drainQueue(t, s, m, 0)
	first, requeued, older := ticketed(t, s, m, 9*time.Minute, false), ticketed(t, s, m, 9*time.Minute, true), ticketed(t, s, m, 15*time.Minute, true)
	storetest.CheckLost(t, s, "ten minutes before the sentinel", map[message.Ticket]bool{first: true, requeued: false, older: true})
}

// If a sentinel is recorded twice, the store keeps only the time of its first delivery.
func TestDrainedTwiceIsAsOldAsTheFirstTime(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	old := ticketed(t, s, m, time.Hour, false)
	now, _ := m.read()
	for range 2 {
		if err := s.Drained(t.Context(), message.Sentinel{Queue: holdfast.DefaultQueue, At: now.Add(-20 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		m.advance(40 * time.Second)
	}
	storetest.CheckLost(t, s, "the store keeps the first sentinel", nil)
	drainQueue(t, s, m, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 80 s after the first time", map[message.Ticket]bool{old: true})
}

// The wait of a parked task grows with the number of parks at its attempt, and never with its age.
func TestParkWaitsGrowWithTheirNumber(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	const first = 15 * time.Second
	ticket := insert(t, s, 1)
	m.advance(time.Hour)
	for n, want := range []time.Duration{
		first, 2 * first, 4 * first, 8 * first, 16 * first, 32 * first, 10 * time.Minute, 10 * time.Minute,
	} {
		now, _ := m.read()
		if err := s.Park(t.Context(), ticket, first, "no handler"); err != nil {
			t.Fatal(err)
		}
		task, err := s.Task(t.Context(), ticket[0].Task)
		if err != nil {
			t.Fatal(err)
		}
		if wait := task.NextRunAt.Sub(now).Round(time.Millisecond); wait != want {
			t.Errorf("park %d: the task waits for %s, want %s", n+1, wait, want)
		}
		m.advance(want)
	}
}

// If an outbox entry is published long after its tasks were stored, ticketed_at becomes the time of the publishing.
func TestLateEntryUpdatesTicketedAt(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	inserted, err := s.Insert(t.Context(), newTasks(1), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	m.advance(20 * time.Minute)
	drainQueue(t, s, m, time.Minute)
	deleted, err := s.DispatchOutbox(t.Context(), store.Queues{}, 10, func(_ context.Context, entries []store.OutboxEntry) []bool { return []bool{true} })
	if err != nil || deleted != 1 {
		t.Fatal(deleted, err)
	}
	m.advance(2 * time.Minute)
	storetest.CheckLost(t, s, "with a ticket newer than the sentinel", map[message.Ticket]bool{inserted.Entries[0].Tickets[0]: false})
}

// If a task changes while its ticket is published, DispatchDue does not change the task, but reports it as published.
func TestDispatchSkipsChangedTasks(t *testing.T) {
	t.Parallel()
	s := open(t)
	worker := registerWorker(t, s)
	tickets := insert(t, s, 4)
	if n, err := s.Unticket(t.Context(), tickets); err != nil || n != 4 {
		t.Fatal(n, err)
	}
	result, err := s.DispatchDue(t.Context(), store.Queues{}, 10, func(ctx context.Context, due []store.Due) []bool {
		if _, err := s.Claim(ctx, worker, store.AnyOf("t"), tickets[:1], store.IntoExecutors); err != nil {
			t.Error(err)
		}
		if err := s.Park(ctx, tickets[1:2], time.Hour, "later"); err != nil {
			t.Error(err)
		}
		task, err := s.Task(ctx, tickets[2].Task)
		if err != nil {
			t.Error(err)
		}
		move, err := holdfast.Settle(task, holdfast.Requested(holdfast.EventCancel), task.CreatedAt, holdfast.DefaultPolicy())
		if err != nil {
			t.Error(err)
		}
		if accepted, err := s.Apply(ctx, []holdfast.Transition{move}); err != nil || !accepted[0] {
			t.Error(accepted, err)
		}
		return publishAll(ctx, due)
	})
	if err != nil || result.Given != 4 || result.Marked != 4 {
		t.Errorf("dispatched %+v, %v", result, err)
	}
	positions, err := s.Positions(t.Context(), tickets)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []store.Position{
		{Found: true, State: holdfast.Running, Attempt: 1, Worker: worker, WorkerState: store.WorkerLive},
		{Found: true, State: holdfast.Ready, Attempt: 1},
		{Found: true, State: holdfast.Cancelled, Attempt: 1},
		{Found: true, State: holdfast.Ready, Attempt: 1, Ticketed: true},
	} {
		if positions[i] != want {
			t.Errorf("task %d is %+v, want %+v", i, positions[i], want)
		}
	}
	if n := number(t, s, "select count(*) from tasks where parked = 'later' and next_run_at > unixepoch() * 1000000"); n != 1 {
		t.Error("the parked task does not wait")
	}
}
