package janitor

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
)

func TestScheduleKeepsTheOrderOfDueTimes(t *testing.T) {
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
			t.Errorf("%v was published and not marked", ticket)
		}
	}
}

// A task is published when it is due: not before, and not much later.
func TestScheduleWaitsForTheDelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	later := newTask()
	later.Delay = 600 * time.Millisecond
	main := w.listen(w.main())
	w.background(w.janitor(nil).schedule)
	_, err := w.store.Insert(t.Context(), []holdfast.NewTask{later}, time.Hour)
	w.must(err)
	main.ticket()
	if late := w.number("select (extract(epoch from clock_timestamp() - next_run_at) * 1000)::int from holdfast.tasks"); late < 0 || late > 2000 {
		t.Errorf("published %d ms after the task was due", late)
	}
}

// A task whose attempt was broken off had its turn: it goes before the backlog.
func TestScheduleSendsBrokenOffTasksAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.openRun()
	tasks := w.claim(run, w.ticketed(2)...)
	w.settle(tasks[0], holdfast.Interrupted(nil))
	w.settle(tasks[1], holdfast.Returned(holdfast.RetryAfter(0, errFault)))
	_, err := w.janitor(nil).dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("ahead", w.takeTickets(w.again()), []message.Ticket{{Task: tasks[0].ID, Attempt: 2}})
	w.sameTickets("in the lane", w.takeTickets(w.main()), []message.Ticket{{Task: tasks[1].ID, Attempt: 2}})
}

// What the broker did not confirm is not marked, whatever the reason, and goes out later.
func TestScheduleMarksNothingThatIsNotConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ghost := newTask()
	ghost.Lane = "ghost"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, time.Hour)
	w.must(err)
	w.must(w.store.Discharge(t.Context(), []int64{inserted.Receipts[0].ID}))
	list := append(w.due(2), inserted.Receipts[0].Tickets[0])
	_, err = w.store.Unticket(t.Context(), list)
	w.must(err)
	refused, stored, returned := list[0], list[1], list[2]
	s := &spy{Broker: w.broker, refuse: func(m broker.Message) bool { return string(m.Body) == string(tickets(refused).Encode()) }, blind: true}
	j := w.janitor(func(o *Options) { o.Broker = s })
	_, _ = j.dispatchDue(t.Context()) // may complain
	if w.position(refused).Ticketed || w.position(returned).Ticketed || !w.position(stored).Ticketed {
		t.Fatalf("marked: refused %t, returned %t, stored %t", w.position(refused).Ticketed, w.position(returned).Ticketed, w.position(stored).Ticketed)
	}
	s.refuse, s.blind = nil, false
	w.declare()
	w.sooner()
	_, err = j.dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("in the lane", w.takeTickets(w.main()), []message.Ticket{refused, stored})
	w.background(j.probeIsolated) // if its queue could not be made, the new lane was isolated
	w.eventually("the ticket in the new lane is marked", func() bool { return w.position(returned).Ticketed })
	w.sameTickets("in the new lane", w.takeTickets(w.topology.Main("ghost")), []message.Ticket{returned})
}

// A lane whose queue takes nothing keeps its tasks due, however many, and holds up no other lane.
func TestAStuckLaneDoesNotHoldUpTheSchedule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := newTask()
	stuck.Lane = "stuck"
	_, err := w.store.Insert(t.Context(), slices.Repeat([]holdfast.NewTask{stuck}, scheduleBatch), time.Hour)
	w.must(err)
	_, err = w.store.UnticketLane(t.Context(), "stuck")
	w.must(err)
	want := w.due(1)[0]
	s := &spy{Broker: w.broker, refuse: func(m broker.Message) bool { return m.Queue == w.topology.Main("stuck") }}
	w.background(w.janitor(func(o *Options) { o.Broker = s }).schedule)
	if got := w.listen(w.main()).ticket(); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := w.number("select count(*) from holdfast.tasks where lane = 'stuck' and due_at is not null"); n != scheduleBatch {
		t.Errorf("%d tasks of the stuck lane are due", n)
	}
}

// The first task of a new lane does not wait until somebody looks at the topology.
func TestTheQueueOfANewLaneIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := newTask()
	first.Lane = "new"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{first, newTask()}, time.Hour)
	w.must(err)
	want := map[string]message.Ticket{}
	var list []message.Ticket
	for _, receipt := range inserted.Receipts {
		want[receipt.Lane] = receipt.Tickets[0]
		list = append(list, receipt.Tickets[0])
		w.must(w.store.Discharge(t.Context(), []int64{receipt.ID}))
	}
	_, err = w.store.Unticket(t.Context(), list)
	w.must(err)
	j := w.janitor(nil)
	w.background(j.probeIsolated) // on a busy machine a rebuild takes longer than tickets wait for it
	w.eventually("both tasks are ticketed", func() bool {
		_, err := j.dispatchDue(t.Context())
		w.must(err)
		return w.position(want["new"]).Ticketed && w.position(want[holdfast.DefaultLane]).Ticketed
	})
	for lane, ticket := range want {
		w.sameTickets("in lane "+lane, w.takeTickets(w.topology.Main(lane)), []message.Ticket{ticket})
	}
}

