package consumer_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// registerHandler registers a worker of another process that handles a type.
func (w *world) registerHandler(taskType string, queues ...string) holdfast.WorkerID {
	w.Helper()
	id, err := w.store.RegisterWorker(w.Context(), store.WorkerInfo{Name: "other", Concurrency: 1, Queues: queues, Types: []string{taskType}}, time.Hour)
	w.must(err)
	return id
}

// A worker passes the tickets of a type without a handler on to the type queue, if another live worker of the queue has
// the handler. Tickets of the requeue queue go to the requeue queue of the type queue. The store records each ticket
// before the broker gets it.
func TestTicketsOfOtherTypesArePassedOn(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]func(w *world) (from, to string){
		"of a main queue": func(w *world) (string, string) {
			return w.main(), w.topology.Main(holdfast.TypeQueue(queue, "report"))
		},
		"of a requeue queue": func(w *world) (string, string) {
			return w.topology.Requeue(queue), w.topology.Requeue(holdfast.TypeQueue(queue, "report"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			from, to := source(w)
			w.registerHandler("report")
			typeQueue := holdfast.TypeQueue(queue, "report")
			w.must(w.store.AddQueues(t.Context(), []string{typeQueue}))
			w.must(w.topology.Declare(t.Context(), w.broker, []string{typeQueue}))
			b := &faultyBroker{Broker: w.broker}
			ignorant := w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Broker = b })
			tickets := w.ticketed(3, "report")
			w.send(from, tickets...)
			w.eventually("the message is acked", func() bool { return b.count("acked "+from) == 1 })
			var passed []message.Ticket
			for _, body := range w.take(to) {
				m, err := message.Decode([]byte(body))
				w.must(err)
				passed = append(passed, m.Tickets...)
			}
			if !slices.Equal(passed, tickets) {
				t.Errorf("the type queue has %v, want %v", passed, tickets)
			}
			for _, ticket := range tickets {
				if task := w.task(ticket.Task); task.Parked != "" || task.Attempt != 1 || task.State != holdfast.Ready {
					t.Errorf("got %+v", task)
				}
			}
			if n := ignorant.Of(holdfast.ObservedPassedOn); n != len(tickets) {
				t.Errorf("%d tickets were observed as passed on", n)
			}
		})
	}
}

// A worker parks a task that no other live worker handles in its queue. If the type queue does not exist yet, the worker
// adds it and parks the task for a short time.
func TestTasksThatCannotBePassedOnAreParked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *world)
		parked  string
	}{
		"no other worker":      {func(*world) {}, "has no handler"},
		"of another queue":     {func(w *world) { w.registerHandler("report", "elsewhere") }, "has no handler"},
		"of another type":      {func(w *world) { w.registerHandler("letter") }, "has no handler"},
		"a worker that drains": {func(w *world) { _ = w.store.Drain(w.Context(), w.registerHandler("report")) }, "has no handler"},
		"a new type queue":     {func(w *world) { w.registerHandler("report") }, "declaration of the type queue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.ParkFor = store.LongestPark })
			c.prepare(w) // after the registration of the worker, which would add the type queue
			ticket := w.ticketed(1, "report")[0]
			w.send(w.main(), ticket)
			w.eventually("the task is parked", func() bool { return strings.Contains(w.task(ticket.Task).Parked, c.parked) })
			names, err := w.store.QueueNames(t.Context())
			if added := slices.Contains(names, holdfast.TypeQueue(queue, "report")); err != nil || added != (name == "a new type queue") {
				t.Errorf("the known queues are %q, %v", names, err)
			}
		})
	}
}

// A worker that registers adds the type queues for the types that it and other workers handle differently, in the queues
// that both take.
func TestARegistrationAddsTypeQueues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registerHandler("report")
	w.registerHandler("letter", "elsewhere")
	w.work(func(context.Context, holdfast.Task) error { return nil }, func(o *consumer.Options) { o.Queues = []string{queue} })
	want := []string{queue, holdfast.TypeQueue(queue, "report"), holdfast.TypeQueue(queue, kind)}
	w.eventually("the type queues are known", func() bool {
		names, err := w.store.QueueNames(t.Context())
		w.must(err)
		for _, name := range want {
			if !slices.Contains(names, name) {
				return false
			}
		}
		return !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, "/letter") })
	})
}
