package consumer

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// hangingSession returns a session with two executors. Its handlers ignore a timeout of a millisecond until release is
// closed. Then they return, panic or end their goroutine, depending on the type of the task.
func hangingSession(t *testing.T, release <-chan struct{}) *session {
	var registry Registry
	for kind, end := range map[string]func(){"returns": func() {}, "panics": func() { panic("late") }, "exits": runtime.Goexit} {
		registry.Add(kind, HandlerFunc(func(context.Context, holdfast.Task) error { <-release; end(); return nil }))
	}
	registry.Add("quick", HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
	// On a slow machine, a timeout of a millisecond would end quick handlers, too.
	settings := holdfast.Settings{
		Defaults: holdfast.TypeSettings{Timeout: time.Millisecond}, Types: map[string]holdfast.TypeSettings{"quick": {Timeout: time.Hour}},
	}
	return testSession(t, Options{Handlers: &registry, Settings: settings, Concurrency: 2, Lease: time.Hour}, time.Now())
}

// start adds a job of a type.
func (s *session) start(id int, kind string) *job {
	j := jobFor(id)
	j.task.Type, j.task.MaxAttempts, j.now = kind, 3, time.Now()
	s.capacity.add(1)
	s.jobs.add(j)
	return j
}

// abandonAll waits until the contexts of all running jobs have ended, and gives up their attempts.
func (s *session) abandonAll(t *testing.T, n int) {
	t.Helper()
	given := 0
	for limit := time.Now().Add(slow.Patience()); given < n; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d attempts were given up, want %d", given, n)
		}
		for _, found := range s.jobs.lookForStuck(time.Now(), func(*job) time.Duration { return 1 }) {
			s.handleStuck(found)
			if found.abandoned {
				given++
			}
		}
	}
}

// The worker settles the attempt of an abandoned handler as a timeout, once, regardless of how the handler ends later.
// It replaces the executor at once.
func TestAbandonedHandlersEndLate(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"returns", "panics", "exits"} {
		release := make(chan struct{})
		s := hangingSession(t, release)
		s.start(1, kind)
		s.start(2, kind)
		waits := s.start(3, "quick")
		s.abandonAll(t, 2)
		for s.results.count() < 3 { // the third job runs while both handlers hang
			time.Sleep(time.Millisecond)
		}
		if _, abandoned := s.jobs.stuckHandlers(); abandoned != 2 {
			t.Errorf("%s: %d handlers are abandoned, want 2", kind, abandoned)
		}
		close(release)
		for limit := time.Now().Add(slow.Patience()); ; time.Sleep(time.Millisecond) {
			if _, abandoned := s.jobs.stuckHandlers(); abandoned == 0 {
				break
			} else if time.Now().After(limit) {
				t.Fatalf("%s: %d abandoned handlers have not ended", kind, abandoned)
			}
		}
		s.start(4, "quick")
		s.start(5, "quick")
		s.jobs.stop()
		<-s.jobs.done()
		got := map[holdfast.TaskID][]holdfast.Transition{}
		for _, move := range s.results.take().moves {
			got[move.Task] = append(got[move.Task], move)
		}
		for id := holdfast.TaskID(1); id <= 5; id++ {
			want, class := holdfast.EventComplete, ""
			if id <= 2 {
				want, class = holdfast.EventRetry, "timeout"
			}
			if moves := got[id]; len(moves) != 1 || moves[0].Event != want || moves[0].Report.Class != class {
				t.Errorf("%s: task %s has the results %+v, want one %s", kind, id, moves, want)
			}
		}
		if waits.phase != finished || s.jobs.running() != 0 || s.capacity.inUse() != 0 {
			t.Errorf("%s: %d handlers run, %d tasks are in progress", kind, s.jobs.running(), s.capacity.inUse())
		}
	}
}

// A handler is stuck when it ignores a timeout or a cancellation for a second. Without a limit, its attempt is never
// given up. When the worker itself ends, the drain decides instead.
func TestWhichHandlersAreStuck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		why  error
		want bool
	}{{holdfast.ErrTimeout, true}, {holdfast.ErrCancelled, true}, {holdfast.ErrDraining, false}, {holdfast.ErrLeaseLost, false}, {nil, false}} {
		js := newJobs(newCapacity(1), func(*job) {}, func() {})
		ctx, cancel := context.WithCancelCause(t.Context())
		j := jobFor(1)
		j.phase, js.active = running, 1
		js.inProgress[j.ticket()] = j
		js.bind(j, ctx, cancel)
		if test.why != nil {
			cancel(test.why)
		}
		now := time.Now()
		look := func(after, limit time.Duration) []stuckJob {
			return js.lookForStuck(now.Add(after), func(*job) time.Duration { return limit })
		}
		if first := look(0, 0); len(first) > 0 {
			t.Errorf("%v: stuck at once: %+v", test.why, first)
		}
		second := look(stuckAfter, 0)
		if len(second) > 0 != test.want || test.want && (second[0].abandoned || js.stuckTasks(now.Add(time.Minute))[0].For != time.Minute) {
			t.Errorf("%v: after %s: %+v, want %t", test.why, stuckAfter, second, test.want)
		}
		if third := look(24*time.Hour, 0); len(third) > 0 {
			t.Errorf("%v: reported again: %+v", test.why, third)
		}
		if fourth := look(24*time.Hour, 24*time.Hour); len(fourth) > 0 != test.want || test.want && !fourth[0].abandoned {
			t.Errorf("%v: after a day: %+v, want %t", test.why, fourth, test.want)
		}
		if fifth := look(48*time.Hour, time.Hour); len(fifth) > 0 {
			t.Errorf("%v: given up again: %+v", test.why, fifth)
		}
		cancel(nil)
	}
}

// A worker with too many abandoned handlers drains, reports why, and ends with an error, so that its process restarts.
func TestTooManyAbandonedHandlersEndTheWorker(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	s := hangingSession(t, release)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	s.o.Settings = holdfast.Settings{Defaults: holdfast.TypeSettings{Timeout: time.Millisecond, AbandonAfter: 1}}
	for id := range leastAbandoned - 1 {
		s.start(id+1, "returns")
	}
	s.abandonAll(t, leastAbandoned-1)
	watching, stopWatching := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.watchHandlers(watching, stop); close(ended) }()
	if s.fault() != nil || ctx.Err() != nil {
		t.Errorf("with %d abandoned handlers: %v, %v", leastAbandoned-1, s.fault(), ctx.Err())
	}
	s.start(leastAbandoned, "returns")
	<-ctx.Done()
	stopWatching()
	<-ended
	if _, ok := errors.AsType[*tooManyAbandonedError](context.Cause(ctx)); !ok || s.status().Fault == nil || s.status().Abandoned != leastAbandoned {
		t.Errorf("the intake ends with %v, the status is %+v", context.Cause(ctx), s.status())
	}
}
