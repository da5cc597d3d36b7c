package brokertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Present is a broker that sees who is connected.
type Present interface {
	broker.Broker
	presence.Broker
}

// RunPresence tests the role Presence. open returns two clients of one broker as for Run.
func RunPresence(t *testing.T, features Features, open func(t *testing.T) (here, elsewhere Present)) {
	for _, test := range []struct {
		name string
		run  func(*presenceSuite)
	}{
		{"a sign is there until it is released", testSign},
		{"each name is a sign of its own", testSigns},
		{"a sign outlives the context it was shown with", testSignContext},
		{"a sign waits for another one's", testSignWaits},
		{"one client shows a sign once", testSignTwice},
		{"a sign ends with its connection", testSignDisconnected},
		{"a connection that breaks is waited for", testSignReconnects},
		{"signs end with their client", testSignClosed},
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

// show shows a sign that is released when the test ends.
func (s *presenceSuite) show(from Present, name string) (gone <-chan struct{}, release func()) {
	s.Helper()
	gone, release, err := from.Show(s.ctx(), name)
	s.must(err)
	s.Cleanup(release)
	return gone, release
}

// isShown checks what both clients see.
func (s *presenceSuite) isShown(when, name string, want bool) {
	s.Helper()
	for _, there := range []Present{s.here, s.elsewhere} {
		got, err := there.Shown(s.ctx(), name)
		s.must(err)
		if got != want {
			s.Errorf("%s: shown is %t", when, got)
		}
	}
}

// becomes waits until others see that the sign is there, or not.
func (s *presenceSuite) becomes(name string, want bool) {
	s.Helper()
	ctx := s.ctx()
	for {
		shown, err := s.elsewhere.Shown(ctx, name)
		s.must(err)
		if shown == want {
			return
		}
		s.pause(ctx)
	}
}

// ends waits until the sign has ended.
func (s *presenceSuite) ends(gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
	case <-time.After(patience):
		s.Fatal("nobody says that the sign is gone")
	}
}

func (s *presenceSuite) isThere(when string, gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
		s.Errorf("%s: the sign is gone", when)
	default:
	}
}

// refused checks that a sign cannot be shown until a context is done.
func (s *presenceSuite) refused(from Present, name string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), quiet)
	defer cancel()
	gone, release, err := from.Show(ctx, name)
	if !errors.Is(err, holdfast.ErrUnavailable) || gone != nil || release != nil || ctx.Err() == nil {
		s.Errorf("got %v, while somebody shows it", err)
	}
}

func testSign(s *presenceSuite) {
	name := name()
	s.isShown("never", name, false)
	gone, release := s.show(s.here, name)
	s.isShown("now", name, true)
	release()
	s.isShown("released", name, false)
	release()
	s.isThere("released", gone)
	_, release = s.show(s.elsewhere, name)
	s.isShown("by the other one", name, true)
	release()
	s.isShown("released by the other one", name, false)
}

func testSigns(s *presenceSuite) {
	mine, next, theirs := name(), name(), name()
	_, release := s.show(s.here, mine)
	gone, _ := s.show(s.here, next)
	stays, _ := s.show(s.elsewhere, theirs)
	release()
	s.isShown("released", mine, false)
	s.isShown("of the same client", next, true)
	s.isShown("of another client", theirs, true)
	s.isThere("of the same client", gone)
	s.isThere("of another client", stays)
}

func testSignContext(s *presenceSuite) {
	name := name()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	gone, release, err := s.here.Show(ctx, name)
	s.must(err)
	defer release()
	cancel()
	s.isShown("the context is done", name, true)
	s.isThere("the context is done", gone)
}

func testSignWaits(s *presenceSuite) {
	name := name()
	_, release := s.show(s.here, name)
	s.refused(s.elsewhere, name)
	s.isShown("another one tried", name, true)
	shown := make(chan func(), 1)
	go func() {
		_, release, err := s.elsewhere.Show(s.ctx(), name)
		if err != nil {
			s.Errorf("show: %v", err)
		}
		shown <- release
	}()
	release()
	if release = <-shown; release != nil {
		s.isShown("by the one who waited", name, true)
		release()
		s.isShown("by nobody", name, false)
	}
}

func testSignTwice(s *presenceSuite) {
	name := name()
	gone, release := s.show(s.here, name)
	s.refused(s.here, name)
	s.isShown("shown twice", name, true)
	s.isThere("shown twice", gone)
	release()
	s.isShown("released", name, false)
	s.show(s.here, name)
	s.isShown("shown again", name, true)
}

func testSignDisconnected(s *presenceSuite) {
	s.needDisconnect()
	mine, theirs := name(), name()
	gone, release := s.show(s.here, mine)
	stays, _ := s.show(s.elsewhere, theirs)
	s.features.Disconnect(s.here)
	s.ends(gone)
	s.becomes(mine, false)
	s.isThere("of another client", stays)
	release()
	again, _ := s.show(s.here, mine)
	s.becomes(mine, true)
	s.isThere("shown again", again)
}

func testSignReconnects(s *presenceSuite) {
	s.needDisconnect()
	name := name()
	_, release := s.show(s.elsewhere, name)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, release, err := s.here.Show(s.ctx(), name)
		if err != nil {
			s.Errorf("show: %v", err)
			return
		}
		s.Cleanup(release)
	}()
	for range 3 {
		s.features.Disconnect(s.here)
		s.pause(s.ctx())
	}
	release()
	<-shown
	s.becomes(name, true)
}

func testSignClosed(s *presenceSuite) {
	name := name()
	gone, release := s.show(s.here, name)
	s.must(s.here.Close())
	s.ends(gone)
	release()
	s.becomes(name, false)
	if _, _, err := s.here.Show(s.ctx(), name); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("a closed client shows a sign: %v", err)
	}
	if _, err := s.here.Shown(s.ctx(), name); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("a closed client sees a sign: %v", err)
	}
}