// While a rebuild is under way elsewhere in the process, which may take long, tickets whose queue is missing
// wait, and all others go out.
func TestARebuildUnderWayHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ghost := newTask()
	ghost.Lane = "ghost"
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{ghost}, time.Hour)
	w.must(err)
	waits := inserted.Receipts[0].Tickets[0]
	w.must(w.store.Discharge(t.Context(), []int64{inserted.Receipts[0].ID}))
	_, err = w.store.Unticket(t.Context(), []message.Ticket{waits})
	w.must(err)
	goes := w.due(1)[0]
	j := w.janitor(nil)
	j.rebuilding <- struct{}{}
	_, err = j.dispatchDue(t.Context())
	<-j.rebuilding
	w.must(err)
	if w.position(waits).Ticketed || !w.position(goes).Ticketed {
		t.Errorf("marked: without a queue %t, with one %t", w.position(waits).Ticketed, w.position(goes).Ticketed)
	}
	w.background(j.probeIsolated) // on a busy machine a rebuild takes longer than tickets wait for it
	w.eventually("the ticket goes out after the rebuild", func() bool {
		w.sooner()
		_, err = j.dispatchDue(t.Context())
		w.must(err)
		return w.position(waits).Ticketed
	})
}

func TestSchedulersShareTheWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 4000
	w.must(func() error { // past the limit of one batch
		_, err := w.store.Insert(t.Context(), slices.Repeat([]holdfast.NewTask{newTask()}, n), time.Hour)
		return err
	}())
	_, err := w.store.UnticketLane(t.Context(), lane)
	w.must(err)
	spies := make([]*spy, 2)
	for i := range spies {
		spies[i] = &spy{Broker: w.broker}
		own := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: w.store.Schema()})
		w.background(w.janitor(func(o *Options) { o.Store, o.Broker = own, spies[i] }).schedule)
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
			t.Errorf("scheduler %d did nothing", i+1)
		}
		unconfirmed += len(s.saw("unconfirmed"))
	}
	for ticket, times := range seen {
		if times != 1 && unconfirmed == 0 { // a ticket whose confirm is late is published again
			t.Errorf("%v was published %d times", ticket, times)
		}
	}
}

// clockwork is a store that notes when the scheduler asks, and answers as it is told.
type clockwork struct {
	Store
	mu    sync.Mutex
	asked []time.Duration // since the begin
	begin time.Time
	next  time.Duration
	err   error
}

func (c *clockwork) DispatchDue(context.Context, store.Lanes, int, func(context.Context, []store.Due) []bool) (store.Dispatched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, time.Since(c.begin))
	return store.Dispatched{Next: c.next}, c.err
}

// The scheduler sleeps until the next task is due, never for long, and a nudge wakes it.
func TestScheduleSleepsUntilItIsNeeded(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		next  time.Duration
		nudge func(*Janitor)
		for_  time.Duration
		want  []time.Duration
	}{
		"nothing known":      {time.Hour, func(*Janitor) {}, 450 * ms, []time.Duration{0, 200 * ms, 400 * ms}},
		"soon":               {70 * ms, func(*Janitor) {}, 150 * ms, []time.Duration{0, 70 * ms, 140 * ms}},
		"a full batch":       {0, func(*Janitor) {}, 12 * ms, []time.Duration{0, 5 * ms, 10 * ms}},
		"nudged at once":     {time.Hour, func(j *Janitor) { time.Sleep(30 * ms); j.Nudge(0) }, 100 * ms, []time.Duration{0, 30 * ms}},
		"nudged for later":   {time.Hour, func(j *Janitor) { time.Sleep(30 * ms); j.Nudge(50 * ms) }, 150 * ms, []time.Duration{0, 80 * ms}},
		"nudged for the far": {time.Hour, func(j *Janitor) { time.Sleep(30 * ms); j.Nudge(time.Minute) }, 210 * ms, []time.Duration{0, 200 * ms}},
		"later than known":   {50 * ms, func(j *Janitor) { time.Sleep(10 * ms); j.Nudge(120 * ms) }, 60 * ms, []time.Duration{0, 50 * ms}},
		"nudged in a storm": {time.Hour, func(j *Janitor) {
			time.Sleep(30 * ms)
			for range 100 {
				j.Nudge(0) // never blocks
			}
		}, 100 * ms, []time.Duration{0, 30 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &clockwork{begin: time.Now(), next: test.next}
				j, ctx, end := offline(t, c)
				go j.schedule(ctx)
				go test.nudge(j)
				time.Sleep(test.for_)
				end()
				synctest.Wait()
				if !slices.Equal(distinctTimes(c.asked), test.want) {
					t.Errorf("asked at %v, want %v", c.asked, test.want)
				}
			})
		})
	}
}

// distinctTimes drops repetitions: two nudges in the same instant may be two looks.
func distinctTimes(list []time.Duration) []time.Duration { return slices.Compact(slices.Clone(list)) }

// A store that is away is not asked in a storm, and asked again soon when it is back.
func TestScheduleAsksAStoreThatIsAwayEverMoreRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &clockwork{begin: time.Now(), next: time.Hour, err: errFault}
		j, ctx, end := offline(t, c)
		go j.schedule(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		c.mu.Lock()
		tries := len(c.asked)
		c.err = nil
		c.mu.Unlock()
		if tries < 5 || tries > 80 {
			t.Errorf("asked %d times in a minute", tries)
		}
		time.Sleep(time.Minute)
		c.mu.Lock()
		if more := len(c.asked) - tries; more < 200 {
			t.Errorf("after the store is back it is asked %d times in a minute", more)
		}
		c.mu.Unlock()
		end()
	})
}

// offline is a janitor whose store is a fake, for tests of time alone.
func offline(t *testing.T, s Store) (*Janitor, context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	j, err := New(Options{Store: s, Broker: struct{ broker.Broker }{}, Topology: broker.NewTopology("test", 1, "x")})
	if err != nil {
		t.Fatal(err)
	}
	return j, ctx, cancel
}
