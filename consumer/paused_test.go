package consumer_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var operator = store.Actor{Name: "anna", Surface: store.CommandLine}

func (w *world) pause(s store.Subject) {
	w.Helper()
	_, err := w.store.Pause(w.Context(), operator, store.PauseFor(s, 0))
	w.must(err)
}

func (w *world) resume(s store.Subject) {
	w.Helper()
	_, err := w.store.Resume(w.Context(), operator, s)
	w.must(err)
}

// The tickets of a paused queue stay in their AMQP queue, even if a worker starts during the pause. Running handlers
// continue.
func TestAPausedQueueKeepsItsTickets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	var executed executions
	started, release := make(chan holdfast.TaskID, 9), make(chan struct{})
	handle := func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		started <- task.ID
		<-release
		return nil
	}
	first := w.work(handle, nil)
	before := w.enqueue(1)
	await(w, "the first task runs", started)

	w.pause(store.Subject{Queue: queue})
	after := w.enqueue(5)
	w.eventually("the worker has no subscription", func() bool { return len(first.Status().Paused) == 2 && len(first.Status().Consuming) == 0 })
	if status := first.Status(); len(status.Waiting) > 0 {
		t.Errorf("a pause counts as trouble: %v", status.Waiting)
	}
	var handlers consumer.Registry
	handlers.Add(kind, consumer.HandlerFunc(handle))
	second, err := consumer.New(consumer.Options{
		Store: w.store, Broker: w.broker, Topology: w.topology, Handlers: &handlers, Settings: settings(0), Name: "second",
	})
	w.must(err)
	stop := w.background(second.Run)
	w.eventually("the second worker has no subscription", func() bool { return len(second.Status().Paused) == 2 })
	close(release)
	w.awaitState(holdfast.Done, before...)
	for _, ticket := range after {
		if task := w.task(ticket.Task); task.State != holdfast.Ready || task.Attempt != 1 {
			t.Errorf("task %s of the paused queue is %s at attempt %d", task.ID, task.State, task.Attempt)
		}
	}
	w.resume(store.Subject{Queue: queue})
	w.awaitState(holdfast.Done, after...)
	executed.checkOnce(t, append(before, after...))
	stop()
}

// A task of a paused type is blocked, and later tasks in the same queue run. If the store does not block the task, its
// ticket goes to the rescue queue before it is acked.
func TestAPausedTypeBlocksItsTasksOnly(t *testing.T) {
	t.Parallel()
	for name, failures := range map[string]int64{"": 0, "the store does not answer": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.janitor()
			var executed executions
			var calls atomic.Int64
			s := &faultyStore{Store: w.store, block: func(next func() error) error {
				if calls.Add(1) <= failures {
					return errFault
				}
				return next()
			}}
			worker := w.work(func(_ context.Context, task holdfast.Task) error {
				executed.note(task)
				return nil
			}, func(o *consumer.Options) {
				o.Store = s
				o.Handlers.Add("free", consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
			})
			w.pause(store.Subject{Type: kind})
			paused, free := w.ticketed(3, kind), w.ticketed(2, "free")
			w.send(w.main(), append(append([]message.Ticket{}, paused...), free...)...)
			w.awaitState(holdfast.Done, free...)
			w.eventually("the tasks are blocked", func() bool {
				gates, err := w.store.Gates(t.Context())
				w.must(err)
				return len(gates) == 1 && gates[0].Blocked == len(paused)
			})
			w.eventually("the blocked tasks are observed", func() bool { return worker.Of(holdfast.ObservedBlocked) == len(paused) })
			if n := executed.total(); n > 0 {
				t.Errorf("%d handlers of the paused type ran", n)
			}
			w.resume(store.Subject{Type: kind})
			w.awaitState(holdfast.Done, paused...)
			executed.checkOnce(t, paused)
		})
	}
}

