package postgres_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

// moveToPast moves all times of queues and tickets into the past by age.
func moveToPast(t *testing.T, s *postgres.Store, age time.Duration) {
	t.Helper()
	change(t, s, `update queues set drained_through = drained_through - $1 * interval '1 second', drained_at = drained_at - $1 * interval '1 second',
		held_through = held_through - $1 * interval '1 second', held_at = held_at - $1 * interval '1 second',
		sentinel_sent_at = sentinel_sent_at - $1 * interval '1 second'`, age.Seconds())
	change(t, s, "update tasks set ticketed_at = ticketed_at - $1 * interval '1 second'", age.Seconds())
}

// ticketed stores a task whose ticket was published some time ago.
func ticketed(t *testing.T, s *postgres.Store, ago time.Duration, requeued bool) message.Ticket {
	t.Helper()
	ticket := insert(t, s, 1)[0]
	change(t, s, "delete from outbox")
	change(t, s, "update tasks set ticketed_at = now() - $2 * interval '1 second', requeued = $3 where id = $1", int64(ticket.Task), ago.Seconds(), requeued)
	return ticket
}

// drain records the delivery of a sentinel that was sent some time ago.
func drain(t *testing.T, s *postgres.Store, ago time.Duration) {
	t.Helper()
	now, err := s.Now(t.Context())
	if err == nil {
		err = s.Drained(t.Context(), message.Sentinel{Queue: holdfast.DefaultQueue, At: now.Add(-ago)})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A sentinel that was delivered just now proves nothing yet, because all tickets before it were also delivered only
// now.
func TestLostOnlySomeTimeAfterTheProof(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	old := ticketed(t, s, time.Hour, false)
	drain(t, s, 30*time.Minute) // the sentinel has waited behind a backlog
	storetest.CheckLost(t, s, "the sentinel was delivered just now", map[message.Ticket]bool{old: false})
	young := ticketed(t, s, 29*time.Minute, false)
	slightlyOlder := ticketed(t, s, 30*time.Minute+5*time.Second, false)
	moveToPast(t, s, 50*time.Second)
	storetest.CheckLost(t, s, "50 s after the delivery", map[message.Ticket]bool{old: false, young: false, slightlyOlder: false})
	drain(t, s, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 50 s later", map[message.Ticket]bool{old: false, young: false, slightlyOlder: false})
	moveToPast(t, s, 20*time.Second)
	storetest.CheckLost(t, s, "70 s after the delivery, and no other sentinel was sent since", map[message.Ticket]bool{old: false, young: false, slightlyOlder: false})
	drain(t, s, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 70 s later", map[message.Ticket]bool{old: true, young: false, slightlyOlder: false})
}

// If sentinels are delivered every ten seconds, one of them still becomes old enough for a proof.
func TestLostAlthoughSentinelsKeepComing(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	old := ticketed(t, s, time.Hour, false)
	for elapsed := time.Duration(0); elapsed < 150*time.Second; elapsed += 10 * time.Second {
		drain(t, s, time.Second)
		if elapsed%(30*time.Second) == 0 && elapsed != 60*time.Second { // at 60 s, the time of the test itself decides
			storetest.CheckLost(t, s, fmt.Sprint("after ", elapsed), map[message.Ticket]bool{old: elapsed >= 90*time.Second})
		}
		moveToPast(t, s, 10*time.Second)
	}
	// During this time, the store keeps the next proof.
	next := ticketed(t, s, 3*time.Minute, false)
	moveToPast(t, s, 30*time.Second)
	drain(t, s, time.Second)
	storetest.CheckLost(t, s, "at the end", map[message.Ticket]bool{next: true})
}

// The ticket of a requeued task is in the requeue queue, so it is treated as lost only later.
func TestLostAgainTakesLonger(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	drain(t, s, 2*time.Minute)
	storetest.CheckLost(t, s, "the store keeps the first sentinel", nil)
	moveToPast(t, s, 2*time.Minute) // so the sentinel was sent four minutes ago
	drain(t, s, 0)
	first, requeued, older := ticketed(t, s, 9*time.Minute, false), ticketed(t, s, 9*time.Minute, true), ticketed(t, s, 15*time.Minute, true)
	storetest.CheckLost(t, s, "ten minutes before the sentinel", map[message.Ticket]bool{first: true, requeued: false, older: true})
}

// If a sentinel is recorded twice, the store keeps only the time of its first delivery.
func TestDrainedTwiceIsAsOldAsTheFirstTime(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	old := ticketed(t, s, time.Hour, false)
	sentinel := message.Sentinel{Queue: holdfast.DefaultQueue, At: time.Now().Add(-20 * time.Minute)}
	for range 2 {
		if err := s.Drained(t.Context(), sentinel); err != nil {
			t.Fatal(err)
		}
		change(t, s, "update queues set drained_at = drained_at - interval '40 seconds'")
	}
	storetest.CheckLost(t, s, "the store keeps the first sentinel", nil)
	drain(t, s, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 80 s after the first time", map[message.Ticket]bool{old: true})
}

// The wait of a parked task grows with the number of parks at its attempt, and never with its age.
func TestParkWaitsGrowWithTheirNumber(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	const first = 15 * time.Second
	for _, c := range []struct {
		count, attempt int
		want           time.Duration
	}{
		{0, 0, first}, {1, 1, 2 * first}, {3, 1, 8 * first}, {6, 1, 10 * time.Minute}, {1 << 30, 1, 10 * time.Minute}, {6, 2, first},
	} {
		ticket := insert(t, s, 1)
		change(t, s, "update tasks set created_at = now() - interval '1 hour', park_count = nullif($2, 0), park_attempt = nullif($3, 0) where id = $1",
			int64(ticket[0].Task), c.count, c.attempt)
		before, err := s.Now(t.Context())
		if err == nil {
			err = s.Park(t.Context(), ticket, first, "no handler")
		}
		task, readErr := s.Task(t.Context(), ticket[0].Task)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if wait := task.NextRunAt.Sub(before); wait < c.want || wait > c.want+10*time.Second {
			t.Errorf("after %d parks at attempt %d: the task waits for %s, want %s", c.count, c.attempt, wait, c.want)
		}
	}
}

// If a clock was two hours ahead and is set back, the store has times in the future. They delay neither sentinels nor
// proofs.
func TestSentinelsFromTheFutureHoldNothingUp(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	first := storetest.SentinelDue(t, s, "at the start")
	change(t, s, "update queues set sentinel_sent_at = now() + interval '2 hours'")
	storetest.SentinelDue(t, s, "the last sentinel was sent in the future")
	if err := s.Drained(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	change(t, s, `update queues set drained_through = now() + interval '2 hours', drained_at = now() + interval '2 hours',
		held_through = now() + interval '2 hours', held_at = now() + interval '2 hours'`)
	second := storetest.SentinelDue(t, s, "the last sentinel was delivered in the future")
	old := ticketed(t, s, time.Hour, false)
	future := second
	future.At = second.At.Add(2 * time.Hour)
	for _, sentinel := range []message.Sentinel{future, second} {
		if err := s.Drained(t.Context(), sentinel); err != nil {
			t.Fatal(err)
		}
	}
	queues, err := s.Queues(t.Context())
	if err != nil || !queues[0].DrainedAt.Equal(second.At) {
		t.Errorf("drained through %v, %v; want %s, when the second sentinel was sent", queues, err, second.At)
	}
	storetest.CheckLost(t, s, "the store keeps the first sentinel", nil)
	moveToPast(t, s, 70*time.Second)
	drain(t, s, 0)
	storetest.CheckLost(t, s, "another sentinel was sent 70 s later", map[message.Ticket]bool{old: true})
}

// If a clock was two hours ahead and is set back, CorrectTimes corrects the times that the store computed. It keeps the
// delay that a caller gave.
func TestTimesComputedInTheFutureAreCorrected(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	correct := func(want bool) {
		t.Helper()
		if setBack, err := s.CorrectTimes(t.Context()); setBack != want || err != nil {
			t.Fatalf("CorrectTimes reports %v, %v; want %v", setBack, err, want)
		}
	}
	correct(false)
	correct(false)
	tickets := insert(t, s, 7)
	worker := registerWorker(t, s)
	waits := storetest.ComputeTimes(t, s, worker, tickets)
	storetest.HandBack(t, s, worker, tickets[5])()
	storetest.HandBack(t, s, worker, tickets[6])()
	storetest.EditTime(t, s, tickets[6].Task, time.Now().Add(3*time.Hour))
	change(t, s, "update tasks set due_at = next_run_at, ticketed_at = null where id = $1", int64(tickets[4].Task)) // its delay is set below
	change(t, s, `update tasks set created_at = created_at + interval '2 hours', next_run_at = next_run_at + interval '2 hours',
		due_at = due_at + interval '2 hours', ticketed_at = ticketed_at + interval '2 hours', started_at = started_at + interval '2 hours'`)
	change(t, s, "update tasks set due_at = next_run_at + interval '1 hour', next_run_at = next_run_at + interval '1 hour' where id = $1",
		int64(tickets[4].Task))
	change(t, s, "update tasks set started_at = now() where id = $1", int64(tickets[1].Task))                          // the task started before the clock was ahead
	change(t, s, "update tasks set started_at = started_at - interval '1 hour' where id = $1", int64(tickets[5].Task)) // the clock leapt twice
	change(t, s, "update attempts set started_at = started_at + interval '2 hours', finished_at = finished_at + interval '2 hours'")
	change(t, s, "update outbox set created_at = created_at + interval '2 hours', publish_after = publish_after + interval '2 hours'")
	change(t, s, "update turns set taken_at = taken_at + interval '2 hours'")

	correct(true)
	correct(false)
	for i, want := range waits {
		if wait := storetest.Wait(t, s, tickets[i].Task); wait > want+time.Second || wait < want-time.Minute {
			t.Errorf("task %d waits for %s, want %s", i, wait, want)
		}
	}
	if wait := storetest.Wait(t, s, tickets[5].Task); wait > time.Second {
		t.Errorf("a task that was handed back waits for %s", wait)
	}
	if wait := storetest.Wait(t, s, tickets[4].Task); wait < 2*time.Hour {
		t.Errorf("the delay of a caller was cut to %s", wait)
	}
	if wait := storetest.Wait(t, s, tickets[6].Task); wait < 2*time.Hour {
		t.Errorf("the time that a person gave was cut to %s", wait)
	}
	if late := number(t, s, "select count(*) from %s.tasks where ticketed_at > now()"); late > 0 {
		t.Errorf("%d tasks have tickets from the future", late)
	}
	if published := storetest.DispatchOutbox(t, s); published != 7 {
		t.Errorf("DispatchOutbox published %d tickets, want 7", published)
	}
}

// If the clock was set back before the turn of an ordered task, the task does not wait until the clock has the old
// time.
func TestTurnAfterAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	storetest.TurnAfterSetBack(t, s, func(waits holdfast.TaskID) {
		change(t, s, "update tasks set created_at = created_at + interval '2 hours', next_run_at = next_run_at + interval '2 hours' where id = $1", int64(waits))
	})
}

// If the clock is set back while a rate or a breaker makes tasks wait, these tasks do not wait until the clock has the
// old time.
func TestLimitsGivePermitsAfterAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	if _, err := s.CorrectTimes(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.BlockAtRate(t, s, registerWorker(t, s), insert(t, s, 3))
	storetest.Trip(t, s)
	change(t, s, "update gates set probe_at = probe_at + interval '2 hours'")
	change(t, s, "update buckets set next_at = next_at + interval '2 hours', allowed_at = allowed_at + interval '2 hours'")
	change(t, s, "update turns set taken_at = taken_at + interval '2 hours'")
	if _, err := s.CorrectTimes(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.CheckProbeSoon(t, s)
	if released, err := s.ReleaseBlocked(t.Context(), 10); err != nil || released.Next > time.Hour {
		t.Errorf("released %+v, %v; want another look within an hour", released, err)
	}
}

// After the clock was set back, a live worker has time to renew. A dead worker is fenced after one lease, not after two
// hours.
func TestLeasesFromTheFutureAreCutShort(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	worker := registerWorker(t, s)
	change(t, s, "update workers set renewed_at = now() + interval '2 hours', lease_until = now() + interval '2 hours 30 seconds'")
	fence := func() []holdfast.WorkerID {
		t.Helper()
		now, err := s.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fenced, err := s.Fence(t.Context(), now, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		return fenced
	}
	if fenced := fence(); len(fenced) != 0 {
		t.Errorf("fenced %v before a whole lease had passed", fenced)
	}
	left := number(t, s, "select extract(epoch from lease_until - now())::int from %s.workers")
	if left < 10 || left > 30 {
		t.Errorf("%d s of the lease are left, want about 30", left)
	}
	change(t, s, "update workers set renewed_at = renewed_at - interval '40 seconds', lease_until = lease_until - interval '40 seconds'")
	if fenced := fence(); len(fenced) != 1 || fenced[0] != worker {
		t.Errorf("fenced %v after the lease, want %s", fenced, worker)
	}
}

// After a failover the clock may be behind. A published ticket must still be valid, because no other ticket is
// published.
func TestTicketsOutliveAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	tickets := insert(t, s, 2)
	change(t, s, "update tasks set next_run_at = now() + interval '1 minute', created_at = now() + interval '1 minute'")
	change(t, s, "insert into turns (duty, taken_at) values ('duty', now() + interval '1 hour')")
	claims, err := s.Claim(t.Context(), registerWorker(t, s), store.AnyOf("t"), tickets[:1], store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		t.Errorf("claimed %+v, %v", claims, err)
	}
	err = s.Park(t.Context(), tickets[1:], time.Second, "no handler")
	task, readErr := s.Task(t.Context(), tickets[1].Task)
	if err := errors.Join(err, readErr); err != nil || task.Parked == "" {
		t.Errorf("parked %+v, %v", task, err)
	}
	if mine, err := s.Turn(t.Context(), "duty", time.Minute); err != nil || !mine {
		t.Errorf("a turn from the future blocks other turns: %v", err)
	}
}
