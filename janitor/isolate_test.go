package janitor

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// silentBroker is a broker in which some AMQP queues confirm nothing: a publish to one of them fails after a timeout.
type silentBroker struct {
	broker.Broker
	queues    []string
	recovered atomic.Bool // these queues confirm again
	tries     atomic.Int64
	timeouts  atomic.Int64 // publishes that ended with the broker's own timeout
}

func (s *silentBroker) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if !s.recovered.Load() && slices.ContainsFunc(messages, func(m broker.Message) bool { return slices.Contains(s.queues, m.Queue) }) {
		s.tries.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(slow.Times(5 * time.Second)):
			s.timeouts.Add(1)
		}
		return make([]broker.Outcome, len(messages)), errFault
	}
	return s.Broker.Publish(ctx, messages)
}

// insertIn stores n tasks in a queue, with an outbox entry.
func (w *world) insertIn(queue string, n int) {
	w.Helper()
	task := newTask()
	task.Queue = queue
	_, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{task}, n), 0)
	w.must(err)
}

// A queue that confirms nothing delays no other queue, even with ten thousand older outbox entries and a thousand older
// due tasks. When it confirms again, its tickets are published.
func TestAQueueThatConfirmsNothingDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.insertIn("stuck", 1)
	w.insertIn(queue, 1)
	w.declare()
	silent := &silentBroker{Broker: w.broker, queues: w.topology.Queue("stuck")}
	w.sql("insert into holdfast.outbox (queue, task_ids, publish_after) select 'stuck', array[id], now() - interval '1 hour' from generate_series(1, 10000) as id")
	w.sql(fmt.Sprintf(`insert into holdfast.tasks (type, queue, max_attempts, payload, next_run_at, due_at)
		select '%s', 'stuck', 9, '1', now() - interval '1 hour', now() - interval '1 hour' from generate_series(1, 1000)`, kind))
	waiting := func() int { return w.number("select count(*) from holdfast.outbox where queue = 'stuck'") }
	before := waiting()
	main := w.listen(w.main())
	w.run(w.janitor(func(o *Options) { o.Broker, o.SentinelInterval = silent, time.Hour }))
	published := func() {
		t.Helper()
		for {
			if m := w.decode(main.next().Body); len(m.Tickets) > 0 {
				return
			}
		}
	}
	published() // the first ticket, before the janitor isolates the silent queue
	for range 10 {
		began := time.Now()
		w.insertIn(queue, 1)
		published()
		w.due(1)
		published()
		if took := time.Since(began); took > slow.Times(10*time.Second) { // longer if the silent queue is not isolated
			t.Errorf("two tickets took %s", took)
		}
	}
	if n := waiting(); n != before {
		t.Errorf("the silent queue has %d outbox entries, want %d", n, before)
	}
	tries := silent.tries.Load()
	w.eventually("the silent queue is probed again", func() bool { return silent.tries.Load() > tries })
	silent.recovered.Store(true)
	w.sql("delete from holdfast.outbox where id in (select id from holdfast.outbox where queue = 'stuck' order by id limit 9900)")
	w.eventually("its outbox entries are published", func() bool { return waiting() == 0 })
	w.eventually("its due tasks are ticketed", func() bool {
		return w.number("select count(*) from holdfast.tasks where queue = 'stuck' and due_at is not null") == 0
	})
}

// A probe ends before the broker's own timeout, so that the broker does not close the connection.
func TestAProbeEndsBeforeTheBrokersLimit(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.insertIn("stuck", 1)
	w.declare()
	silent := &silentBroker{Broker: w.broker, queues: w.topology.Queue("stuck")}
	j := w.janitor(func(o *Options) { o.Broker = silent })
	given, confirmed, err := j.probeOnce(t.Context(), "stuck")
	if given != 1 || confirmed != 0 || err == nil || silent.tries.Load() != 1 {
		t.Errorf("%d tickets, %d confirmed in %d tries: %v", given, confirmed, silent.tries.Load(), err)
	}
	if n := silent.timeouts.Load(); n > 0 {
		t.Errorf("%d publishes ended with the broker's timeout", n)
	}
}

// denyingBroker is a broker that refuses to declare some AMQP queues.
type denyingBroker struct {
	broker.Broker
	queues    []string
	recovered atomic.Bool // the broker declares them now
}

func (d *denyingBroker) Declare(ctx context.Context, objects []broker.Object) error {
	if !d.recovered.Load() && slices.ContainsFunc(objects, func(o broker.Object) bool { return slices.Contains(d.queues, o.Name) }) {
		return fmt.Errorf("%w: access refused", errFault)
	}
	return d.Broker.Declare(ctx, objects)
}

// A queue whose AMQP queues are missing and cannot be declared delays no other queue. When they can be declared, its
// tickets are published.
func TestAMissingQueueDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.insertIn(queue, 1)
	w.declare()
	w.insertIn("denied", 1)
	w.sql("insert into holdfast.outbox (queue, task_ids, publish_after) select 'denied', array[id], now() - interval '1 hour' from generate_series(1, 10000) as id")
	denied := &denyingBroker{Broker: w.broker, queues: w.topology.Queue("denied")}
	main := w.listen(w.main())
	w.run(w.janitor(func(o *Options) { o.Broker, o.SentinelInterval = denied, time.Hour }))
	published := func() {
		t.Helper()
		for {
			if m := w.decode(main.next().Body); len(m.Tickets) > 0 {
				return
			}
		}
	}
	published()
	for range 3 {
		w.insertIn(queue, 1)
		published()
	}
	denied.recovered.Store(true)
	w.sql("delete from holdfast.outbox where id in (select id from holdfast.outbox where queue = 'denied' order by id limit 9900)")
	w.eventually("the outbox entries of the missing queue are published", func() bool {
		return w.number("select count(*) from holdfast.outbox where queue = 'denied'") == 0
	})
}
