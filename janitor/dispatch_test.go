package janitor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestDispatchKeepsTheOrderOfDueTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.due(4)
	for i, late := range []int{2, 4, 1, 3} { // hours
		w.sql("update holdfast.tasks set due_at = now() - $2 * interval '1 hour' where id = $1", int64(list[i].Task), late)
	}
	_, err := w.janitor(nil).dispatchDue(t.Context())
	w.must(err)
	if got, want := w.takeTickets(w.main()), []message.Ticket{list[1], list[3], list[0], list[2]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, ticket := range list {
		if !w.position(ticket).Ticketed {
			t.Errorf("%v was published but its task is not marked", ticket)
		}
	}
}

// A ticket is published when its task is due, not before and not much later.
func TestDispatchWaitsForTheDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	later := newTask()
	later.Delay = 600 * time.Millisecond
	main := w.listen(w.main())
	w.background(w.janitor(nil).dispatch)
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{later}, time.Hour)
	w.must(err)
	main.ticket()
	if late := w.number("select (extract(epoch from clock_timestamp() - next_run_at) * 1000)::int from holdfast.tasks"); late < 0 || late > int(slow.Times(2*time.Second).Milliseconds()) {
		t.Errorf("published %d ms after the task was due", late)
	}
}

// A task whose attempt was interrupted goes to the requeue queue, ahead of the backlog.
func TestDispatchRequeuesInterruptedTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	worker := w.registerWorker()
	tasks := w.claim(worker, w.ticketed(2)...)
	w.settle(tasks[0], holdfast.Interrupted(nil))
	w.settle(tasks[1], holdfast.Returned(holdfast.RetryAfter(0, errFault)))
	_, err := w.janitor(nil).dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the requeue queue", w.takeTickets(w.requeue()), []message.Ticket{{Task: tasks[0].ID, Attempt: 2}})
	w.sameTickets("in the main queue", w.takeTickets(w.main()), []message.Ticket{{Task: tasks[1].ID, Attempt: 2}})
}

// A task whose ticket is not confirmed is not marked, and its ticket is published later.
func TestDispatchMarksOnlyConfirmedTickets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ghost := newTask()
	ghost.Queue = "ghost"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, time.Hour)
	w.must(err)
	w.must(w.store.DeleteOutbox(t.Context(), []int64{inserted.Entries[0].ID}))
	list := append(w.due(2), inserted.Entries[0].Tickets[0])
	_, err = w.store.Unticket(t.Context(), list)
	w.must(err)
	refused, stored, returned := list[0], list[1], list[2]
	s := &spy{Broker: w.broker, refuse: func(m broker.Message) bool { return string(m.Body) == string(tickets(refused).Encode()) }, missingFails: true}
	j := w.janitor(func(o *Options) { o.Broker = s })
	_, _ = j.dispatchDue(t.Context()) // may return an error
	if w.position(refused).Ticketed || w.position(returned).Ticketed || !w.position(stored).Ticketed {
		t.Fatalf("marked: refused %t, returned %t, stored %t", w.position(refused).Ticketed, w.position(returned).Ticketed, w.position(stored).Ticketed)
	}
	s.refuse, s.missingFails = nil, false
	w.declare()
	w.makeDue()
	_, err = j.dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the queue", w.takeTickets(w.main()), []message.Ticket{refused, stored})
	w.background(j.probeIsolated) // a queue whose AMQP queues could not be declared is isolated
	w.eventually("the ticket in the new queue is marked", func() bool { return w.position(returned).Ticketed })
	w.sameTickets("in the new queue", w.takeTickets(w.topology.Main("ghost")), []message.Ticket{returned})
}

// A queue whose main queue takes no messages keeps its tasks due, and delays no other queue.
func TestAStuckQueueDoesNotDelayTheDispatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := newTask()
	stuck.Queue = "stuck"
	_, err := w.store.Insert(t.Context(), slices.Repeat([]holdfast.NewTask{stuck}, dispatchBatch), time.Hour)
	w.must(err)
	_, err = w.store.UnticketQueue(t.Context(), "stuck")
	w.must(err)
	want := w.due(1)[0]
	s := &spy{Broker: w.broker, refuse: func(m broker.Message) bool { return m.Queue == w.topology.Main("stuck") }}
	w.background(w.janitor(func(o *Options) { o.Broker = s }).dispatch)
	if got := w.listen(w.main()).ticket(); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := w.number("select count(*) from holdfast.tasks where queue = 'stuck' and due_at is not null"); n != dispatchBatch {
		t.Errorf("%d tasks of the stuck queue are due, want %d", n, dispatchBatch)
	}
}

