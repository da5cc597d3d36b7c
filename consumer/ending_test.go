package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// At the end of a drain, the worker stops even if handlers ignore their contexts. It hands their tasks back, and the
// tasks use up no attempt.
func TestADrainEndsAlsoForAHandlerThatIgnoresIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release, started := make(chan struct{}), make(chan struct{}, 9)
	var polite atomic.Value
	list := w.ticketed(3, kind)
	worker := w.work(func(ctx context.Context, task holdfast.Task) error {
		started <- struct{}{}
		switch task.ID {
		case list[0].Task: // returns when its context ends
			<-ctx.Done()
			polite.Store(context.Cause(ctx))
			return ctx.Err()
		case list[1].Task: // ignores its context
			<-release
			return nil
		}
		return nil
	}, func(o *consumer.Options) { o.Drain = 100 * time.Millisecond })
	w.send(w.main(), list...)
	for range list {
		await(w, "everything runs", started)
	}
	w.awaitState(holdfast.Done, list[2])
	worker.stop() // returns although a handler still runs
	for _, ticket := range list[:2] {
		task := w.task(ticket.Task)
		if task.State != holdfast.Ready || task.Attempt != 2 || task.Failures != 0 || task.Crashes != 0 || task.Deferrals != 0 {
			t.Errorf("got %+v", task)
		}
		attempts, err := w.store.Attempts(t.Context(), ticket.Task)
		if err != nil || len(attempts) != 1 || attempts[0].Event != holdfast.EventInterrupt || attempts[0].Class != "drain" {
			t.Errorf("kept are %+v, %v", attempts, err)
		}
	}
	if cause, _ := polite.Load().(error); !errors.Is(cause, holdfast.ErrDraining) {
		t.Errorf("the cause of the handler's context is %v", cause)
	}
	if r := w.workers()[worker.worker]; r.State != store.WorkerStopped {
		t.Errorf("the worker is %+v", r)
	}
	close(release)
}

// A worker that is stopped while a handler runs is listed as draining.
func TestAStopIsListedAsADrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release, started := make(chan struct{}), make(chan struct{}, 1)
	worker := w.work(func(context.Context, holdfast.Task) error {
		started <- struct{}{}
		<-release
		return nil
	}, func(o *consumer.Options) { o.Drain = slow.Patience() })
	list := w.enqueue(1)
	await(w, "the handler runs", started)
	var stopped sync.WaitGroup
	stopped.Go(worker.stop)
	w.eventually("the worker is listed as draining", func() bool {
		r := w.workers()[worker.worker]
		return r.Draining && r.State == store.WorkerLive
	})
	close(release)
	stopped.Wait()
	w.awaitState(holdfast.Done, list...)
}

// The worker logs a task that becomes dead, with the cause.
func TestADeadTaskIsLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log, hook := logtest.NewNullLogger()
	w.work(func(context.Context, holdfast.Task) error {
		return holdfast.Permanent(errors.New("no such account"))
	}, func(o *consumer.Options) { o.Log = log })
	list := w.enqueue(1)
	w.awaitState(holdfast.Dead, list...)
	var line *logrus.Entry
	w.eventually("the dead task is logged", func() bool {
		entries := hook.AllEntries()
		i := slices.IndexFunc(entries, func(e *logrus.Entry) bool { return e.Message == "task is dead" })
		if i >= 0 {
			line = entries[i]
		}
		return i >= 0
	})
	for field, want := range map[string]any{
		"task": list[0].Task, "type": kind, "queue": queue, "attempts": 1, "failures": 1, "cause": "no such account",
	} {
		if line.Level != logrus.WarnLevel || line.Data[field] != want {
			t.Errorf("field %s is %v, want %v, at level %s", field, line.Data[field], want, line.Level)
		}
	}
}

// A drain waits for handlers and takes no more tasks.
func TestADrainLetsHandlersFinish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release, started := make(chan struct{}), make(chan struct{}, 99)
	worker := w.work(func(ctx context.Context, _ holdfast.Task) error {
		started <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}, func(o *consumer.Options) { o.Concurrency = 2 })
	list := w.enqueue(2)
	for range list {
		await(w, "everything runs", started)
	}
	w.must(w.store.Drain(t.Context(), worker.worker))
	w.eventually("the worker has no subscriptions", func() bool {
		depths, err := w.broker.Depths(t.Context(), []string{w.main(), w.requeue()})
		return err == nil && depths[w.main()].Consumers == 0 && depths[w.requeue()].Consumers == 0
	})
	later := w.enqueue(1)
	close(release)
	w.awaitState(holdfast.Done, list...)
	w.eventually("the worker has ended", func() bool { return w.workers()[worker.worker].State == store.WorkerStopped })
	if task := w.task(later[0].Task); task.State != holdfast.Ready || task.Attempt != 1 {
		t.Errorf("got %+v", task)
	}
}

