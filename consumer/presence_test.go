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

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// fakeServers are a store and a broker that record the calls of a worker as events.
type fakeServers struct {
	Store
	Broker
	began time.Time

	mu        sync.Mutex
	events    []string
	workers   holdfast.WorkerID
	presences map[string]chan struct{} // acquired presences, by server
	renew     func(present bool) error // returns the error of a renewal, or nil
	acquire   func(ctx context.Context, where string) error

	history string // history of the store
}

func newFakeServers() *fakeServers {
	return &fakeServers{began: time.Now(), presences: make(map[string]chan struct{})}
}

// note records an event with its time in milliseconds. The caller holds s.mu.
func (s *fakeServers) note(format string, args ...any) {
	s.events = append(s.events, fmt.Sprintf("%d ", time.Since(s.began).Milliseconds())+fmt.Sprintf(format, args...))
}

// take returns the events since the last call, without events that contain one of the words.
func (s *fakeServers) take(without ...string) []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	events := slices.DeleteFunc(s.events, func(e string) bool {
		return slices.ContainsFunc(without, func(word string) bool { return strings.Contains(e, word) })
	})
	s.events = nil
	return events
}

func (s *fakeServers) RegisterWorker(context.Context, store.WorkerInfo, time.Duration) (holdfast.WorkerID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers++
	s.note("register %d", s.workers)
	return s.workers, nil
}

func (s *fakeServers) Renew(_ context.Context, r store.Renewal) (store.RenewResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("renew %d %t", r.Worker, r.Present)
	if s.renew != nil {
		return store.RenewResult{}, s.renew(r.Present)
	}
	return store.RenewResult{History: s.history}, nil
}

// Apply accepts all transitions.
func (s *fakeServers) Apply(_ context.Context, moves []holdfast.Transition) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(moves)), nil
}

func (s *fakeServers) DeregisterWorker(_ context.Context, worker holdfast.WorkerID, clean bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if clean {
		s.note("deregister %d", worker)
	} else {
		s.note("deregister %d, perhaps with tasks", worker)
	}
	return nil
}

// Drain does nothing. A worker calls it if a handler still runs when the worker drains.
func (s *fakeServers) Drain(context.Context, holdfast.WorkerID) error { return nil }

// Workers, AddQueues and Unpark do nothing.
func (s *fakeServers) Workers(context.Context, bool) ([]store.Worker, error) { return nil, nil }
func (s *fakeServers) AddQueues(context.Context, []string) error             { return nil }
func (s *fakeServers) Unpark(context.Context, []string, []string) (int, error) {
	return 0, nil
}

// acquirePresence implements Acquire for both servers.
func (s *fakeServers) acquirePresence(ctx context.Context, where string) (<-chan struct{}, func(), error) {
	s.mu.Lock()
	acquire := s.acquire
	s.mu.Unlock()
	if acquire != nil {
		if err := acquire(ctx, where); err != nil {
			return nil, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("acquire %s", where)
	gone := make(chan struct{})
	s.presences[where] = gone
	return gone, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.note("release %s", where)
	}), nil
}

func (s *fakeServers) lose(where string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.presences[where])
}

type fakeStorePresence struct {
	presence.Store
	*fakeServers
}

func (s fakeStorePresence) Acquire(ctx context.Context, worker holdfast.WorkerID) (<-chan struct{}, func(), error) {
	return s.acquirePresence(ctx, fmt.Sprintf("store.%d", worker))
}

type fakeBrokerPresence struct {
	presence.Broker
	*fakeServers
}

func (s fakeBrokerPresence) Acquire(ctx context.Context, name string) (<-chan struct{}, func(), error) {
	return s.acquirePresence(ctx, strings.TrimPrefix(name, "test.v1.presence.worker."))
}

