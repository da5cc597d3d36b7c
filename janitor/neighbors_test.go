package janitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
)

// fakeMachine is a machine with one worker, worker 1.
type fakeMachine struct {
	*presenceFake
	found bool // the process of the worker exists
}

func (s *fakeMachine) Place() (boot, namespace string) { return "boot", "namespace" }

func (s *fakeMachine) Gone(pid int, started int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.found && pid == 7 && started == 42
}

// fakeNeighborStore is a store with worker 1.
type fakeNeighborStore struct {
	fakePresenceStore
	renewedAt func() time.Time
}

func (c fakeNeighborStore) Neighbors(_ context.Context, boot, namespace string) ([]presence.Neighbor, error) {
	if boot != "boot" || namespace != "namespace" {
		return nil, errFault
	}
	return []presence.Neighbor{{Worker: 1, RenewedAt: c.renewedAt(), PID: 7, Started: 42}}, nil
}

// runNeighbors runs the neighbors duty of a janitor that has just started on the machine of the worker. It runs body at
// the same time.
func runNeighbors(t *testing.T, body func(s *fakeMachine)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &presenceFake{began: began, missing: make(map[holdfast.WorkerID]time.Time), fenced: make(map[holdfast.WorkerID]time.Duration)}
		c := fakeNeighborStore{fakePresenceStore{fake: s}, func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			if at, gone := s.missing[1]; gone {
				return at
			}
			return began.Add(time.Since(began).Truncate(time.Second)) // the worker renews every second
		}}
		on := &fakeMachine{presenceFake: s, found: true}
		j, ctx, end := offlineJanitor(t, s)
		j.o.Present, j.o.Machine = presence.Servers{Store: c, Broker: fakePresenceBroker{fake: s}}, on
		j.watcher = j.newWatcher()
		done := make(chan struct{})
		go func() { defer close(done); j.watcher.RunNeighbors(ctx) }()
		body(on)
		end()
		<-done
	})
}

// A janitor that has just started fences a worker whose process has ended, once its presence has been missing for long
// enough.
func TestADeadNeighborIsFencedAtOnce(t *testing.T) {
	runNeighbors(t, func(s *fakeMachine) {
		s.expectFenced(t, 2500*time.Millisecond, "the worker is live")
		s.setMissing(1)
		s.expectFenced(t, 2*time.Second, "its presence is lost, but its process exists")
		s.locked(func() { s.found = false })
		s.expectFenced(t, 150*time.Millisecond, "too soon")
		s.expectFenced(t, 400*time.Millisecond, "process has ended", 1)
		if s.settle != 0 {
			t.Errorf("settle time is %s, want 0", s.settle)
		}
	})
}

// A process that is not found may run on a clone of the machine. Presence in either server proves that the worker is
// live.
func TestANeighborThatIsPresentIsNotFenced(t *testing.T) {
	runNeighbors(t, func(s *fakeMachine) {
		s.locked(func() {
			s.found = false
			s.present = func(context.Context, string) (bool, error) { return true, nil }
		})
		s.expectFenced(t, 500*time.Millisecond, "present in the store")
		s.setMissing(1)
		s.expectFenced(t, time.Minute, "present in the broker")
		s.locked(func() { s.present = func(context.Context, string) (bool, error) { return false, errFault } })
		s.expectFenced(t, time.Minute, "the broker does not answer")
		s.locked(func() { s.present = nil })
		s.expectFenced(t, 400*time.Millisecond, "missing in both", 1)
	})
}

// If a worker renews although its process is not found, the machine is a clone. From then on it proves nothing.
func TestACloneProvesNothing(t *testing.T) {
	runNeighbors(t, func(s *fakeMachine) {
		s.locked(func() { s.found = false })
		s.expectFenced(t, 4*time.Second, "the worker renews")
		s.setMissing(1)
		s.expectFenced(t, time.Minute, "its presence is lost")
	})
}
