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
)

// silence is a broker of which some queues confirm nothing: a publish to one of them lasts until its time is over.
type silence struct {
	broker.Broker
	queues []string
	over   atomic.Bool // they confirm again
	tries  atomic.Int64
	limits atomic.Int64 // publishes that the broker's own limit has ended
}

func (s *silence) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if !s.over.Load() && slices.ContainsFunc(messages, func(m broker.Message) bool { return slices.Contains(s.queues, m.Queue) }) {
		s.tries.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
			s.limits.Add(1)
		}
		return make([]broker.Outcome, len(messages)), errFault
	}
	return s.Broker.Publish(ctx, messages)
}

// insertIn stores tasks in a lane, with their receipt.
func (w *world) insertIn(lane string, n int) {
	w.Helper()
	task := newTask()
	task.Lane = lane
	_, err := w.store.Insert(w.Context(), slices.Repeat([]holdfast.NewTask{task}, n), 0)
	w.must(err)
}

// Ten thousand older receipts and a thousand older due tasks of a queue that confirms nothing delay no other queue. When the queue
// confirms again, its tickets go out.
func TestAQueueThatConfirmsNothingDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.insertIn("stuck", 1)
	w.insertIn(lane, 1)
	w.declare()
	deaf := &silence{Broker: w.broker, queues: w.topology.Lane("stuck")}
	w.sql("insert into holdfast.outbox (lane, task_ids, publish_after) select 'stuck', array[id], now() - interval '1 hour' from generate_series(1, 10000) as id")
	w.sql(fmt.Sprintf(`insert into holdfast.tasks (type, lane, max_attempts, payload, next_run_at, due_at)
		select '%s', 'stuck', 9, '1', now() - interval '1 hour', now() - interval '1 hour' from generate_series(1, 1000)`, kind))
	waiting := func() int { return w.number("select count(*) from holdfast.outbox where lane = 'stuck'") }
	before := waiting()
	main := w.listen(w.main())
	w.run(w.janitor(func(o *Options) { o.Broker, o.SentinelInterval = deaf, time.Hour }))
	published := func() {
		t.Helper()
		for {
			if m := w.decode(main.next().Body); len(m.Tickets) > 0 {
				return
			}
		}
	}
	published() // the one from the beginning, while the silent queue is found to be silent
	for range 10 {
		began := time.Now()
		w.insertIn(lane, 1)
		published()
		w.due(1)
		published()
		if took := time.Since(began); took > 10*time.Second { // a silent queue that is not isolated costs more than that
			t.Errorf("two tickets took %s", took)
		}
	}
	if n := waiting(); n != before {
		t.Errorf("%d of %d receipts of the silent queue are left", n, before)
	}
	tries := deaf.tries.Load()
	w.eventually("the silent queue is tried again", func() bool { return deaf.tries.Load() > tries })
	deaf.over.Store(true)
	w.sql("delete from holdfast.outbox where id in (select id from holdfast.outbox where lane = 'stuck' order by id limit 9900)")
	w.eventually("its receipts are published", func() bool { return waiting() == 0 })
	w.eventually("its due tasks are ticketed", func() bool {
		return w.number("select count(*) from holdfast.tasks where lane = 'stuck' and due_at is not null") == 0
	})
}

// A probe ends before the broker's own limit does, so that the broker does not blame its connection.
func TestAProbeEndsBeforeTheBrokersLimit(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.insertIn("stuck", 1)
	w.declare()
	deaf := &silence{Broker: w.broker, queues: w.topology.Lane("stuck")}
	j := w.janitor(func(o *Options) { o.Broker = deaf })
	given, confirmed, err := j.publishSome(t.Context(), "stuck")
	if given != 1 || confirmed != 0 || err == nil || deaf.tries.Load() != 1 {
		t.Errorf("%d given, %d confirmed in %d tries: %v", given, confirmed, deaf.tries.Load(), err)
	}
	if n := deaf.limits.Load(); n > 0 {
		t.Errorf("the broker's limit ended %d publishes", n)
	}
}

// denial is a broker that declares some queues for nobody.
type denial struct {
	broker.Broker
	queues []string
	over   atomic.Bool // it does now
}

func (d *denial) Declare(ctx context.Context, objects []broker.Object) ([]string, error) {
	if !d.over.Load() && slices.ContainsFunc(objects, func(o broker.Object) bool { return slices.Contains(d.queues, o.Name) }) {
		return nil, fmt.Errorf("%w: access refused", errFault)
	}
	return d.Broker.Declare(ctx, objects)
}

// Outbox entries of a queue that is missing and cannot be declared delay no other queue. When the queue can be declared, its
// tickets go out.
func TestAMissingQueueDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	w := bareWorld(t)
	w.insertIn(lane, 1)
	w.declare()
	w.insertIn("denied", 1)
	w.sql("insert into holdfast.outbox (lane, task_ids, publish_after) select 'denied', array[id], now() - interval '1 hour' from generate_series(1, 10000) as id")
	denied := &denial{Broker: w.broker, queues: w.topology.Lane("denied")}
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
		w.insertIn(lane, 1)
		published()
	}
	denied.over.Store(true)
	w.sql("delete from holdfast.outbox where id in (select id from holdfast.outbox where lane = 'denied' order by id limit 9900)")
	w.eventually("the entries of the missing queue are published", func() bool {
		return w.number("select count(*) from holdfast.outbox where lane = 'denied'") == 0
	})
}