// The first task of a new queue does not wait for the rebuild duty.
func TestTheAMQPQueuesOfANewQueueAreDeclaredAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := newTask()
	first.Queue = "new"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{first, newTask()}, time.Hour)
	w.must(err)
	want := map[string]message.Ticket{}
	var list []message.Ticket
	for _, entry := range inserted.Entries {
		want[entry.Queue] = entry.Tickets[0]
		list = append(list, entry.Tickets[0])
		w.must(w.store.DeleteOutbox(t.Context(), []int64{entry.ID}))
	}
	_, err = w.store.Unticket(t.Context(), list)
	w.must(err)
	j := w.janitor(nil)
	w.background(j.probeIsolated) // on a busy machine, a rebuild takes longer than the tickets wait for it
	w.eventually("both tasks are ticketed", func() bool {
		_, err := j.dispatchDue(t.Context())
		w.must(err)
		return w.position(want["new"]).Ticketed && w.position(want[holdfast.DefaultQueue]).Ticketed
	})
	for queue, ticket := range want {
		w.sameTickets("in queue "+queue, w.takeTickets(w.topology.Main(queue)), []message.Ticket{ticket})
	}
}

// During a rebuild in another goroutine, only tickets whose AMQP queue is missing wait.
func TestARebuildInProgressDelaysNoOtherQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ghost := newTask()
	ghost.Queue = "ghost"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, time.Hour)
	w.must(err)
	waits := inserted.Entries[0].Tickets[0]
	w.must(w.store.DeleteOutbox(t.Context(), []int64{inserted.Entries[0].ID}))
	_, err = w.store.Unticket(t.Context(), []message.Ticket{waits})
	w.must(err)
	goes := w.due(1)[0]
	j := w.janitor(nil)
	j.rebuilding <- struct{}{}
	_, err = j.dispatchDue(t.Context())
	<-j.rebuilding
	w.must(err)
	if w.position(waits).Ticketed || !w.position(goes).Ticketed {
		t.Errorf("ticketed: without an AMQP queue %t, with one %t", w.position(waits).Ticketed, w.position(goes).Ticketed)
	}
	w.background(j.probeIsolated) // on a busy machine, a rebuild takes longer than the tickets wait for it
	w.eventually("the ticket is published after the rebuild", func() bool {
		w.makeDue()
		_, err = j.dispatchDue(t.Context())
		w.must(err)
		return w.position(waits).Ticketed
	})
}

func TestJanitorsShareTheDispatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 4000
	w.must(func() error { // more than one batch
		_, err := w.store.Insert(t.Context(), slices.Repeat([]holdfast.NewTask{newTask()}, n), time.Hour)
		return err
	}())
	_, err := w.store.UnticketQueue(t.Context(), queue)
	w.must(err)
	spies := make([]*spy, 2)
	var begun sync.WaitGroup // no janitor publishes before each of them has tickets to publish
	begun.Add(len(spies))
	for i := range spies {
		var first sync.Once
		spies[i] = &spy{Broker: w.broker, refuse: func(broker.Message) bool {
			first.Do(begun.Done)
			begun.Wait()
			return false
		}}
		own := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: w.store.Schema()})
		w.background(w.janitor(func(o *Options) { o.Store, o.Broker = own, spies[i] }).dispatch)
	}
	w.eventually("everything is ticketed", func() bool { return w.number("select count(*) from holdfast.tasks where due_at is not null") == 0 })
	seen := make(map[message.Ticket]int)
	for _, ticket := range w.takeTickets(w.main()) {
		seen[ticket]++
	}
	if len(seen) != n {
		t.Errorf("%d tasks have tickets, want %d", len(seen), n)
	}
	unconfirmed := 0
	for i, s := range spies {
		if len(s.saw("stored")) == 0 {
			t.Errorf("janitor %d published no ticket", i+1)
		}
		unconfirmed += len(s.saw("unconfirmed"))
	}
	for ticket, times := range seen {
		if times != 1 && unconfirmed == 0 { // a ticket with a late confirm is published again
			t.Errorf("%v was published %d times", ticket, times)
		}
	}
}