// A task of a type without a handler is parked with the reason. The park uses up no attempt. Then another worker with a
// handler runs the task.
func TestATaskOfAnUnknownTypeWaitsForAWorkerThatKnowsIt(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{"parked": nil, "rescued, if the store does not park it": errFault} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			b := &faultyBroker{Broker: w.broker}
			s := &faultyStore{Store: w.store, park: func(next func() error) error {
				if fault != nil {
					return fault
				}
				return next()
			}}
			ignorant := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) {
				o.Store, o.Broker, o.Name, o.ParkFor = s, b, "ignorant", 300*time.Millisecond
			})
			list := w.ticketed(2, "report")
			known := w.ticketed(1, kind)
			w.send(w.main(), append(list, known...)...)
			w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
			w.awaitState(holdfast.Done, known...)
			if fault == nil {
				for _, ticket := range list {
					task := w.task(ticket.Task)
					if task.State != holdfast.Ready || task.Attempt != 1 || task.Failures != 0 || task.Deferrals != 0 || !strings.Contains(task.Parked, "ignorant") {
						t.Errorf("got %+v", task)
					}
				}
				if n := ignorant.Of(holdfast.ObservedParked); n != 2 {
					t.Errorf("%d observed as parked", n)
				}
			}
			ignorant.stop()
			if rescued := w.take(w.topology.Rescue()); (len(rescued) == 1) != (fault != nil) {
				t.Errorf("the rescue queue has %q", rescued)
			} else if fault != nil {
				w.sendRaw(w.topology.Rescue(), []byte(rescued[0]))
			}
			var executed executions
			w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) {
				o.Handlers = &consumer.Registry{}
				o.Handlers.Add("report", consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error { executed.note(task); return nil }))
			})
			w.janitor()
			w.awaitState(holdfast.Done, list...)
			executed.checkOnce(t, list)
			if task := w.task(list[0].Task); task.Attempt != 1 || task.Parked != "" {
				t.Errorf("got %+v", task)
			}
		})
	}
}

func TestATimeoutIsAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var cause atomic.Value
	w.work(func(ctx context.Context, _ holdfast.Task) error {
		<-ctx.Done()
		cause.Store(context.Cause(ctx))
		return ctx.Err()
	}, func(o *consumer.Options) { o.Settings = settings(50 * time.Millisecond) })
	ticket := w.enqueue(1)[0]
	w.awaitState(holdfast.Ready, ticket)
	w.eventually("the failure is written", func() bool { return w.task(ticket.Task).Attempt == 2 })
	if task := w.task(ticket.Task); task.Failures != 1 || task.Crashes != 0 || !strings.Contains(task.LastError, "50ms") {
		t.Errorf("got %+v", task)
	}
	attempts, err := w.store.Attempts(t.Context(), ticket.Task)
	if err != nil || len(attempts) != 1 || attempts[0].Class != "timeout" || attempts[0].Event != holdfast.EventRetry {
		t.Errorf("kept are %+v, %v", attempts, err)
	}
	if got, _ := cause.Load().(error); !errors.Is(got, holdfast.ErrTimeout) {
		t.Errorf("the cause of the handler's context is %v", got)
	}
}

