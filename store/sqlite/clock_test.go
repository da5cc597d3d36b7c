package sqlite_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

// machine simulates the clocks of a machine.
type machine struct {
	mu    sync.Mutex
	wall  time.Time
	awake time.Duration
}

// openClocked returns a store and its simulated machine, which has been awake for a day.
func openClocked(t *testing.T) (*sqlite.Store, *machine) {
	t.Helper()
	s := open(t)
	m := &machine{wall: time.Now()}
	s.SetClocks(m.read)
	m.advance(24 * time.Hour)
	if _, err := s.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, m
}

func (m *machine) read() (time.Time, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall, m.awake
}

func (m *machine) advance(d time.Duration) { m.shift(d, d) }

// shift advances the wall clock and the monotonic clock by different durations.
func (m *machine) shift(wall, awake time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall, m.awake = m.wall.Add(wall), m.awake+awake
}

// fence calls Fence with ten seconds for settle.
func fence(t *testing.T, s *sqlite.Store, m *machine) []holdfast.WorkerID {
	t.Helper()
	now, _ := m.read()
	fenced, err := s.Fence(t.Context(), now, time.Second, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return fenced
}

// registerLeased registers a worker with the given lease.
func registerLeased(t *testing.T, s *sqlite.Store, lease time.Duration) holdfast.WorkerID {
	t.Helper()
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker", Concurrency: 4}, lease)
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

// While the machine sleeps, no worker can renew its lease. So Fence waits after that.
func TestFenceWaitsAfterClockJump(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]func(*machine){
		"the machine slept":         func(m *machine) { m.shift(time.Hour, time.Millisecond) },
		"the clock was set forward": func(m *machine) { m.shift(2*time.Minute, 0) },
		"a frozen virtual machine":  func(m *machine) { m.shift(time.Hour, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, m := openClocked(t)
			worker := registerLeased(t, s, time.Minute)
			jump(m)
			if fenced := fence(t, s, m); len(fenced) > 0 {
				t.Errorf("fenced %v at once", fenced)
			}
			m.advance(9 * time.Second)
			if fenced := fence(t, s, m); len(fenced) > 0 {
				t.Errorf("fenced %v before the settle time", fenced)
			}
			m.advance(2 * time.Second)
			if fenced := fence(t, s, m); !slices.Equal(fenced, []holdfast.WorkerID{worker}) {
				t.Errorf("fenced %v, want %s", fenced, worker)
			}
		})
	}
}

func TestRenewedWorkerIsNotFencedAfterClockJump(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	worker := registerLeased(t, s, time.Minute)
	m.shift(time.Hour, 0)
	m.advance(5 * time.Second)
	if _, err := s.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	m.advance(30 * time.Second)
	if fenced := fence(t, s, m); len(fenced) > 0 {
		t.Errorf("fenced %v", fenced)
	}
}

// A clock that is corrected in small steps does not jump. If the clock goes back, leases last longer.
func TestFenceWhileClockIsCorrected(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	worker := registerLeased(t, s, time.Minute)
	for range 20 {
		m.shift(3*time.Second+100*time.Millisecond, 3*time.Second)
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if fenced := fence(t, s, m); !slices.Equal(fenced, []holdfast.WorkerID{worker}) {
		t.Errorf("fenced %v, want %s", fenced, worker)
	}
	other := registerLeased(t, s, time.Minute)
	m.shift(-time.Hour, 0)
	m.advance(30 * time.Minute)
	if fenced := fence(t, s, m); len(fenced) > 0 {
		t.Errorf("fenced %v before the lease expired", fenced)
	}
	m.advance(time.Hour)
	if fenced := fence(t, s, m); !slices.Equal(fenced, []holdfast.WorkerID{other}) {
		t.Errorf("fenced %v, want %s", fenced, other)
	}
}

// After a store is opened, Fence waits as after the start of a server.
func TestFenceWaitsAfterOpen(t *testing.T) {
	t.Parallel()
	s := open(t)
	m := &machine{wall: time.Now()}
	s.SetClocks(m.read)
	worker := registerLeased(t, s, time.Second)
	m.advance(9 * time.Second)
	if fenced := fence(t, s, m); len(fenced) > 0 {
		t.Errorf("fenced %v", fenced)
	}
	m.advance(2 * time.Second)
	if fenced := fence(t, s, m); !slices.Equal(fenced, []holdfast.WorkerID{worker}) {
		t.Errorf("fenced %v, want %s", fenced, worker)
	}
}

// After the clock was set back, a published ticket must still be valid, because no other ticket is published.
func TestTicketsOutliveAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	tickets := insert(t, s, 2)
	if mine, err := s.Turn(t.Context(), "duty", time.Minute); err != nil || !mine {
		t.Fatal(err)
	}
	m.shift(-time.Hour, 0)
	claims, err := s.Claim(t.Context(), registerLeased(t, s, time.Minute), store.AnyOf("t"), tickets[:1], store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		t.Errorf("claimed %+v, %v", claims, err)
	}
	if err := s.Park(t.Context(), tickets[1:], time.Second, "no handler"); err != nil {
		t.Error(err)
	}
	if task, err := s.Task(t.Context(), tickets[1].Task); err != nil || task.Parked == "" {
		t.Errorf("parked %+v, %v", task, err)
	}
	if mine, err := s.Turn(t.Context(), "duty", time.Minute); err != nil || !mine {
		t.Errorf("a turn from the future blocks other turns: %v", err)
	}
}

// UnticketQueue makes tasks due while DispatchDue publishes them. It must not make the same tasks due twice.
func TestUnticketQueueEndsWhileDispatching(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	insert(t, s, 1200)
	m.shift(-time.Hour, 0) // later tickets seem older than the earlier ones
	done := make(chan int, 1)
	go func() {
		n, err := s.UnticketQueue(t.Context(), holdfast.DefaultQueue)
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	for {
		if _, err := s.DispatchDue(t.Context(), store.Queues{}, 100, publishAll); err != nil {
			t.Fatal(err)
		}
		select {
		case n := <-done:
			if n != 1200 {
				t.Errorf("%d tasks were made due, want 1200", n)
			}
			return
		default:
		}
	}
}

// If a clock was two hours ahead and is set back, the store has times in the future. A live worker renews, a dead
// worker is fenced a lease later, and the next sentinels are due at once.
func TestTimesFromTheFutureHoldNothingUp(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	m.shift(2*time.Hour, 0)
	worker := registerLeased(t, s, time.Minute)
	first := storetest.SentinelDue(t, s, "at the start")
	if err := s.Drained(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	m.shift(-2*time.Hour, 0)
	m.advance(time.Second)
	second := storetest.SentinelDue(t, s, "the clock was set back")
	m.advance(time.Second)
	for _, sentinel := range []message.Sentinel{first, second} {
		if err := s.Drained(t.Context(), sentinel); err != nil {
			t.Fatal(err)
		}
	}
	queues, err := s.Queues(t.Context())
	if err != nil || !queues[0].DrainedAt.Equal(second.At) {
		t.Errorf("drained through %v, %v; want %s, when the second sentinel was sent", queues, err, second.At)
	}
	m.advance(15 * time.Second)
	if fenced := fence(t, s, m); len(fenced) != 0 {
		t.Errorf("fenced %v before a whole lease had passed", fenced)
	}
	m.advance(70 * time.Second)
	if fenced := fence(t, s, m); !slices.Equal(fenced, []holdfast.WorkerID{worker}) {
		t.Errorf("fenced %v a lease later, want %s", fenced, worker)
	}
}

// If a clock was two hours ahead and is set back, CorrectTimes corrects the times that the store computed. It keeps the
// delay that a caller gave.
func TestTimesComputedInTheFutureAreCorrected(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	correct := func(want bool) {
		t.Helper()
		if setBack, err := s.CorrectTimes(t.Context()); setBack != want || err != nil {
			t.Fatalf("CorrectTimes reports %v, %v; want %v", setBack, err, want)
		}
	}
	correct(false)
	handedBack := insert(t, s, 3)
	handBackFirst := storetest.HandBack(t, s, registerLeased(t, s, time.Minute), handedBack[0])
	m.shift(time.Hour, 0) // the clock leaps twice
	handBackSecond := storetest.HandBack(t, s, registerLeased(t, s, time.Minute), handedBack[1])
	handBackThird := storetest.HandBack(t, s, registerLeased(t, s, time.Minute), handedBack[2])
	m.shift(time.Hour, 0)
	correct(false)
	handBackFirst()
	handBackSecond()
	handBackThird()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storetest.EditTime(t, s, handedBack[2].Task, now.Add(3*time.Hour))
	tickets := insert(t, s, 5) // the outbox entries stay
	waits := storetest.ComputeTimes(t, s, registerLeased(t, s, time.Minute), tickets)
	given := newTasks(1)
	given[0].Delay = time.Hour
	inserted, err := s.Insert(t.Context(), given, time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	m.shift(-2*time.Hour, 0)
	correct(true)
	correct(false)
	if published := storetest.DispatchOutbox(t, s); published != 8 {
		t.Errorf("DispatchOutbox published %d tickets, want 8", published)
	}
	for i, want := range waits {
		if wait := storetest.Wait(t, s, tickets[i].Task); wait > want+time.Millisecond || wait < want-time.Second {
			t.Errorf("task %d waits for %s, want %s", i, wait, want)
		}
	}
	if wait := storetest.Wait(t, s, handedBack[2].Task); wait < 3*time.Hour {
		t.Errorf("the time that a person gave was cut to %s", wait)
	}
	for _, ticket := range handedBack[:2] {
		if wait := storetest.Wait(t, s, ticket.Task); wait > 0 {
			t.Errorf("task %s, which was handed back, waits for %s", ticket.Task, wait)
		}
	}
	if wait := storetest.Wait(t, s, inserted.Tasks[0].ID); wait < 2*time.Hour {
		t.Errorf("the delay of a caller was cut to %s", wait)
	}
	due := map[message.Ticket]bool{}
	if _, err := s.DispatchDue(t.Context(), store.Queues{}, 100, func(_ context.Context, list []store.Due) []bool {
		for _, d := range list {
			due[d.Ticket] = true
		}
		return slices.Repeat([]bool{true}, len(list))
	}); err != nil || len(due) != 5 {
		t.Errorf("due are %v, %v; want the three interrupted, the parked and the unticketed task", due, err)
	}
}

// If the clock is set back while a rate or a breaker makes tasks wait, these tasks do not wait until the clock has the
// old time.
func TestLimitsGivePermitsAfterAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	m.shift(2*time.Hour, 0)
	if _, err := s.CorrectTimes(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.BlockAtRate(t, s, registerLeased(t, s, time.Hour), insert(t, s, 3))
	storetest.Trip(t, s)
	m.shift(-2*time.Hour, 0)
	if _, err := s.CorrectTimes(t.Context()); err != nil {
		t.Fatal(err)
	}
	storetest.CheckProbeSoon(t, s)
	if released, err := s.ReleaseBlocked(t.Context(), 10); err != nil || released.Next > time.Hour {
		t.Errorf("released %+v, %v; want another look within an hour", released, err)
	}
}

// If the clock was set back before the turn of an ordered task, the task does not wait until the clock has the old
// time.
func TestTurnAfterAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s, m := openClocked(t)
	storetest.TurnAfterSetBack(t, s, func(holdfast.TaskID) { m.shift(-2*time.Hour, 0) })
}