// dispatchRecorder is a store that records the times of DispatchDue and returns a fixed result.
type dispatchRecorder struct {
	Store
	mu    sync.Mutex
	calls []time.Duration // since begin
	begin time.Time
	next  time.Duration
	err   error
}

func (d *dispatchRecorder) ReportDuty(context.Context, store.DutyFailure) error {
	return holdfast.ErrUnavailable
}

func (c *dispatchRecorder) DispatchDue(context.Context, store.Queues, int, func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, time.Since(c.begin))
	return store.Dispatched{Next: c.next}, c.err
}

func (c *dispatchRecorder) DispatchOutbox(context.Context, store.Queues, int, func(context.Context, []store.OutboxEntry) []bool) (int, error) {
	return 0, nil
}

// The dispatch duty waits until the next task is due, at most for dispatchCap, and a nudge wakes it.
func TestDispatchWaitsUntilTheNextTaskIsDue(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		next     time.Duration
		nudge    func(*Janitor)
		duration time.Duration
		want     []time.Duration
	}{
		"nothing due":                   {time.Hour, func(*Janitor) {}, 450 * ms, []time.Duration{0, 200 * ms, 400 * ms}},
		"soon":                          {70 * ms, func(*Janitor) {}, 150 * ms, []time.Duration{0, 70 * ms, 140 * ms}},
		"a full batch":                  {0, func(*Janitor) {}, 12 * ms, []time.Duration{0, 5 * ms, 10 * ms}},
		"nudge at once":                 {time.Hour, func(j *Janitor) { time.Sleep(30 * ms); j.Nudge(0) }, 100 * ms, []time.Duration{0, 30 * ms}},
		"nudge for later":               {time.Hour, func(j *Janitor) { time.Sleep(30 * ms); j.Nudge(50 * ms) }, 150 * ms, []time.Duration{0, 80 * ms}},
		"nudge beyond the cap":          {time.Hour, func(j *Janitor) { time.Sleep(30 * ms); j.Nudge(time.Minute) }, 210 * ms, []time.Duration{0, 200 * ms}},
		"nudge after the next due task": {50 * ms, func(j *Janitor) { time.Sleep(10 * ms); j.Nudge(120 * ms) }, 60 * ms, []time.Duration{0, 50 * ms}},
		"many nudges": {time.Hour, func(j *Janitor) {
			time.Sleep(30 * ms)
			for range 100 {
				j.Nudge(0) // never blocks
			}
		}, 100 * ms, []time.Duration{0, 30 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &dispatchRecorder{begin: time.Now(), next: test.next}
				j, ctx, end := offlineJanitor(t, c)
				go j.dispatch(ctx)
				go test.nudge(j)
				time.Sleep(test.duration)
				end()
				synctest.Wait()
				// Two nudges at the same time may cause two calls.
				if !slices.Equal(slices.Compact(slices.Clone(c.calls)), test.want) {
					t.Errorf("dispatched at %v, want %v", c.calls, test.want)
				}
			})
		})
	}
}

// The dispatch duty calls an unavailable store at growing intervals. Soon after the store is back, it uses the normal
// interval.
func TestDispatchBacksOffWhileTheStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &dispatchRecorder{begin: time.Now(), next: time.Hour, err: errFault}
		j, ctx, end := offlineJanitor(t, c)
		go j.dispatch(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		c.mu.Lock()
		tries := len(c.calls)
		c.err = nil
		c.mu.Unlock()
		if tries < 5 || tries > 80 {
			t.Errorf("%d calls in a minute, want 5 to 80", tries)
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		if more := len(c.calls) - tries; more < 200 {
			t.Errorf("%d calls in a minute after the store is back, want at least 200", more)
		}
		c.mu.Unlock()
		end()
	})
}

// offlineJanitor returns a janitor with a fake store and without a broker, for tests of timing.
func offlineJanitor(t *testing.T, s Store) (*Janitor, context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	j, err := New(Options{Store: s, Broker: struct{ broker.Broker }{}, Topology: broker.NewTopology("test", 1, "x")})
	if err != nil {
		t.Fatal(err)
	}
	return j, ctx, cancel
}
