package janitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
)

// street is a machine with one worker, run 1.
type street struct {
	*square
	found bool // the machine has its process
}

func (s *street) Place() (boot, namespace string) { return "boot", "namespace" }

func (s *street) Gone(pid int, started int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.found && pid == 7 && started == 42
}

// corner is a store that knows the worker.
type corner struct {
	plaza
	renewedAt func() time.Time
}

func (c corner) Neighbors(_ context.Context, boot, namespace string) ([]presence.Neighbor, error) {
	if boot != "boot" || namespace != "namespace" {
		return nil, errFault
	}
	return []presence.Neighbor{{Run: 1, RenewedAt: c.renewedAt(), PID: 7, Started: 42}}, nil
}

// live runs the duty of a janitor that has just started beside the worker.
func live(t *testing.T, story func(s *street)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &square{began: began, absent: make(map[holdfast.RunID]time.Time), fenced: make(map[holdfast.RunID]time.Duration)}
		c := corner{plaza{stage: s}, func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			if at, gone := s.absent[1]; gone {
				return at
			}
			return began.Add(time.Since(began).Truncate(time.Second)) // it renews each second
		}}
		on := &street{square: s, found: true}
		j, ctx, end := offline(t, s)
		j.o.Present, j.o.Machine = presence.Servers{Store: c, Broker: hall{stage: s}}, on
		j.watcher = j.newWatcher()
		done := make(chan struct{})
		go func() { defer close(done); j.watcher.RunNeighbors(ctx) }()
		story(on)
		end()
		<-done
	})
}

// A worker whose process has ended is fenced by a janitor that has just started, as soon as its presence is gone for long enough.
func TestADeadNeighborIsFencedAtOnce(t *testing.T) {
	live(t, func(s *street) {
		s.within(t, 2500*time.Millisecond, "it lives")
		s.leave(1)
		s.within(t, 2*time.Second, "its sessions are lost, but its process is there")
		s.do(func() { s.found = false })
		s.within(t, 150*time.Millisecond, "too soon")
		s.within(t, 400*time.Millisecond, "gone", 1)
		if s.settle != 0 {
			t.Errorf("the server has to be up for %s", s.settle)
		}
	})
}

// A worker that is not found may be on a clone of the machine. Its presence in either server says that it lives.
func TestANeighborThatIsPresentIsNotFenced(t *testing.T) {
	live(t, func(s *street) {
		s.do(func() {
			s.found = false
			s.shown = func(context.Context, string) (bool, error) { return true, nil }
		})
		s.within(t, 500*time.Millisecond, "the store sees it")
		s.leave(1)
		s.within(t, time.Minute, "the broker sees it")
		s.do(func() { s.shown = func(context.Context, string) (bool, error) { return false, errFault } })
		s.within(t, time.Minute, "the broker does not answer")
		s.do(func() { s.shown = nil })
		s.within(t, 400*time.Millisecond, "gone", 1)
	})
}

// A worker that goes on renewing although it is not found lives on a clone. From then on the machine proves nothing.
func TestACloneProvesNothing(t *testing.T) {
	live(t, func(s *street) {
		s.do(func() { s.found = false })
		s.within(t, 4*time.Second, "it renews")
		s.leave(1)
		s.within(t, time.Minute, "it has lost its sessions")
	})
}