// If a process cannot renew its lease, or is fenced, it cancels its handlers and registers again as a new worker. It
// charges nothing to their tasks. If it was fenced, the janitor hands its tasks back and charges a crash. On a slow
// machine the new worker may lose its lease, too, and then the tasks have more attempts.
func TestAWorkerThatLosesItsLeaseStartsOver(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"it cannot renew": false, "it was fenced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var away atomic.Bool
			s := &faultyStore{Store: w.store, renew: func(next func() (store.RenewResult, error)) (store.RenewResult, error) {
				if away.Load() {
					return store.RenewResult{}, errFault
				}
				return next()
			}}
			causes := make(chan error, 99)
			var executed executions
			worker := w.work(func(ctx context.Context, task holdfast.Task) error {
				executed.note(task)
				if task.Attempt > 1 {
					return nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}, func(o *consumer.Options) { o.Store, o.Lease = s, slow.Times(2*time.Second) })
			list := w.enqueue(2)
			w.eventually("everything runs", func() bool { return executed.total() >= 2 })
			if fenced {
				w.sql("update holdfast.workers set state = 'dead', ended_at = now() where id = $1", int64(worker.worker))
			} else {
				away.Store(true)
			}
			for range list {
				if cause := await(w, "the handlers are cancelled", causes); !errors.Is(cause, holdfast.ErrLeaseLost) {
					t.Errorf("the cause of a handler's context is %v", cause)
				}
			}
			away.Store(false)
			w.eventually("the process registers again", func() bool { id := worker.Status().Worker; return id != 0 && id != worker.worker })
			w.janitor()
			w.awaitState(holdfast.Done, list...)
			crashes := 0
			if fenced {
				crashes = 1
			}
			lost := worker.Of(holdfast.ObservedLeaseLost)
			if lost < 1 {
				t.Error("no lost lease observed")
			}
			for _, ticket := range list {
				task := w.task(ticket.Task)
				once := task.Attempt == 2 && task.Crashes == crashes
				if task.Attempt < 2 || task.Failures != 0 || task.Crashes < crashes || lost == 1 && !once {
					t.Errorf("after %d lost leases, got %+v", lost, task)
				}
			}
		})
	}
}

// once are the settings of a worker whose tasks run at most once.
func once() holdfast.Settings {
	s := settings(0)
	s.Defaults.Policy.AtMostOnce = true
	return s
}

// A janitor that does not know that a type runs at most once makes its task ready after a crash. The next worker knows
// it, and does not call the handler. After a retry by a person it does.
func TestAtMostOnceWithoutTheHelpOfTheJanitor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mute atomic.Bool // the store gets no message from the first worker
	s := &faultyStore{
		Store: w.store,
		renew: func(next func() (store.RenewResult, error)) (store.RenewResult, error) {
			if mute.Load() {
				return store.RenewResult{}, errFault
			}
			return next()
		},
		apply: func(next func() ([]bool, error)) ([]bool, error) {
			if mute.Load() {
				return nil, errFault
			}
			return next()
		},
	}
	var executed executions
	release := make(chan struct{})
	first := w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		<-release
		return nil
	}, func(o *consumer.Options) { o.Store, o.Settings = s, once() })
	list := w.enqueue(1)
	w.eventually("the handler runs", func() bool { return executed.total() == 1 })
	mute.Store(true)
	w.sql("update holdfast.workers set state = 'dead', ended_at = now() where id = $1", int64(first.worker))
	w.janitor() // with the default settings
	w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		return nil
	}, func(o *consumer.Options) { o.Settings = once() })
	w.awaitState(holdfast.Dead, list...)
	if task := w.task(list[0].Task); executed.total() != 1 || task.Attempt != 2 || task.Crashes != 1 || task.LastError != "an earlier attempt had started, and its type runs at most once" {
		t.Errorf("after %d executions, got %+v", executed.total(), task)
	}
	close(release)
	mute.Store(false)
	first.stop()
	requeue, err := holdfast.Settle(w.task(list[0].Task), holdfast.Requested(holdfast.EventRequeue), time.Now(), holdfast.DefaultPolicy())
	w.must(err)
	_, err = w.store.Apply(t.Context(), []holdfast.Transition{requeue})
	w.must(err)
	w.awaitState(holdfast.Done, list...)
	if executed.total() != 2 {
		t.Errorf("%d executions after the retry, want 2", executed.total())
	}
}

// A worker that is stopped or fenced while a handler runs gives up a task that runs at most once.
func TestAnInterruptedTaskThatRunsAtMostOnceIsDead(t *testing.T) {
	t.Parallel()
	for name, fenced := range map[string]bool{"the lease of its worker is lost": true, "its worker stops": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var executed executions
			worker := w.work(func(ctx context.Context, task holdfast.Task) error {
				executed.note(task)
				<-ctx.Done()
				return ctx.Err()
			}, func(o *consumer.Options) { o.Settings, o.Drain = once(), time.Millisecond })
			list := w.enqueue(1)
			w.eventually("the handler runs", func() bool { return executed.total() == 1 })
			want := holdfast.ErrDraining
			if fenced {
				want = holdfast.ErrLeaseLost
				w.sql("update holdfast.workers set state = 'dead', ended_at = now() where id = $1", int64(worker.worker))
			} else {
				worker.stop()
			}
			w.awaitState(holdfast.Dead, list...)
			text := "the attempt had started, and its type runs at most once; it was interrupted: " + want.Error()
			if task := w.task(list[0].Task); task.Attempt != 1 || task.Crashes != 0 || task.LastError != text {
				t.Errorf("got %+v", task)
			}
		})
	}
}

