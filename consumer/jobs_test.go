package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/effect"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func ticket(n int) message.Ticket { return message.Ticket{Task: holdfast.TaskID(n), Attempt: 1} }

func jobFor(n int) *job {
	return &job{task: &holdfast.Task{ID: holdfast.TaskID(n), Attempt: 1, State: holdfast.Running}, into: store.IntoBuffer, claimed: time.Now()}
}

func testSession(t *testing.T, o Options, began time.Time) *session {
	t.Helper()
	silent := logrus.New()
	silent.SetOutput(io.Discard)
	o.Log, o.Observer = silent, holdfast.Discard
	if o.Settings == nil {
		o.Settings = holdfast.Settings{}
	}
	return newSession(t.Context(), o, newTargets(holdfast.DefaultBreakerRules, 50, nil, nil), nil, 1, began)
}

func TestTicketsInProgressAreNotReservedTwice(t *testing.T) {
	t.Parallel()
	js := newJobs(newCapacity(1), func(*job) {}, func() {})
	fresh, inProgress := js.reserve([]message.Ticket{ticket(1), ticket(2), ticket(1)})
	if len(fresh) != 2 || len(inProgress) != 1 {
		t.Fatalf("fresh %v, in progress %v", fresh, inProgress)
	}
	js.forget(ticket(2))
	if fresh, _ = js.reserve([]message.Ticket{ticket(1), ticket(2)}); len(fresh) != 1 || fresh[0] != ticket(2) {
		t.Fatalf("after forget of task 2: fresh %v", fresh)
	}
}

func TestNoMoreHandlersThanTheLimitAndNoneAfterStop(t *testing.T) {
	t.Parallel()
	var active, most, ran atomic.Int32
	release := make(chan struct{})
	var js *jobs
	js = newJobs(newCapacity(3), func(j *job) {
		now := active.Add(1)
		for {
			seen := most.Load()
			if now <= seen || most.CompareAndSwap(seen, now) {
				break
			}
		}
		<-release
		ran.Add(1)
		active.Add(-1)
		js.finish(j)
	}, func() {})
	for n := range 10 {
		if js.add(jobFor(n+1)) != nil {
			t.Fatal("a job was refused before the stop")
		}
	}
	waiting := js.stop()
	if len(waiting) != 7 {
		t.Fatalf("%d jobs have not started, want 7", len(waiting))
	}
	if len(js.add(jobFor(99))) == 0 {
		t.Fatal("a job was accepted after the stop")
	}
	select {
	case <-js.done():
		t.Fatal("done while handlers run")
	default:
	}
	close(release)
	<-js.done()
	if ran.Load() != 3 || most.Load() > 3 {
		t.Fatalf("%d ran, %d at once; want 3 and at most 3", ran.Load(), most.Load())
	}
}

func TestCauseOf(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	policy := holdfast.DefaultPolicy()
	for _, test := range []struct {
		name  string
		ended error
		err   error
		want  holdfast.Event
	}{
		{"success", nil, nil, holdfast.EventComplete},
		{"failure", nil, boom, holdfast.EventRetry},
		{"late success counts", holdfast.ErrDraining, nil, holdfast.EventComplete},
		{"drain", holdfast.ErrDraining, context.Canceled, holdfast.EventInterrupt},
		{"drain, error hidden in text", holdfast.ErrDraining, fmt.Errorf("call: %v", context.Canceled), holdfast.EventInterrupt},
		{"drain, but permanent", holdfast.ErrDraining, holdfast.Permanent(boom), holdfast.EventGiveUp},
		{"lease lost", holdfast.ErrLeaseLost, io.EOF, holdfast.EventInterrupt},
		{"cancelled", holdfast.ErrCancelled, context.Canceled, holdfast.EventCancel},
		{"timeout", fmt.Errorf("%w: 1s", holdfast.ErrTimeout), context.DeadlineExceeded, holdfast.EventRetry},
		{"timeout, but deferred", fmt.Errorf("%w: 1s", holdfast.ErrTimeout), holdfast.Defer(time.Second, boom), holdfast.EventDefer},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if test.ended != nil {
			cancel(test.ended)
		}
		task := holdfast.Task{ID: 1, Attempt: 1, MaxAttempts: 9, State: holdfast.Running}
		move, err := holdfast.Settle(task, causeOf(ctx, test.err), time.Now(), policy)
		if err != nil || move.Event != test.want {
			t.Errorf("%s: event %s, error %v; want %s", test.name, move.Event, err, test.want)
		}
		cancel(nil)
	}
}

