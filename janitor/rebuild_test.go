package janitor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// stepFailer fails one of the calls that Rebuild makes, before or after the call has taken effect.
type stepFailer struct {
	broker.Broker
	store  queueStore
	failAt int  // the number of calls that succeed before one fails
	after  bool // the failing call takes effect

	calls    []string
	declared []string
}

func (b *stepFailer) call(name string, do func() error) error {
	b.calls = append(b.calls, name)
	b.failAt--
	if b.failAt == -1 && !b.after {
		return errFault
	}
	err := do()
	if b.failAt == -1 {
		return errFault
	}
	return err
}

func (b *stepFailer) QueueNames(ctx context.Context) (queues []string, err error) {
	err = b.call("QueueNames", func() error { queues, err = b.store.QueueNames(ctx); return err })
	return queues, err
}

func (b *stepFailer) UnticketQueue(ctx context.Context, queue string) (n int, err error) {
	err = b.call("UnticketQueue "+queue, func() error { n, err = b.store.UnticketQueue(ctx, queue); return err })
	return n, err
}

func (b *stepFailer) Missing(ctx context.Context, objects []broker.Object) (names []string, err error) {
	err = b.call("Missing", func() error { names, err = b.Broker.Missing(ctx, objects); return err })
	return names, err
}

func (b *stepFailer) Declare(ctx context.Context, objects []broker.Object) error {
	return b.call("Declare", func() error {
		for _, o := range objects {
			b.declared = append(b.declared, o.Name)
		}
		return b.Broker.Declare(ctx, objects)
	})
}

func (w *world) stepFailer(failAt int) *stepFailer {
	return &stepFailer{Broker: w.broker, store: w.store, failAt: failAt}
}

const noFailure = 1 << 30 // as stepFailer.failAt: no call fails

// deleteObjects deletes objects in the broker, with their messages.
func (w *world) deleteObjects(objects ...broker.Object) {
	w.Helper()
	w.must(w.broker.Delete(w.Context(), objects))
}

func (w *world) object(name string) broker.Object {
	w.Helper()
	for _, o := range append(w.topology.Queues([]string{queue, "other"}), w.topology.MarkerObject()) {
		if o.Name == name {
			return o
		}
	}
	w.Fatalf("the topology has no object %s", name)
	panic("not reached")
}

// ticketedInOther stores n tasks of a second queue as if their tickets had been published.
func (w *world) ticketedInOther(n int) []message.Ticket {
	w.Helper()
	task := newTask()
	task.Queue = "other"
	inserted, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{task}, n), time.Hour)
	w.must(err)
	w.must(w.store.DeleteOutbox(w.Context(), []int64{inserted.Entries[0].ID}))
	return inserted.Entries[0].Tickets
}

// If a rebuild fails at any call while tickets are dispatched, the next rebuild ensures that every ready task gets a
// ticket.
func TestARebuildMayFailAtAnyStep(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(*world) []broker.Object{
		"everything is missing": func(w *world) []broker.Object {
			return append(w.topology.Queues([]string{queue, "other"}), w.topology.MarkerObject())
		},
		"one AMQP queue is missing": func(w *world) []broker.Object { return []broker.Object{w.object(w.main())} },
		// An operator may have declared the queues in a new broker, for example.
		"only the marker and all tickets are missing": func(w *world) []broker.Object {
			w.takeTickets(w.main())
			w.takeTickets(w.topology.Main("other"))
			return []broker.Object{w.topology.MarkerObject()}
		},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reply lost %t", name, after), func(t *testing.T) {
				t.Parallel()
				w := bareWorld(t)
				mine, others := w.ticketed(3), w.ticketedInOther(2)
				w.declare()
				for step := 0; ; step++ {
					w.deleteObjects(lost(w)...)
					w.sql("update holdfast.tasks set due_at = null, ticketed_at = now()")
					if name == "one AMQP queue is missing" {
						w.takeTickets(w.topology.Main("other"))
						w.send(w.topology.Main("other"), tickets(others...))
					}
					b := w.stepFailer(step)
					b.after = after
					_, _, err := Rebuild(t.Context(), b, b, w.topology)
					_, _ = w.janitor(nil).dispatchDue(t.Context()) // fails if an AMQP queue is missing
					if _, _, err := Rebuild(t.Context(), w.store, w.broker, w.topology); err != nil {
						t.Fatalf("failed at call %d, %v: %v", step+1, b.calls, err)
					}
					w.makeDue()
					_, dispatchErr := w.janitor(nil).dispatchDue(t.Context())
					w.must(dispatchErr)
					has := make(map[message.Ticket]bool)
					for _, amqpQueue := range []string{w.main(), w.topology.Main("other")} {
						for _, ticket := range w.takeTickets(amqpQueue) {
							has[ticket] = true
						}
					}
					for _, ticket := range append(slices.Clone(mine), others...) {
						if !has[ticket] {
							t.Errorf("failed at call %d, %v: task %s has no ticket", step+1, b.calls, ticket.Task)
						}
					}
					if missing, err := w.topology.Verify(t.Context(), w.broker, []string{queue, "other"}); err != nil || len(missing) > 0 {
						t.Errorf("failed at call %d, %v: missing objects: %v, %v", step+1, b.calls, missing, err)
					}
					if err == nil {
						if step < 4 {
							t.Errorf("the rebuild made only %d calls: %v", step, b.calls)
						}
						return
					}
				}
			})
		}
	}
}