// An abandoned handler outlives its worker. When the process registers again as a new worker, it still counts the
// handler, so that at most ten of them accumulate.
func TestAbandonedHandlersAreCountedAcrossWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(func(_ context.Context, task holdfast.Task) error {
		if task.Attempt == 1 {
			<-release
		}
		return nil
	}))
	abandoning := settings(time.Millisecond)
	abandoning.Defaults.AbandonAfter = time.Millisecond
	o := consumer.Options{
		Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Settings: abandoning, Concurrency: 10,
		Lease: slow.Times(5 * time.Second),
	}
	c, err := consumer.New(o)
	w.must(err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	abandoned := func(n int) func() bool { return func() bool { return c.Status().Abandoned == n } }

	w.enqueue(6)
	w.eventually("6 handlers are abandoned", abandoned(6))
	first := c.Status().Worker
	w.sql("update holdfast.workers set state = 'dead', ended_at = now() where id = $1", int64(first))
	w.eventually("the process registers again", func() bool { id := c.Status().Worker; return id != 0 && id != first })
	if got := c.Status().Abandoned; got != 6 {
		t.Errorf("the new worker counts %d abandoned handlers, want 6", got)
	}
	w.enqueue(4)
	if err := await(w, "the worker ends", ended); err == nil || !strings.Contains(err.Error(), "10 abandoned handlers still run") {
		t.Errorf("the worker ends with %v", err)
	}
}

// If an operator cancels a task, the next renewal cancels its handler.
func TestACancelReachesTheHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	causes, started := make(chan error, 1), make(chan struct{}, 1)
	w.work(func(ctx context.Context, _ holdfast.Task) error {
		started <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}, func(o *consumer.Options) { o.Lease = steadyLease() })
	ticket := w.enqueue(1)[0]
	await(w, "the task runs", started)
	move, err := holdfast.Settle(w.task(ticket.Task), holdfast.Requested(holdfast.EventCancel), time.Now(), holdfast.DefaultPolicy())
	w.must(err)
	accepted, err := w.store.Apply(t.Context(), []holdfast.Transition{move})
	if err != nil || !accepted[0] {
		t.Fatalf("the cancel was refused: %v", err)
	}
	if cause := await(w, "the handler is cancelled", causes); !errors.Is(cause, holdfast.ErrCancelled) {
		t.Errorf("the cause of the handler's context is %v", cause)
	}
	w.awaitState(holdfast.Cancelled, ticket)
}

// A claim is committed, its answer is lost, and the store is unavailable until the lease is lost. The worker never
// starts these tasks. It hands them back before it ends, so that they are charged with no crash.
func TestAnOutageChargesNoCrashToTasksThatNeverStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log, hook := logtest.NewNullLogger()
	lost := func() bool {
		return slices.ContainsFunc(hook.AllEntries(), func(e *logrus.Entry) bool { return e.Message == "lease lost" })
	}
	var ready, away atomic.Bool
	s := &faultyStore{
		Store: w.store,
		claim: func(next func() ([]store.Claim, error)) ([]store.Claim, error) {
			if away.Load() {
				return nil, errFault
			}
			claims, err := next()
			if err == nil && ready.CompareAndSwap(true, false) {
				away.Store(true)
				return nil, errFault
			}
			return claims, err
		},
		renew: func(next func() (store.RenewResult, error)) (store.RenewResult, error) {
			// When the lease is lost, the store is available again for the last renewal of the worker.
			if away.Load() && !lost() {
				return store.RenewResult{}, errFault
			}
			if result, err := next(); err != nil {
				return result, err
			} else {
				away.Store(false)
				return result, nil
			}
		},
	}
	var ran executions
	k := w.work(func(_ context.Context, task holdfast.Task) error {
		ran.note(task)
		return nil
	}, func(o *consumer.Options) { o.Store, o.Lease, o.Log = s, steadyLease(), log })
	list := w.ticketed(5, kind)
	ready.Store(true)
	w.send(w.main(), list...)
	w.eventually("the process registers again", func() bool { id := k.Status().Worker; return id != 0 && id != k.worker })
	w.janitor()
	w.awaitState(holdfast.Done, list...)
	ran.checkOnce(t, list)
	for _, ticket := range list {
		if task := w.task(ticket.Task); task.Crashes != 0 || task.Failures != 0 || task.Attempt != 2 {
			t.Errorf("got %+v", task)
		}
	}
}