// A handler may return nil, return an error, panic or end its goroutine. Each time, its result is settled once and its
// executor becomes free.
func TestEveryWayToEndAHandlerIsJudged(t *testing.T) {
	t.Parallel()
	var registry Registry
	registry.Add("ok", HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
	registry.Add("fail", HandlerFunc(func(context.Context, holdfast.Task) error { return io.EOF }))
	registry.Add("panic", HandlerFunc(func(context.Context, holdfast.Task) error { panic("ouch") }))
	registry.Add("goexit", HandlerFunc(func(context.Context, holdfast.Task) error { runtime.Goexit(); return nil }))
	registry.Add("slow", HandlerFunc(func(ctx context.Context, _ holdfast.Task) error { <-ctx.Done(); return ctx.Err() }))
	settings := holdfast.Settings{Types: map[string]holdfast.TypeSettings{"slow": {Timeout: 10 * time.Millisecond}}}
	s := testSession(t, Options{Handlers: &registry, Settings: settings, Concurrency: 5, Lease: time.Hour}, time.Now())
	types := registry.Types()
	s.capacity.add(len(types))
	for i, kind := range types {
		j := jobFor(i + 1)
		j.task.Type, j.task.MaxAttempts, j.now = kind, 3, time.Now()
		s.jobs.add(j)
	}
	s.jobs.stop()
	<-s.jobs.done()
	got := map[string]holdfast.Transition{}
	for i, results := 0, s.results.take(); i < results.size(); i++ {
		got[results.jobs[i].task.Type] = results.moves[i]
	}
	for kind, want := range map[string]struct{ event, class string }{
		"ok": {"complete", ""}, "fail": {"retry", "error"}, "panic": {"retry", "panic"}, "goexit": {"retry", "error"}, "slow": {"retry", "timeout"},
	} {
		if move := got[kind]; string(move.Event) != want.event || move.Report.Class != want.class {
			t.Errorf("%s: event %q, class %q; want %q, %q", kind, move.Event, move.Report.Class, want.event, want.class)
		}
	}
	if got["panic"].Report.Stack == "" {
		t.Error("the report of a panic has no stack")
	}
	if free := s.capacity.free(); free < 5 {
		t.Errorf("capacity for %d tasks is free, want 5", free)
	}
}

// unreadable is an error whose methods end their goroutine.
type unreadable struct{ end func() }

func (u *unreadable) Error() string { u.end(); return "" }

// User code may fail in any way while an attempt ends. The attempt is then a failure with a stack, and its executor
// runs the next task.
func TestAnAttemptWhoseEndFailsIsJudged(t *testing.T) {
	t.Parallel()
	var none *unreadable
	boom := func() { panic("boom") }
	returns := func(err error) HandlerFunc { return func(context.Context, holdfast.Task) error { return err } }
	policy := func(end func()) holdfast.TypeSettings {
		return holdfast.TypeSettings{PolicyFor: func(p holdfast.Policy, _ error) holdfast.Policy { end(); return p }}
	}
	for name, c := range map[string]struct {
		handle   HandlerFunc
		settings holdfast.TypeSettings
		event    holdfast.Event // "" means EventRetry
	}{
		"nil error":           {handle: returns(none)},
		"text panics":         {handle: returns(&unreadable{boom})},
		"text exits":          {handle: returns(&unreadable{runtime.Goexit})},
		"worker fault":        {handle: returns(holdfast.WorkerFault(0, &unreadable{runtime.Goexit})), event: holdfast.EventDefer},
		"target fault":        {handle: returns(holdfast.TargetFault(&unreadable{boom}))},
		"after a timeout":     {handle: func(ctx context.Context, _ holdfast.Task) error { <-ctx.Done(); return none }, settings: holdfast.TypeSettings{Timeout: time.Millisecond}},
		"panics unreadably":   {handle: func(context.Context, holdfast.Task) error { panic(&unreadable{runtime.Goexit}) }},
		"exits":               {handle: func(context.Context, holdfast.Task) error { runtime.Goexit(); return nil }},
		"exits in a deferred": {handle: func(context.Context, holdfast.Task) error { defer runtime.Goexit(); panic("boom") }},
		"policy panics":       {handle: returns(io.EOF), settings: policy(boom)},
		"policy exits":        {handle: returns(io.EOF), settings: policy(runtime.Goexit)},
		"policy after exit":   {handle: func(context.Context, holdfast.Task) error { runtime.Goexit(); return nil }, settings: policy(runtime.Goexit)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			var registry Registry
			registry.Add("bad", c.handle)
			registry.Add("next", HandlerFunc(func(context.Context, holdfast.Task) error { close(next); return nil }))
			if c.settings.PolicyFor != nil {
				c.settings.Policy = holdfast.DefaultPolicy()
			}
			s := testSession(t, Options{
				Handlers: &registry, Concurrency: 1, Lease: time.Hour, Settings: holdfast.Settings{Types: map[string]holdfast.TypeSettings{"bad": c.settings}},
			}, time.Now())
			s.capacity.add(2)
			for i, kind := range []string{"bad", "next"} {
				j := jobFor(i + 1)
				j.task.Type, j.task.MaxAttempts, j.now = kind, 3, time.Now()
				s.jobs.add(j)
			}
			select {
			case <-next:
			case <-time.After(slow.Patience()):
				t.Fatal("the executor runs no further task")
			}
			s.jobs.stop()
			<-s.jobs.done()
			results := s.results.take()
			if results.size() != 2 {
				t.Fatalf("%d results, want 2", results.size())
			}
			for i, j := range results.jobs {
				move := results.moves[i]
				switch {
				case j.task.Type == "next":
					if move.Event != holdfast.EventComplete {
						t.Errorf("the next task: %+v", move)
					}
				case move.Event != cmp.Or(c.event, holdfast.EventRetry) || !strings.Contains(move.Report.Stack, "jobs_test.go") || move.Report.Error == "":
					t.Errorf("event %s, class %s, error %q, stack %s", move.Event, move.Report.Class, move.Report.Error, move.Report.Stack)
				}
			}
		})
	}
}