// A rebuild logs a warning only if a missing queue existed before.
func TestARebuildWarnsOnlyAboutKnownQueues(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.ticketed(1)
	log, hook := test.NewNullLogger()
	j := w.janitor(func(o *Options) { o.Log = log })
	w.must(j.rebuild(t.Context()))
	if line := hook.LastEntry(); line == nil || line.Level != logrus.InfoLevel || !strings.Contains(line.Message, "for the first time") {
		t.Errorf("the first declaration: %v", line)
	}
	w.must(w.broker.Delete(t.Context(), []broker.Object{{Kind: broker.Queue, Name: w.main()}}))
	w.must(j.rebuild(t.Context()))
	if line := hook.LastEntry(); line == nil || line.Level != logrus.WarnLevel || !strings.Contains(line.Message, "queues were missing") {
		t.Errorf("a lost queue: %v", line)
	}
	if err := j.TopologyErr(); err != nil {
		t.Errorf("refused: %v", err)
	}
	j.o.Broker = refusingBroker{w.broker}
	if err := j.rebuild(t.Context()); err == nil || j.TopologyErr() == nil {
		t.Errorf("%v, refused: %v", err, j.TopologyErr())
	}
}

// refusingBroker is a broker that refuses queries.
type refusingBroker struct{ broker.Broker }

func (refusingBroker) Missing(context.Context, []broker.Object) ([]string, error) {
	return nil, errors.New("access refused")
}

func TestARebuildOfACompleteTopologyDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ticket := w.ticketed(1)[0]
	b := w.stepFailer(noFailure)
	missing, n, err := Rebuild(t.Context(), b, b, w.topology)
	if err != nil || n != 0 || missing != nil {
		t.Errorf("missing: %v, tasks: %d, error: %v", missing, n, err)
	}
	if !slices.Equal(b.calls, []string{"QueueNames", "Missing", "Missing"}) {
		t.Errorf("calls are %v", b.calls)
	}
	if !w.position(ticket).Ticketed {
		t.Error("the task is due for another ticket")
	}
}

// A rebuild makes a task due if and only if its ticket was lost with the missing object.
func TestARebuildReplacesLostTickets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lost   func(*world) string
		queues []string // their tasks need new tickets
	}{
		"the marker":            {func(w *world) string { return w.topology.Marker() }, []string{queue, "other"}},
		"a main queue":          {(*world).main, []string{queue}},
		"a requeue queue":       {(*world).requeue, []string{queue}},
		"a holding queue":       {(*world).hold, nil},
		"the rescue queue":      {func(w *world) string { return w.topology.Rescue() }, nil},
		"the quarantine":        {func(w *world) string { return w.topology.Quarantine() }, nil},
		"another requeue queue": {func(w *world) string { return w.topology.Requeue("other") }, []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := bareWorld(t)
			byQueue := map[string][]message.Ticket{queue: w.ticketed(3), "other": w.ticketedInOther(2)}
			w.declare()
			running := w.ticketed(1)
			kept := w.claim(w.registerWorker(), running...)[0]
			w.deleteObjects(w.object(test.lost(w)))
			b := w.stepFailer(noFailure)
			missing, n, err := Rebuild(t.Context(), b, b, w.topology)
			w.must(err)
			names := []string{test.lost(w)}
			if names[0] == w.topology.Marker() { // the broker was wiped or replaced
				names = nil
				for _, o := range append(w.topology.Queues([]string{queue, "other"}), w.topology.MarkerObject()) {
					names = append(names, o.Name)
				}
			}
			if !slices.Equal(missing, names) || !slices.Equal(b.declared, names) {
				t.Errorf("missing: %v, declared: %v, want both %v", missing, b.declared, names)
			}
			want := 0
			for queue, list := range byQueue {
				replaced := slices.Contains(test.queues, queue)
				if replaced {
					want += len(list)
				}
				for _, ticket := range list {
					if w.position(ticket).Ticketed == replaced {
						t.Errorf("queue %s: ticket %v must be replaced: %t", queue, ticket, replaced)
					}
				}
			}
			if n != want {
				t.Errorf("%d tasks are due, want %d", n, want)
			}
			kept.Payload = nil
			w.unchanged(kept)
			if left, err := w.topology.Verify(t.Context(), w.broker, []string{queue, "other"}); err != nil || len(left) > 0 {
				t.Errorf("still missing: %v, %v", left, err)
			}
		})
	}
}

