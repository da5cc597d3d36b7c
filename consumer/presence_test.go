package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
)

// stage is a store and a broker that write down what a run shows them.
type stage struct {
	Store
	Broker
	began time.Time

	mu     sync.Mutex
	events []string
	runs   holdfast.RunID
	signs  map[string]chan struct{} // those that are held, by where
	renew  func(shown bool) error   // nil: always answered
	show   func(ctx context.Context, where string) error

	history string // of the store
}

func newStage() *stage { return &stage{began: time.Now(), signs: make(map[string]chan struct{})} }

// note writes an event with its time in milliseconds; the caller holds the lock.
func (s *stage) note(format string, args ...any) {
	s.events = append(s.events, fmt.Sprintf("%d ", time.Since(s.began).Milliseconds())+fmt.Sprintf(format, args...))
}

// take returns the events since the last call, without those that contain one of these words.
func (s *stage) take(without ...string) []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	events := slices.DeleteFunc(s.events, func(e string) bool {
		return slices.ContainsFunc(without, func(word string) bool { return strings.Contains(e, word) })
	})
	s.events = nil
	return events
}

func (s *stage) OpenRun(context.Context, store.RunInfo, time.Duration) (holdfast.RunID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.note("open %d", s.runs)
	return s.runs, nil
}

func (s *stage) Renew(_ context.Context, r store.Renewal) (store.News, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("renew %d %t", r.Run, r.Shown)
	if s.renew != nil {
		return store.News{}, s.renew(r.Shown)
	}
	return store.News{History: s.history}, nil
}

func (s *stage) CloseRun(_ context.Context, run holdfast.RunID, clean bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if clean {
		s.note("close %d", run)
	} else {
		s.note("close %d, perhaps with tasks", run)
	}
	return nil
}

// hold is Show of both roles.
func (s *stage) hold(ctx context.Context, where string) (<-chan struct{}, func(), error) {
	s.mu.Lock()
	show := s.show
	s.mu.Unlock()
	if show != nil {
		if err := show(ctx, where); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("show %s", where)
	gone := make(chan struct{})
	s.signs[where] = gone
	return gone, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("release %s", where)
	}), nil
}

func (s *stage) lose(where string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.signs[where])
}

type storeSide struct {
	presence.Store
	*stage
}

func (s storeSide) Show(ctx context.Context, run holdfast.RunID) (<-chan struct{}, func(), error) {
	return s.hold(ctx, fmt.Sprintf("store.%d", run))
}

type brokerSide struct {
	presence.Broker
	*stage
}

func (s brokerSide) Show(ctx context.Context, name string) (<-chan struct{}, func(), error) {
	return s.hold(ctx, strings.TrimPrefix(name, "test.v1.alive."))
}

// consumer is one with a lease of five seconds on the stage.
func (s *stage) consumer(t *testing.T) *Consumer {
	t.Helper()
	c, err := New(Options{
		Store: s, Broker: s, Topology: broker.NewTopology("test.v1", 1, "x"), Handlers: new(Registry),
		Present: presence.Servers{Store: storeSide{stage: s}, Broker: brokerSide{stage: s}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// play runs a consumer and returns what ends it.
func (s *stage) play(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := s.consumer(t)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func same(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

var errAbsent = fmt.Errorf("%w: the test says so", holdfast.ErrUnavailable)

// Renewals say that both signs are held as soon as they are, and at the very moment that one is not any more. They are
// released when everything else of the run has ended.
func TestRenewalsTellAtOnceWhetherBothSignsAreHeld(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"store.1", "1"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			stop := s.play(t)
			// The first renewal may come before the signs are shown, or after.
			first := slices.DeleteFunc(s.take(), func(event string) bool { return event == "0 renew 1 false" })
			slices.Sort(first[1:])
			same(t, "at the start", slices.Compact(first), "0 open 1", "0 renew 1 true", "0 show 1", "0 show store.1")
			time.Sleep(2500 * time.Millisecond)
			same(t, "in between", s.take(), "1000 renew 1 true", "2000 renew 1 true")
			s.lose(lost)
			same(t, "lost", s.take(), "2500 release "+lost, "2500 renew 1 false")
			time.Sleep(100 * time.Millisecond)
			again := s.take()
			if len(again) != 2 || !strings.HasSuffix(again[0], " show "+lost) || !strings.HasSuffix(again[1], " renew 1 true") {
				t.Errorf("shown again: got %q", again)
			}
			stop()
			last := s.take()
			slices.Sort(last[2:])
			same(t, "at the end", last, "2600 renew 1 true", "2600 close 1", "2600 release 1", "2600 release store.1")
		})
	}
}

// A store that does not hear the contradiction is asked again soon, and not as often when there is nothing to contradict.
func TestAContradictionIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		stop := s.play(t)
		s.take()
		s.mu.Lock()
		s.renew = func(bool) error { return errAbsent }
		s.show = func(context.Context, string) error { return errAbsent }
		s.mu.Unlock()
		s.lose("1")
		time.Sleep(160 * time.Millisecond)
		same(t, "while the store is away", s.take("release"),
			"0 renew 1 false", "10 renew 1 false", "30 renew 1 false", "70 renew 1 false", "150 renew 1 false")
		s.mu.Lock()
		s.renew = nil
		s.mu.Unlock()
		time.Sleep(160 * time.Millisecond)
		same(t, "it is back", s.take(), "310 renew 1 false")
		s.mu.Lock()
		s.renew = func(bool) error { return errAbsent }
		s.mu.Unlock()
		time.Sleep(1400 * time.Millisecond)
		same(t, "away again, with nothing to contradict", s.take(), "1310 renew 1 false", "1510 renew 1 false", "1710 renew 1 false")
		s.mu.Lock()
		s.renew = nil
		s.mu.Unlock()
		stop()
	})
}

// A run is not shown for what an earlier one held, and the signs of that one end before the next one begins.
func TestALostRunTakesItsSignsAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		stop := s.play(t)
		s.take()
		s.mu.Lock()
		s.show = func(ctx context.Context, where string) error {
			if where == "2" {
				<-ctx.Done()
				return errAbsent
			}
			return nil
		}
		fenced := false
		s.renew = func(bool) error {
			if fenced {
				return nil
			}
			fenced = true
			return store.ErrFenced
		}
		s.mu.Unlock()
		time.Sleep(time.Second)
		events := s.take()
		open := slices.Index(events, "1000 open 2")
		if open < 0 || !slices.Contains(events[:open], "1000 release 1") || !slices.Contains(events[:open], "1000 release store.1") {
			t.Errorf("got %q", events)
		}
		time.Sleep(30 * time.Second)
		if events := s.take("false", "show"); len(events) > 0 {
			t.Errorf("the new run is shown without its sign: %q", events)
		}
		stop()
	})
}

// A server that hangs does not keep a run from its end, nor do the roles have to be there.
func TestSignsDoNotHoldARunUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.show = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.Join(errAbsent, context.Cause(ctx))
		}
		stop := s.play(t)
		time.Sleep(time.Minute)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("the end took %s", took)
		}
		c := s.consumer(t)
		c.o.Present.Broker = nil
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s.take()
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		if events := s.take("renew 2 false"); len(events) != 2 {
			t.Errorf("without one of the roles: %q", events)
		}
	})
}