// consumer returns a consumer with these servers and a lease of five seconds.
func (s *fakeServers) consumer(t *testing.T) *Consumer {
	t.Helper()
	c, err := New(Options{
		Store: s, Broker: s, Topology: broker.NewTopology("test.v1", 1, "x"), Handlers: new(Registry),
		Present: presence.Servers{Store: fakeStorePresence{fakeServers: s}, Broker: fakeBrokerPresence{fakeServers: s}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a consumer in a goroutine. stop ends it.
func (s *fakeServers) start(t *testing.T) (stop func()) {
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

func wantEvents(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

var errMissing = fmt.Errorf("%w: injected", holdfast.ErrUnavailable)

// A renewal reports at once when the worker has become present at both servers, and at once when it has not stayed so.
// The worker releases its presence after everything else has ended.
func TestRenewalsReportAtOnceWhetherThePresenceIsHeld(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"store.1", "1"} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeServers()
			stop := s.start(t)
			// The first renewal may be sent before or after the presence is acquired.
			first := slices.DeleteFunc(s.take(), func(event string) bool { return event == "0 renew 1 false" })
			slices.Sort(first)
			wantEvents(t, "at the start", slices.Compact(first), "0 acquire 1", "0 acquire store.1", "0 register 1", "0 renew 1 true")
			time.Sleep(2500 * time.Millisecond)
			wantEvents(t, "in between", s.take(), "1000 renew 1 true", "2000 renew 1 true")
			s.lose(lost)
			wantEvents(t, "lost", s.take(), "2500 release "+lost, "2500 renew 1 false")
			time.Sleep(100 * time.Millisecond)
			regained := s.take()
			if len(regained) != 2 || !strings.HasSuffix(regained[0], " acquire "+lost) || !strings.HasSuffix(regained[1], " renew 1 true") {
				t.Errorf("acquired again: got %q", regained)
			}
			stop()
			last := s.take()
			slices.Sort(last[2:])
			wantEvents(t, "at the end", last, "2600 renew 1 true", "2600 deregister 1", "2600 release 1", "2600 release store.1")
		})
	}
}

// If a renewal that reports a lost presence fails, the worker tries again soon. It tries less often if the store
// already records that the presence is lost.
func TestALostPresenceIsReportedAgainSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServers()
		stop := s.start(t)
		s.take()
		s.mu.Lock()
		s.renew = func(bool) error { return errMissing }
		s.acquire = func(context.Context, string) error { return errMissing }
		s.mu.Unlock()
		s.lose("1")
		time.Sleep(160 * time.Millisecond)
		wantEvents(t, "while the store is away", s.take("release"),
			"0 renew 1 false", "10 renew 1 false", "30 renew 1 false", "70 renew 1 false", "150 renew 1 false")
		s.mu.Lock()
		s.renew = nil
		s.mu.Unlock()
		time.Sleep(160 * time.Millisecond)
		wantEvents(t, "it is back", s.take(), "310 renew 1 false")
		s.mu.Lock()
		s.renew = func(bool) error { return errMissing }
		s.mu.Unlock()
		time.Sleep(1400 * time.Millisecond)
		wantEvents(t, "away again, but the store knows that the presence is lost", s.take(), "1310 renew 1 false", "1510 renew 1 false", "1710 renew 1 false")
		s.mu.Lock()
		s.renew = nil
		s.mu.Unlock()
		stop()
	})
}

// A fenced worker releases its presence before the next worker registers. The next worker is present only when it has
// acquired a presence of its own.
func TestAFencedWorkerReleasesItsPresence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServers()
		stop := s.start(t)
		s.take()
		s.mu.Lock()
		s.acquire = func(ctx context.Context, where string) error {
			if where == "2" {
				<-ctx.Done()
				return errMissing
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
		open := slices.Index(events, "1000 register 2")
		if open < 0 || !slices.Contains(events[:open], "1000 release 1") || !slices.Contains(events[:open], "1000 release store.1") {
			t.Errorf("got %q", events)
		}
		time.Sleep(30 * time.Second)
		if events := s.take("false", "acquire"); len(events) > 0 {
			t.Errorf("the new worker is present at one server only, but reports more: %q", events)
		}
		stop()
	})
}

// A server that hangs in Acquire does not delay the end of a worker. If one server is missing, the worker acquires no
// presence.
func TestPresenceDoesNotDelayTheEndOfAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServers()
		s.acquire = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return errors.Join(errMissing, context.Cause(ctx))
		}
		stop := s.start(t)
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
			t.Errorf("without one of the servers: %q", events)
		}
	})
}

// A worker that cannot renew its lease cancels its handlers before the lease expires. Afterwards a janitor may fence
// the worker.
func TestHandlersAreCancelledBeforeTheLeaseExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServers()
		c := s.consumer(t)
		cancelled := make(chan time.Time, 1)
		c.o.Handlers.Add("x", HandlerFunc(func(ctx context.Context, _ holdfast.Task) error {
			<-ctx.Done()
			cancelled <- time.Now()
			return ctx.Err()
		}))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(2500 * time.Millisecond)
		s.mu.Lock()
		s.renew = func(bool) error { return errMissing }
		s.mu.Unlock()
		work := c.current.Load()
		renewed := work.lease.renewed()
		j := jobFor(1)
		j.task.Type, j.now = "x", time.Now()
		work.capacity.add(1)
		work.jobs.add(j)
		if held := (<-cancelled).Sub(renewed); held >= c.o.Lease {
			t.Errorf("the handler was cancelled %s after the last renewal, which was for %s", held, c.o.Lease)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
