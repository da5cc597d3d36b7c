package consumer

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
)

// Held implements Store: nothing is.
func (s *stage) Held(context.Context, holdfast.RunID, holdfast.TaskID, holdfast.TaskID) ([]holdfast.Task, error) {
	return nil, nil
}

// A run says at its end whether it is certain to own no task. It is not once the store may have lost commits, even if only
// the last renewal of all tells.
func TestARunIsClosedAsCleanOnlyIfTheStoreHasLostNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		upset func(s *stage, t *testing.T)
		want  string
	}{
		{"nothing is lost", func(*stage, *testing.T) {}, "close 1"},
		{"told in between", func(s *stage, t *testing.T) { s.tell("after"); time.Sleep(3 * time.Second); s.take() }, "close 1, perhaps with tasks"},
		{"told at the end", func(s *stage, t *testing.T) { s.tell("after") }, "close 1, perhaps with tasks"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.tell("before")
			stop := s.play(t)
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

func (s *stage) tell(history string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = history
}

// Nor is it once a claim was given up whose answer never came.
func TestARunWithAnUnansweredClaimIsNotClean(t *testing.T) {
	t.Parallel()
	s := &session{disowned: make(chan struct{})}
	if !s.clean() {
		t.Error("nothing has happened")
	}
	close(s.disowned)
	if s.clean() {
		t.Error("the claim may have been committed")
	}
}