// vanishingBroker loses an AMQP queue right after each call of Missing that is not about the marker.
type vanishingBroker struct {
	*stepFailer
	lose func()
}

func (v vanishingBroker) Missing(ctx context.Context, objects []broker.Object) ([]string, error) {
	names, err := v.stepFailer.Missing(ctx, objects)
	if len(objects) > 1 {
		v.lose()
	}
	return names, err
}

// If an AMQP queue vanishes during a rebuild, that rebuild must not declare it, because this would hide the loss of its
// tickets. The next rebuild finds it missing.
func TestARebuildDoesNotHideALaterLoss(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	mine, others := w.ticketed(2), w.ticketedInOther(2)
	w.declare()
	w.send(w.topology.Main("other"), tickets(others...))
	w.deleteObjects(w.object(w.main()))
	b := vanishingBroker{w.stepFailer(noFailure), func() { w.deleteObjects(w.object(w.topology.Main("other"))) }}
	_, _, err := Rebuild(t.Context(), b, b, w.topology)
	w.must(err)
	_, _, err = Rebuild(t.Context(), w.store, w.broker, w.topology)
	w.must(err)
	_, err = w.janitor(nil).dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the queue", w.takeTickets(w.main()), mine)
	w.sameTickets("in the other queue", w.takeTickets(w.topology.Main("other")), others)
}

// The rebuild duty notices a wiped broker and a new queue.
func TestTheRebuildDutyNoticesMissingQueues(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	mine := w.ticketed(5)
	w.run(w.janitor(func(o *Options) { o.RebuildEvery = 50 * time.Millisecond; o.SentinelInterval = time.Hour }))
	complete := func(queues ...string) func() bool {
		return func() bool {
			missing, err := w.topology.Verify(t.Context(), w.broker, queues)
			return err == nil && len(missing) == 0
		}
	}
	w.eventually("everything is declared", complete(queue))
	w.eventually("all tasks are ticketed again", func() bool {
		return w.number("select count(*) from holdfast.tasks where due_at is not null") == 0
	})
	w.sameTickets("published", w.takeTickets(w.main()), mine)
	task := newTask()
	task.Queue = "other"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{task}, 0)
	w.must(err)
	w.eventually("the new queue is declared", complete(queue, "other"))
	got := w.listen(w.topology.Main("other"))
	for {
		m := w.decode(got.next().Body)
		if m.Sentinel != nil {
			continue
		}
		if !slices.Equal(m.Tickets, inserted.Entries[0].Tickets) {
			t.Errorf("the new queue contains %+v", m)
		}
		break
	}
}

var _ queueStore = store.Store(nil)

// publishLog records the AMQP queues of the published tickets, in order.
type publishLog struct {
	broker.Broker
	mu     sync.Mutex
	queues []string
}

func (b *publishLog) count(amqpQueue string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range b.queues {
		if name == amqpQueue {
			n++
		}
	}
	return n
}

func (b *publishLog) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	b.mu.Lock()
	for _, m := range messages {
		if decoded, err := message.Decode(m.Body); err == nil {
			b.queues = append(b.queues, slices.Repeat([]string{m.Queue}, len(decoded.Tickets))...)
		}
	}
	b.mu.Unlock()
	return b.Broker.Publish(ctx, messages)
}

// TestTasksOfTheProcessBeforeComeFirst checks that a sole janitor publishes the tickets of the tasks that its
// predecessor was running before those of a backlog.
func TestTasksOfTheProcessBeforeComeFirst(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	worker := w.registerWorker()
	tickets := w.ticketed(5)
	w.claim(worker, tickets[3:]...) // the backlog has the lower ids and has waited as long
	w.kill(worker)
	published := &publishLog{Broker: w.broker}
	w.run(w.janitor(func(o *Options) { o.Broker, o.Sole = published, true }))
	w.eventually("all tickets are published", func() bool { return published.count(w.main()) >= 3 && published.count(w.requeue()) >= 2 })
	published.mu.Lock()
	defer published.mu.Unlock()
	if !slices.Equal(published.queues[:2], []string{w.requeue(), w.requeue()}) {
		t.Errorf("published to %v, want %s first", published.queues, w.requeue())
	}
}