// An attempt does not begin if its deadline passed while the task waited. A task that became due after its deadline
// still gets its attempt.
func TestNoAttemptBeginsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	var called sync.Map
	var registry Registry
	registry.Add("x", HandlerFunc(func(_ context.Context, task holdfast.Task) error { called.Store(task.ID, true); return nil }))
	policy := holdfast.DefaultPolicy()
	policy.Deadline = time.Minute
	s := testSession(t, Options{
		Handlers: &registry, Concurrency: 3, Lease: time.Hour, Settings: holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: policy}},
	}, time.Now())
	due := map[holdfast.TaskID]time.Duration{1: 0, 2: 2 * time.Minute, 3: 0}
	for id, after := range due {
		j := jobFor(int(id))
		j.task.Type, j.now = "x", time.Now()
		j.task.CreatedAt = j.now.Add(-time.Hour)
		if id == 3 {
			j.task.CreatedAt = j.now.Add(-time.Second)
		}
		j.task.NextRunAt, j.task.Failures = j.task.CreatedAt.Add(after), 2
		s.capacity.add(1)
		s.jobs.add(j)
	}
	s.jobs.stop()
	<-s.jobs.done()
	results := s.results.take()
	if results.size() != len(due) {
		t.Errorf("%d results, want %d", results.size(), len(due))
	}
	for i, j := range results.jobs {
		move := results.moves[i]
		want := holdfast.EventComplete
		if j.task.ID == 1 {
			want = holdfast.EventGiveUp
		}
		if _, ran := called.Load(j.task.ID); ran != (want == holdfast.EventComplete) || move.Event != want || move.Failures != 2 {
			t.Errorf("task %s: the handler was called: %t; the transition is %+v", j.task.ID, ran, move)
		}
	}
}

