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
}

func (s *silence) Publish(ctx context.Context, messages []broker.Message) ([]broker.Outcome, error) {
	if !s.over.Load() && slices.ContainsFunc(messages, func(m broker.Message) bool { return slices.Contains(s.queues, m.Queue) }) {
		s.tries.Add(1)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		<-ctx.Done()
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
		if took := time.Since(began); took > patience/2 { // far more than the silent queue would cost alone, each time
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
