package sqlite_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/store/storetest"
)

// machine has clocks that a test moves.
type machine struct {
	mu    sync.Mutex
	wall  time.Time
	awake time.Duration
}

// clocked is a store on a machine of its own, which has been awake for a day.
func clocked(t *testing.T) (*sqlite.Store, *machine) {
	t.Helper()
	s := open(t)
	m := &machine{wall: time.Now()}
	s.SetClocks(m.read)
	m.pass(24 * time.Hour)
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

func (m *machine) pass(d time.Duration) { m.move(d, d) }

func (m *machine) move(wall, awake time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall, m.awake = m.wall.Add(wall), m.awake+awake
}

// fences asks who is fenced now, with a settle of ten seconds.
func fences(t *testing.T, s *sqlite.Store, m *machine) []holdfast.RunID {
	t.Helper()
	now, _ := m.read()
	fenced, err := s.Fence(t.Context(), now, time.Second, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return fenced
}

func leased(t *testing.T, s *sqlite.Store, lease time.Duration) holdfast.RunID {
	t.Helper()
	run, err := s.OpenRun(t.Context(), store.RunInfo{Name: "worker"}, lease)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Whoever slept could not renew.
func TestFenceSparesAfterALeap(t *testing.T) {
	t.Parallel()
	for name, leap := range map[string]func(*machine){
		"the machine slept":         func(m *machine) { m.move(time.Hour, time.Millisecond) },
		"the clock was set forward": func(m *machine) { m.move(2*time.Minute, 0) },
		"a frozen virtual machine":  func(m *machine) { m.move(time.Hour, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, m := clocked(t)
			run := leased(t, s, time.Minute)
			leap(m)
			if fenced := fences(t, s, m); len(fenced) > 0 {
				t.Errorf("fenced %v at once", fenced)
			}
			m.pass(9 * time.Second)
			if fenced := fences(t, s, m); len(fenced) > 0 {
				t.Errorf("fenced %v before it has settled", fenced)
			}
			m.pass(2 * time.Second)
			if fenced := fences(t, s, m); !slices.Equal(fenced, []holdfast.RunID{run}) {
				t.Errorf("fenced %v, want %s", fenced, run)
			}
		})
	}
}

func TestFenceAfterALeapSparesWhoRenews(t *testing.T) {
	t.Parallel()
	s, m := clocked(t)
	run := leased(t, s, time.Minute)
	m.move(time.Hour, 0)
	m.pass(5 * time.Second)
	if _, err := s.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	m.pass(30 * time.Second)
	if fenced := fences(t, s, m); len(fenced) > 0 {
		t.Errorf("fenced %v", fenced)
	}
}

// A clock that is corrected little by little is no leap, and one that goes back keeps leases longer.
func TestFenceBesideAClockThatIsCorrected(t *testing.T) {
	t.Parallel()
	s, m := clocked(t)
	run := leased(t, s, time.Minute)
	for range 20 {
		m.move(3*time.Second+100*time.Millisecond, 3*time.Second)
		if _, err := s.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if fenced := fences(t, s, m); !slices.Equal(fenced, []holdfast.RunID{run}) {
		t.Errorf("fenced %v, want %s", fenced, run)
	}
	other := leased(t, s, time.Minute)
	m.move(-time.Hour, 0)
	m.pass(30 * time.Minute)
	if fenced := fences(t, s, m); len(fenced) > 0 {
		t.Errorf("fenced %v, whose lease is not over", fenced)
	}
	m.pass(time.Hour)
	if fenced := fences(t, s, m); !slices.Equal(fenced, []holdfast.RunID{other}) {
		t.Errorf("fenced %v, want %s", fenced, other)
	}
}

// As a server that has just come up.
func TestFenceSettlesAfterOpening(t *testing.T) {
	t.Parallel()
	s := open(t)
	m := &machine{wall: time.Now()}
	s.SetClocks(m.read)
	run := leased(t, s, time.Second)
	m.pass(9 * time.Second)
	if fenced := fences(t, s, m); len(fenced) > 0 {
		t.Errorf("fenced %v", fenced)
	}
	m.pass(2 * time.Second)
	if fenced := fences(t, s, m); !slices.Equal(fenced, []holdfast.RunID{run}) {
		t.Errorf("fenced %v, want %s", fenced, run)
	}
}

// A ticket that is out must do although the clock is behind now: nothing would publish another one.
func TestTicketsOutliveAClockThatGoesBack(t *testing.T) {
	t.Parallel()
	s, m := clocked(t)
	tickets := insert(t, s, 2)
	if mine, err := s.Turn(t.Context(), "duty", time.Minute); err != nil || !mine {
		t.Fatal(err)
	}
	m.move(-time.Hour, 0)
	claims, err := s.Claim(t.Context(), leased(t, s, time.Minute), store.AnyOf("t"), tickets[:1], store.IntoExecutors)
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
		t.Errorf("a turn from the future keeps everybody away: %v", err)
	}
}

// What a walk makes due, and the scheduler publishes meanwhile, is not made due again.
func TestUnticketLaneEndsBesideTheScheduler(t *testing.T) {
	t.Parallel()
	s, m := clocked(t)
	insert(t, s, 1200)
	m.move(-time.Hour, 0) // those published from now on seem older than the others
	done := make(chan int, 1)
	go func() {
		n, err := s.UnticketLane(t.Context(), holdfast.DefaultLane)
		if err != nil {
			t.Error(err)
		}
		done <- n
	}()
	for {
		if _, err := s.DispatchDue(t.Context(), store.Lanes{}, 100, publishAll); err != nil {
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

// If a clock was two hours ahead and is set back, the store holds times in the future. A living worker renews, a dead worker is
// fenced a lease later, and the next sentinels are due at once.
func TestTimesFromTheFutureHoldNothingUp(t *testing.T) {
	t.Parallel()
	s, m := clocked(t)
	m.move(2*time.Hour, 0)
	run := leased(t, s, time.Minute)
	first := storetest.SentinelDue(t, s, "at the start")
	if err := s.Drained(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	m.move(-2*time.Hour, 0)
	m.pass(time.Second)
	second := storetest.SentinelDue(t, s, "the clock was set back")
	m.pass(time.Second)
	for _, sentinel := range []message.Sentinel{first, second} {
		if err := s.Drained(t.Context(), sentinel); err != nil {
			t.Fatal(err)
		}
	}
	lanes, err := s.Lanes(t.Context())
	if err != nil || !lanes[0].DrainedAt.Equal(second.At) {
		t.Errorf("drained through %v, %v; want %s, when the second one was sent", lanes, err, second.At)
	}
	m.pass(15 * time.Second)
	if fenced := fences(t, s, m); len(fenced) != 0 {
		t.Errorf("fenced %v without a lease to renew in", fenced)
	}
	m.pass(70 * time.Second)
	if fenced := fences(t, s, m); !slices.Equal(fenced, []holdfast.RunID{run}) {
		t.Errorf("fenced %v a lease later, want %s", fenced, run)
	}
}

// If a clock was two hours ahead and is set back, CorrectTimes corrects the times that the store computed. It keeps the delay that a
// caller gave.
func TestTimesComputedInTheFutureAreCorrected(t *testing.T) {
	t.Parallel()
	s, m := clocked(t)
	correct := func(want bool) {
		t.Helper()
		if setBack, err := s.CorrectTimes(t.Context()); setBack != want || err != nil {
			t.Fatalf("the clock was set back: %v, %v; want %v", setBack, err, want)
		}
	}
	correct(false)
	begun, err := s.Claim(t.Context(), leased(t, s, time.Minute), store.AnyOf("t"), insert(t, s, 1), store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	m.move(2*time.Hour, 0)
	correct(false)
	handBack, err := holdfast.Settle(begun[0].Task, holdfast.Interrupted(nil), time.Now(), holdfast.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), []holdfast.Transition{handBack}); err != nil {
		t.Fatal(err)
	}
	tickets := insert(t, s, 5) // whose outbox entries stay
	waits := storetest.ComputeTimes(t, s, leased(t, s, time.Minute), tickets)
	given := newTasks(1)
	given[0].Delay = time.Hour
	inserted, err := s.Insert(t.Context(), given, time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	m.move(-2*time.Hour, 0)
	correct(true)
	correct(false)
	if published := storetest.DispatchOutbox(t, s); published != 6 {
		t.Errorf("the outbox gave %d tickets, want 6", published)
	}
	for i, want := range waits {
		if wait := storetest.Wait(t, s, tickets[i].Task); wait > want+time.Millisecond || wait < want-time.Second {
			t.Errorf("task %d waits for %s, want %s", i, wait, want)
		}
	}
	if wait := storetest.Wait(t, s, handBack.Task); wait > 0 {
		t.Errorf("a task handed back waits for %s", wait)
	}
	if wait := storetest.Wait(t, s, inserted.Tasks[0].ID); wait < 2*time.Hour {
		t.Errorf("a delay that was given is cut to %s", wait)
	}
	due := map[message.Ticket]bool{}
	if _, err := s.DispatchDue(t.Context(), store.Lanes{}, 100, func(_ context.Context, list []store.Due) []bool {
		for _, d := range list {
			due[d.Ticket] = true
		}
		return slices.Repeat([]bool{true}, len(list))
	}); err != nil || len(due) != 4 {
		t.Errorf("due are %v, %v; want both interrupted, the parked and the unticketed task", due, err)
	}
}