// atMostOnce are settings for types that run at most once.
func atMostOnce() holdfast.Settings {
	policy := holdfast.DefaultPolicy()
	policy.AtMostOnce = true
	return holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: policy}}
}

// If the type runs at most once, the worker does not call the handler of a task whose counters prove an earlier start.
// It has no buffer, because a janitor of another process hands buffered tasks back without a count.
func TestATaskThatHasStartedDoesNotStartAgain(t *testing.T) {
	t.Parallel()
	var called sync.Map
	var registry Registry
	registry.Add("x", HandlerFunc(func(_ context.Context, task holdfast.Task) error { called.Store(task.ID, true); return nil }))
	s := testSession(t, Options{Handlers: &registry, Concurrency: 4, Lease: time.Hour, Settings: atMostOnce()}, time.Now())
	for id, before := range []holdfast.Task{{}, {Failures: 1}, {Crashes: 1}, {Deferrals: 1}} {
		j := jobFor(id + 1)
		j.task.Type, j.now = "x", time.Now()
		j.task.Failures, j.task.Crashes, j.task.Deferrals = before.Failures, before.Crashes, before.Deferrals
		s.capacity.add(1)
		s.jobs.add(j)
	}
	s.jobs.stop()
	<-s.jobs.done()
	results := s.results.take()
	if results.size() != 4 {
		t.Errorf("%d results, want 4", results.size())
	}
	for i, j := range results.jobs {
		move, want := results.moves[i], holdfast.EventGiveUp
		if j.task.ID == 1 {
			want = holdfast.EventComplete
		}
		if _, ran := called.Load(j.task.ID); ran != (j.task.ID == 1) || move.Event != want || move.Failures != j.task.Failures {
			t.Errorf("task %s: the handler was called: %t; the transition is %+v", j.task.ID, ran, move)
		}
	}
	if s.capacity.mean = time.Millisecond; s.capacity.free() != 4 || s.capacity.canExceed(1) {
		t.Errorf("the worker takes %d tasks, want 4", s.capacity.free())
	}
	if most := s.mostCrashes("x"); most != store.AnyCrashes {
		t.Errorf("a task with more than %d crashes waits to run exclusively", most)
	}
}

// At the end of a worker, a task that runs at most once is given up if its handler has been called. It is handed back if
// it still waits for an executor, or if an executor has taken it and not called the handler yet.
func TestTheEndOfAWorkerGivesUpOnlyStartedTasks(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	var registry Registry
	registry.Add("x", HandlerFunc(func(context.Context, holdfast.Task) error { close(started); <-release; return nil }))
	s := testSession(t, Options{Handlers: &registry, Concurrency: 1, Lease: time.Hour, Settings: atMostOnce()}, time.Now())
	list := []*job{jobFor(1), jobFor(2), jobFor(3)}
	for _, j := range list {
		j.task.Type, j.now = "x", time.Now()
	}
	s.capacity.add(3)
	s.jobs.add(list[:2]...)
	<-started
	s.handBack(s.jobs.stop())
	s.jobs.mu.Lock()
	s.jobs.inProgress[list[2].ticket()], list[2].phase = list[2], running // an executor has taken it
	s.jobs.mu.Unlock()
	for _, j := range s.jobs.takeRunning() {
		s.interrupt(j, holdfast.ErrDraining)
	}
	if s.jobs.bind(list[2], t.Context(), nil) {
		t.Error("a handler is called although its task was handed back")
	}
	close(release)
	<-s.jobs.done()
	got := map[holdfast.TaskID]holdfast.Event{}
	for i, results := 0, s.results.take(); i < results.size(); i++ {
		got[results.jobs[i].task.ID] = results.moves[i].Event
	}
	if want := map[holdfast.TaskID]holdfast.Event{1: holdfast.EventGiveUp, 2: holdfast.EventInterrupt, 3: holdfast.EventInterrupt}; !maps.Equal(got, want) {
		t.Errorf("the results are %v, want %v", got, want)
	}
}