// If the store refuses to block or park one task, only the ticket of that task goes to the rescue queue. The other
// tasks wait in the store.
func TestATaskThatTheStoreRefusesDelaysNoOther(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		kind   string
		waits  func(w *world, n int) bool
		counts holdfast.ObservationKind
	}{
		{"block", kind, func(w *world, n int) bool {
			gates, err := w.store.Gates(w.Context())
			w.must(err)
			return len(gates) == 1 && gates[0].Blocked == n
		}, holdfast.ObservedBlocked},
		{"park", "unknown", func(*world, int) bool { return true }, holdfast.ObservedParked},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tickets := w.ticketed(7, test.kind)
			s := &faultyStore{Store: w.store, refused: []holdfast.TaskID{tickets[4].Task}}
			worker := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Store, o.Concurrency = s, 10 })
			w.pause(store.Subject{Type: kind})
			w.send(w.main(), tickets...)
			w.eventually("the other tasks wait in the store", func() bool { return worker.Of(test.counts) == len(tickets)-1 && test.waits(w, len(tickets)-1) })
			want := string(message.Message{Tickets: tickets[4:5]}.Encode())
			if rescued := w.takeOne(w.topology.Rescue()); rescued != want { // the worker may publish it after it has counted the others
				t.Errorf("the rescue queue has %q, want %q", rescued, want)
			}
			if more := w.take(w.topology.Rescue()); len(more) > 0 {
				t.Errorf("the rescue queue also has %q", more)
			}
		})
	}
}

// If the deadline of a blocked task passes, the task is dead when its gate opens, without an attempt. If a person then
// retries it, it gets an attempt.
func TestADeadlinePassesWhileATaskIsBlocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	var executed executions
	policy := holdfast.DefaultPolicy()
	policy.Deadline = time.Millisecond
	w.pause(store.Subject{Type: kind})
	w.work(func(_ context.Context, task holdfast.Task) error {
		executed.note(task)
		return nil
	}, func(o *consumer.Options) {
		o.Settings = holdfast.Settings{Defaults: holdfast.TypeSettings{Policy: policy}}
	})
	tickets := w.enqueue(2)
	w.eventually("the tasks are blocked", func() bool {
		gates, err := w.store.Gates(t.Context())
		w.must(err)
		return gates[0].Blocked == len(tickets)
	})
	w.resume(store.Subject{Type: kind})
	w.awaitState(holdfast.Dead, tickets...)
	dead := w.task(tickets[0].Task)
	if executed.total() > 0 || dead.Attempt != 1 || dead.Failures+dead.Crashes+dead.Deferrals > 0 || dead.LastError != "the deadline passed before the attempt began" {
		t.Errorf("%d handlers ran, and the task is %+v", executed.total(), dead)
	}
	retry, err := holdfast.Settle(dead, holdfast.Requested(holdfast.EventRequeue), time.Time{}, policy)
	w.must(err)
	if accepted, err := w.store.Apply(t.Context(), []holdfast.Transition{retry}); err != nil || !accepted[0] {
		t.Fatal(accepted, err)
	}
	w.awaitState(holdfast.Done, tickets[0])
}

// A pause with an end time ends without a call of Resume.
func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.janitor()
	w.work(func(context.Context, holdfast.Task) error { return nil }, nil)
	for _, s := range []store.Subject{{Type: kind}, {Queue: queue}} {
		if _, err := w.store.Pause(t.Context(), operator, store.PauseFor(s, 300*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitState(holdfast.Done, w.enqueue(3)...)
}

// A pause does not interrupt pages that the worker has taken: their manifests are published, and their messages acked.
func TestAPauseLetsPagesFinish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var confirms, renewals atomic.Int64
	b := &faultyBroker{Broker: w.broker, publish: func(_ broker.Message, next func() broker.Outcome) broker.Outcome {
		if confirms.Load() == 0 {
			return broker.Unknown
		}
		return next()
	}}
	s := &faultyStore{Store: w.store, renew: func(next func() (store.RenewResult, error)) (store.RenewResult, error) {
		defer renewals.Add(1)
		return next()
	}}
	worker := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Broker, o.Store = b, s })
	w.awaitState(holdfast.Done, w.enqueue(1)...)
	w.pause(store.Subject{Queue: queue})
	paused := renewals.Load() + 2 // the first renewal may have begun before the pause
	w.eventually("the worker knows the pause", func() bool { return renewals.Load() >= paused })
	confirms.Store(1)
	w.eventually("the message is acked", func() bool { return b.count("acked "+w.main()) == 1 })
	w.eventually("the subscription has ended", func() bool { return len(worker.Status().Paused) == 2 })
}
