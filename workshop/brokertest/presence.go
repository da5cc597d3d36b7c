package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Present is a broker with presence locks.
type Present interface {
	broker.Broker
	presence.Broker
}

// WorkerPresence tests the role presence.Broker. open returns two clients of one broker as in Run.
func WorkerPresence(t *testing.T, features Features, open func(t *testing.T) (here, elsewhere Present)) {
	for _, test := range []struct {
		name string
		run  func(*presenceSuite)
	}{
		{"a lock exists until it is released", testLock},
		{"each name is a separate lock", testLocks},
		{"a lock outlives the context of Acquire", testLockContext},
		{"Acquire waits for the lock of another client", testLockWaits},
		{"a client acquires a lock only once", testLockTwice},
		{"a lock ends with its connection", testLockDisconnected},
		{"Acquire waits for a new connection", testLockReconnects},
		{"locks end with their client", testLockClosed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here, elsewhere := open(t)
			test.run(&presenceSuite{&suite{T: t, Broker: here, features: features}, here, elsewhere})
		})
	}
}

// presenceSuite is one test with two clients of its broker.
type presenceSuite struct {
	*suite
	here, elsewhere Present
}

// acquire acquires a lock and releases it at the end of the test.
func (s *presenceSuite) acquire(from Present, name string) (gone <-chan struct{}, release func()) {
	s.Helper()
	gone, release, err := from.Acquire(s.ctx(), name)
	s.must(err)
	s.Cleanup(release)
	return gone, release
}

// isPresent checks whether both clients see the lock.
func (s *presenceSuite) isPresent(when, name string, want bool) {
	s.Helper()
	for _, client := range []Present{s.here, s.elsewhere} {
		got, err := client.Present(s.ctx(), name)
		s.must(err)
		if got != want {
			s.Errorf("%s: Present returned %t, want %t", when, got, want)
		}
	}
}

// waitPresent waits until the other client sees the lock, or sees that it does not exist.
func (s *presenceSuite) waitPresent(name string, want bool) {
	s.Helper()
	ctx := s.ctx()
	for {
		present, err := s.elsewhere.Present(ctx, name)
		s.must(err)
		if present == want {
			return
		}
		s.pause(ctx)
	}
}

// waitGone waits until the channel of a lock is closed.
func (s *presenceSuite) waitGone(gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
	case <-time.After(slow.Patience()):
		s.Fatal("the channel of the lock is not closed")
	}
}

// notGone checks that the channel of a lock is open.
func (s *presenceSuite) notGone(when string, gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
		s.Errorf("%s: the lock is lost", when)
	default:
	}
}

// refused checks that Acquire waits until its context is done.
func (s *presenceSuite) refused(from Present, name string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), quiet)
	defer cancel()
	gone, release, err := from.Acquire(ctx, name)
	if !errors.Is(err, holdfast.ErrUnavailable) || gone != nil || release != nil || ctx.Err() == nil {
		s.Errorf("got %v for a lock that is in use", err)
	}
}

func testLock(s *presenceSuite) {
	name := name()
	s.isPresent("at first", name, false)
	gone, release := s.acquire(s.here, name)
	s.isPresent("acquired", name, true)
	release()
	s.isPresent("released", name, false)
	release()
	s.notGone("released", gone)
	_, release = s.acquire(s.elsewhere, name)
	s.isPresent("acquired by the other client", name, true)
	release()
	s.isPresent("released by the other client", name, false)
}

func testLocks(s *presenceSuite) {
	mine, next, theirs := name(), name(), name()
	_, release := s.acquire(s.here, mine)
	gone, _ := s.acquire(s.here, next)
	stays, _ := s.acquire(s.elsewhere, theirs)
	release()
	s.isPresent("released", mine, false)
	s.isPresent("of the same client", next, true)
	s.isPresent("of another client", theirs, true)
	s.notGone("of the same client", gone)
	s.notGone("of another client", stays)
}

func testLockContext(s *presenceSuite) {
	name := name()
	ctx, cancel := context.WithTimeout(s.Context(), slow.Patience())
	gone, release, err := s.here.Acquire(ctx, name)
	s.must(err)
	defer release()
	cancel()
	s.isPresent("the context is done", name, true)
	s.notGone("the context is done", gone)
}

func testLockWaits(s *presenceSuite) {
	name := name()
	_, release := s.acquire(s.here, name)
	s.refused(s.elsewhere, name)
	s.isPresent("refused to the other client", name, true)
	acquired := make(chan func(), 1)
	go func() {
		_, release, err := s.elsewhere.Acquire(s.ctx(), name)
		if err != nil {
			s.Errorf("acquire: %v", err)
		}
		acquired <- release
	}()
	release()
	if release = <-acquired; release != nil {
		s.isPresent("acquired after waiting", name, true)
		release()
		s.isPresent("released by all", name, false)
	}
}

func testLockTwice(s *presenceSuite) {
	name := name()
	gone, release := s.acquire(s.here, name)
	s.refused(s.here, name)
	s.isPresent("requested twice", name, true)
	s.notGone("requested twice", gone)
	release()
	s.isPresent("released", name, false)
	s.acquire(s.here, name)
	s.isPresent("acquired again", name, true)
}

func testLockDisconnected(s *presenceSuite) {
	s.needDisconnect()
	mine, theirs := name(), name()
	gone, release := s.acquire(s.here, mine)
	stays, _ := s.acquire(s.elsewhere, theirs)
	s.features.Disconnect(s.here)
	s.waitGone(gone)
	s.waitPresent(mine, false)
	s.notGone("of another client", stays)
	release()
	again, _ := s.acquire(s.here, mine)
	s.waitPresent(mine, true)
	s.notGone("acquired again", again)
}

func testLockReconnects(s *presenceSuite) {
	s.needDisconnect()
	name := name()
	_, release := s.acquire(s.elsewhere, name)
	acquired := make(chan struct{})
	go func() {
		defer close(acquired)
		_, release, err := s.here.Acquire(s.ctx(), name)
		if err != nil {
			s.Errorf("acquire: %v", err)
			return
		}
		s.Cleanup(release)
	}()
	for range 3 {
		s.features.Disconnect(s.here)
		s.pause(s.ctx())
	}
	release()
	<-acquired
	s.waitPresent(name, true)
}

func testLockClosed(s *presenceSuite) {
	name := name()
	gone, release := s.acquire(s.here, name)
	s.must(s.here.Close())
	s.waitGone(gone)
	release()
	s.waitPresent(name, false)
	if _, _, err := s.here.Acquire(s.ctx(), name); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("Acquire of a closed client returned %v", err)
	}
	if _, err := s.here.Present(s.ctx(), name); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("Present of a closed client returned %v", err)
	}
}