func TestAnExpiredLeaseStartsNoHandler(t *testing.T) {
	t.Parallel()
	called := false
	var registry Registry
	registry.Add("x", HandlerFunc(func(context.Context, holdfast.Task) error { called = true; return nil }))
	s := testSession(t, Options{Handlers: &registry, Concurrency: 1, Lease: time.Second, Settings: atMostOnce()}, time.Now().Add(-time.Second))
	j := jobFor(1)
	j.task.Type, j.now = "x", time.Now()
	s.capacity.add(1)
	s.jobs.add(j)
	s.jobs.stop()
	<-s.jobs.done()
	if called {
		t.Fatal("the handler was called after the lease expired")
	}
	if r := s.results.take(); r.size() != 1 || r.moves[0].Event != holdfast.EventInterrupt {
		t.Fatalf("results %+v, want one interrupt", r)
	}
}

// endedSpan is the span of an attempt.
type endedSpan struct{ outcomes []holdfast.Event }

func (s *endedSpan) Trace() string                    { return "" }
func (s *endedSpan) End(outcome *holdfast.Transition) { s.outcomes = append(s.outcomes, outcome.Event) }
func (s *endedSpan) Enqueue(context.Context, []holdfast.NewTask) func(holdfast.TaskID, error) {
	return nil
}

func (s *endedSpan) Attempt(ctx context.Context, _ *holdfast.Task) (context.Context, holdfast.AttemptSpan) {
	return ctx, s
}

// A worker may hand a task back just before its handler is called. The span then ends at once, because the task is
// settled already.
func TestTheSpanOfATaskThatWasHandedBack(t *testing.T) {
	t.Parallel()
	span := &endedSpan{}
	s := &session{o: Options{Tracer: span}, jobs: newJobs(newCapacity(1), nil, func() {})}
	j := &job{session: s, task: new(holdfast.Task)}
	s.trace(t.Context(), j)
	if j.span == nil || len(span.outcomes) > 0 {
		t.Errorf("a running job has the span %v with the outcomes %q", j.span, span.outcomes)
	}
	late := &job{session: s, task: new(holdfast.Task), phase: finished}
	s.trace(t.Context(), late)
	if late.span != nil || !slices.Equal(span.outcomes, []holdfast.Event{holdfast.EventInterrupt}) {
		t.Errorf("a finished job has the span %v with the outcomes %q", late.span, span.outcomes)
	}
}

// accepting is a host of an attempt, with a store that accepts its success.
type accepting struct{ effect.Host }

func (accepting) Store() effect.Store                   { return acceptingStore{} }
func (accepting) Success() (holdfast.Transition, error) { return holdfast.Transition{}, nil }

type acceptingStore struct{ effect.Store }

func (acceptingStore) ApplyTx(context.Context, store.Tx, holdfast.Transition) (bool, error) {
	return true, nil
}

// After CompleteTx, the store refuses the result of the attempt, because the task is done already.
func TestTheOutcomeOfCompleteTx(t *testing.T) {
	t.Parallel()
	for _, completed := range []bool{false, true} {
		span := &endedSpan{}
		j := &job{span: span}
		if completed {
			ctx := j.effects.Begin(t.Context(), accepting{})
			a, err := effect.From(ctx)
			if err == nil {
				err = a.CompleteTx(ctx, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		move := holdfast.Transition{Event: holdfast.EventRetry, Report: holdfast.Report{Class: uncommittedClass}}
		(&session{}).endSpan(j, &move)
		want := map[bool]holdfast.Event{false: holdfast.EventRetry, true: holdfast.EventComplete}[completed]
		if !slices.Equal(span.outcomes, []holdfast.Event{want}) || move.Event != holdfast.EventRetry {
			t.Errorf("completed %t: the outcomes are %q", completed, span.outcomes)
		}
	}
}
