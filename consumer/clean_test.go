package consumer

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
)

// Held returns no tasks.
func (s *fakeServers) Held(context.Context, holdfast.WorkerID, holdfast.TaskID, holdfast.TaskID) ([]holdfast.Task, error) {
	return nil, nil
}

// A worker deregisters as clean if it certainly owns no task. It is not clean if the store may have lost commits, even
// if only the last renewal shows that.
func TestAWorkerDeregistersAsCleanOnlyIfTheStoreHasLostNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		upset func(s *fakeServers, t *testing.T)
		want  string
	}{
		{"nothing is lost", func(*fakeServers, *testing.T) {}, "deregister 1"},
		{"reported in between", func(s *fakeServers, t *testing.T) { s.setHistory("after"); time.Sleep(3 * time.Second); s.take() }, "deregister 1, perhaps with tasks"},
		{"reported at the end", func(s *fakeServers, t *testing.T) { s.setHistory("after") }, "deregister 1, perhaps with tasks"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServers()
			s.setHistory("before")
			stop := s.start(t)
			time.Sleep(1500 * time.Millisecond)
			s.take()
			test.upset(s, t)
			stop()
			events := s.take("renew", "release")
			if len(events) != 1 || !strings.HasSuffix(events[0], " "+test.want) {
				t.Errorf("%s: got %q, want %q", test.name, events, test.want)
			}
		})
	}
}

func (s *fakeServers) setHistory(history string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = history
}

// A worker that has given up an unanswered claim is not clean.
func TestAWorkerWithAnUnansweredClaimIsNotClean(t *testing.T) {
	t.Parallel()
	s := &session{disowned: make(chan struct{})}
	if !s.clean() {
		t.Error("a worker without claims is not clean")
	}
	close(s.disowned)
	if s.clean() {
		t.Error("a worker whose claim may be committed is clean")
	}
}
