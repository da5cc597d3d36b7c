package janitor

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// The cursor of its run settles a page without a question about any of its tasks. It says
// nothing about a manifest that another run wrote.
func TestPatrolDropsFinishedPagesWithoutAsking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	var asked atomic.Int32
	j := w.janitor(func(o *Options) {
		o.Broker = s
		o.Store = &faulty{Store: w.store, positions: func() error { asked.Add(1); return errNever }}
	})
	run, list := w.openRun(), w.ticketed(3)
	w.claim(run, list...)
	_, err := w.store.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour, Taken: 3, Settled: 2})
	w.must(err)
	w.send(w.hold(), manifest(run, 1, list[0]), manifest(run, 3, list[1]), manifest(run, 0, list[2]), manifest(run, 2, list[0]))
	stop := w.patrol(j)
	w.eventually("two pages are dropped", func() bool { return len(s.saw("received")) == 4 && len(s.saw("acked")) == 2 })
	_, err = w.store.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour, Taken: 3, Settled: 3})
	w.must(err)
	w.eventually("the third page is dropped with the run's next sign of life", func() bool { return len(s.saw("acked")) == 3 })
	stop()
	if n := asked.Load(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
	if left := w.take(w.hold()); len(left) != 1 || left[0].Manifest == nil || left[0].Manifest.Page != 0 {
		t.Errorf("left are %+v, want the manifest without a page", left)
	}
}

// The tasks of a gone run come back with their manifest, also if its page number is far below what the
// run has settled but was written by another one. What is settled stays settled.
func TestPatrolReturnsTheWorkOfAGoneRun(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]int64{"its own manifest": 5, "one that another run wrote": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			j := w.janitor(nil)
			run, list := w.openRun(), w.ticketed(5)
			tasks := w.claim(run, list...)
			w.settle(tasks[0], holdfast.Returned(nil))
			w.settle(tasks[1], holdfast.Returned(holdfast.RetryAfter(time.Hour, errFault)))
			_, err := w.store.Renew(t.Context(), store.Renewal{Run: run, Lease: time.Hour, Taken: 9, Settled: 4})
			w.must(err)
			w.kill(run)
			done, waits := w.task(tasks[0].ID), w.task(tasks[1].ID)
			w.send(w.hold(), manifest(run, page, list...))
			stop := w.patrol(j)
			for _, task := range tasks[2:] {
				w.eventually("the task is ready again", func() bool { return w.task(task.ID).State == holdfast.Ready })
				if got := w.task(task.ID); got.Attempt != 2 || got.Crashes != 1 || got.Failures != 0 {
					t.Errorf("got %+v", got)
				}
			}
			w.untouched(done)
			w.untouched(waits)
			_, err = j.dispatchDue(t.Context())
			w.must(err)
			w.sameTickets("ahead of the backlog", w.takeTickets(w.again()), []message.Ticket{next(list[2]), next(list[3]), next(list[4])})
			if got := w.takeTickets(w.main()); got != nil {
				t.Errorf("in the backlog: %v", got)
			}
			stop()
			if left := w.take(w.hold()); left != nil {
				t.Errorf("left are %+v", left)
			}
		})
	}
}

// A manifest is the last token of its tasks: it is acked only after the store has taken them back.
func TestPatrolKeepsAManifestUntilTheStoreHasTheTasks(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*faulty, func() error){
		"when it asks":         func(f *faulty, fault func() error) { f.positions = fault },
		"when it writes":       func(f *faulty, fault func() error) { f.apply = fault },
		"when its answer dies": func(f *faulty, fault func() error) { f.Store = lostAnswers{f.Store, fault} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := &spy{Broker: w.broker}
			var acksBefore, faults atomic.Int32
			f := &faulty{Store: w.store}
			fail(f, func() error {
				if faults.Add(1) > 2 {
					return nil
				}
				acksBefore.Add(int32(len(s.saw("acked"))))
				return errFault
			})
			j := w.janitor(func(o *Options) { o.Broker, o.Store = s, f })
			run, list := w.openRun(), w.ticketed(2)
			w.claim(run, list...)
			w.kill(run)
			w.send(w.hold(), manifest(run, 1, list...))
			w.patrol(j)
			w.eventually("the manifest is settled", func() bool { return len(s.saw("acked")) == 1 })
			for _, ticket := range list {
				if task := w.task(ticket.Task); task.State != holdfast.Ready || task.Attempt != 2 || task.Crashes != 1 {
					t.Errorf("got %+v", task)
				}
			}
			if acksBefore.Load() != 0 {
				t.Error("the manifest was acked before its tasks were taken back")
			}
			if faults.Load() == 0 {
				t.Error("nothing failed")
			}
			if n := len(s.saw("received")); n != 1 {
				t.Errorf("the manifest was delivered %d times; each return counts against its limit", n)
			}
		})
	}
}

// The manifest of a live run that grows old is written anew: with what is open only, under its page
// number, at the tail. The old one goes after the confirm.
func TestPatrolWritesOldManifestsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker, refuse: firstOnes(2)}
	j := w.janitor(func(o *Options) { o.Broker, o.PatrolAfter = s, time.Nanosecond })
	run, list := w.openRun(), w.ticketed(4)
	tasks := w.claim(run, list...)
	w.settle(tasks[0], holdfast.Returned(nil))
	w.settle(tasks[1], holdfast.Interrupted(nil))
	w.send(w.hold(), manifest(run, 7, list...))
	before := [2]holdfast.Task{w.task(tasks[2].ID), w.task(tasks[3].ID)}
	stop := w.patrol(j)
	w.eventually("the old manifest is acked", func() bool { return len(s.saw("acked")) > 0 })
	stop()
	again := manifest(run, 7, list[2:]...)
	again.Manifest.Rounds = 1
	want := string(again.Encode())
	order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" })
	if len(order) < 4 || !slices.Equal(order[:4], []string{"refused", "refused", "stored", "acked"}) {
		t.Errorf("it was %v", order)
	}
	if e := s.saw("stored")[0]; e.queue != w.hold() || e.body != want {
		t.Errorf("written was %s, want %s", e.body, want)
	}
	for _, m := range w.take(w.hold()) { // perhaps once more anew
		if m.Manifest == nil || m.Manifest.Page != 7 || !slices.Equal(m.Manifest.Tickets, list[2:]) {
			t.Errorf("left is %s, want %s", m.Encode(), want)
		}
	}
	w.untouched(before[0])
	w.untouched(before[1])
}

// The longer the tasks of a page run, the more rarely they are asked about, up to a limit.
func TestPatrolAsksEverMoreRarely(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked []message.Ticket
	f := &asking{faulty{Store: w.store}, &asked}
	j := w.janitor(func(o *Options) { o.Store, o.PatrolAfter = f, 10*time.Second })
	run, list := w.openRun(), w.ticketed(8)
	w.claim(run, list...)
	var hand []inHand
	for i, age := range []struct {
		rounds int
		age    time.Duration
	}{
		{0, 9 * time.Second}, {0, 10 * time.Second}, {1, 19 * time.Second}, {1, 20 * time.Second},
		{3, 79 * time.Second}, {3, 80 * time.Second}, {70, longestLook - time.Second}, {70, longestLook},
	} {
		m := message.Manifest{Run: run, Page: int64(i + 1), Tickets: list[i : i+1], Rounds: age.rounds}
		w.send(w.hold(), message.Message{Manifest: &m})
		hand = append(hand, inHand{uint64(i + 1), m, time.Now().Add(-age.age)})
	}
	in := w.listen(w.hold())
	for range hand {
		in.next()
	}
	stay, err := j.walk(t.Context(), in.sub, hand)
	w.must(err)
	w.sameTickets("asked about", asked, []message.Ticket{list[1], list[3], list[5], list[7]})
	if len(stay) != 4 {
		t.Errorf("%d stay in hand", len(stay))
	}
}

// A page that is finished is dropped when the patrol asks, without being written anew.
func TestPatrolDropsOldManifestsOfFinishedTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker, o.PatrolAfter = s, time.Nanosecond })
	run, list := w.openRun(), w.ticketed(2)
	for _, task := range w.claim(run, list...) {
		w.settle(task, holdfast.Returned(nil))
	}
	w.send(w.hold(), manifest(run, 1, list...))
	stop := w.patrol(j)
	w.eventually("the manifest is acked", func() bool { return len(s.saw("acked")) == 1 })
	stop()
	if left := w.take(w.hold()); left != nil || len(s.saw("stored")) != 0 {
		t.Errorf("left are %+v, written %v", left, s.saw("stored"))
	}
}

// Until it is old nobody is asked about the manifest of a live run.
func TestPatrolLeavesYoungManifestsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	var walks atomic.Int32
	f := &walked{faulty: faulty{Store: w.store, positions: func() error { return errNever }}, walks: &walks}
	j := w.janitor(func(o *Options) { o.Broker, o.Store, o.PatrolAfter = s, f, time.Hour })
	run, list := w.openRun(), w.ticketed(1)
	w.claim(run, list...)
	w.send(w.hold(), manifest(run, 1, list...))
	stop := w.patrol(j)
	w.eventually("the patrol has looked a few times", func() bool { return walks.Load() >= 3 })
	stop()
	if order := s.order(); !slices.Equal(order, []string{"received"}) {
		t.Errorf("it was %v", order)
	}
	if left := w.take(w.hold()); len(left) != 1 {
		t.Errorf("left are %+v", left)
	}
}

// Two runs may have met a ticket: then the manifest follows the run that holds the task.
func TestPatrolHandsATaskToTheManifestOfItsHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topology.Shards = 4
	w.declare()
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker = s })
	gone, holder, list := w.openRun(), w.openRun(), w.ticketed(2)
	if w.topology.Hold(gone) == w.topology.Hold(holder) {
		t.Fatal("the test needs runs in different holding queues")
	}
	task := w.claim(holder, list...)[0]
	w.kill(gone)
	w.send(w.topology.Hold(gone), manifest(gone, 3, list...))
	sub, err := s.Subscribe(t.Context(), w.topology.Hold(gone), 10)
	w.must(err)
	defer sub.Close()
	d := <-sub.Deliveries()
	_, err = j.walk(t.Context(), sub, []inHand{{d.Tag, *w.decode(d.Body).Manifest, time.Now()}})
	w.must(err)
	got := w.take(w.topology.Hold(holder))
	if len(got) != 1 || got[0].Manifest == nil || got[0].Manifest.Run != holder || got[0].Manifest.Page != 0 || !slices.Equal(got[0].Manifest.Tickets, list) {
		t.Errorf("got %+v", got)
	}
	w.untouched(w.task(task.ID))
	if order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" }); !slices.Equal(order, []string{"stored", "acked"}) {
		t.Errorf("it was %v", order)
	}
}

// A database that lost its last commits may know nothing of the claim, or of the run: the manifest is
// then what gives the task its ticket again.
func TestPatrolRepairsWhatTheDatabaseForgot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor(nil)
	run := w.openRun()
	list := w.ticketed(3)
	delayed := newTask()
	delayed.Delay = time.Hour
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{delayed}, 0)
	w.must(err)
	waits := message.Ticket{Task: inserted.Tasks[0].ID, Attempt: 1}
	before := w.task(waits.Task)
	ahead := list[2]
	ahead.Attempt = 4
	w.kill(run)
	const unknown = holdfast.RunID(1 << 40)
	w.send(w.hold(), manifest(run, 1, list[0], waits), manifest(unknown, 1, list[1]), manifest(unknown, 2, ahead))
	w.patrol(j)
	for _, ticket := range list {
		w.eventually("the task waits for a new ticket", func() bool { return !w.position(ticket).Ticketed })
	}
	_, err = j.dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("published", w.takeTickets(w.main()), list)
	w.untouched(before)
}

// What no patrol can read is put aside for a person, with the reason, and only then acked.
func TestPatrolPutsAsideWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, reason string }{
		"garbage":       {"{", "not a holdfast message"},
		"a new version": {`{"v":2,"t":[[1,1]],"run":1,"page":1}`, "version 2"},
		"tickets":       {string(tickets(message.Ticket{Task: 1, Attempt: 1}).Encode()), "only manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := &spy{Broker: w.broker, refuse: firstOnes(1)}
			j := w.janitor(func(o *Options) { o.Broker = s })
			w.sendRaw(w.hold(), test.body)
			stop := w.patrol(j)
			w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
			stop()
			order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" })
			if !slices.Equal(order, []string{"refused", "stored", "acked"}) {
				t.Errorf("it was %v", order)
			}
			if reason := s.saw("stored")[0].headers["holdfast-reason"]; !strings.Contains(reason, test.reason) {
				t.Errorf("the reason is %q, want %q", reason, test.reason)
			}
			if got := w.takeRaw(w.topology.Quarantine()); !slices.Equal(got, []string{test.body}) {
				t.Errorf("put aside are %q", got)
			}
			if left := w.takeRaw(w.hold()); left != nil {
				t.Errorf("left are %q", left)
			}
		})
	}
}

// A patrol that loses its connection gets its manifests again.
func TestPatrolLosesNothingWithItsConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remote, proxy := w.proxiedBroker()
	s := &spy{Broker: remote}
	j := w.janitor(func(o *Options) { o.Broker = s })
	run, list := w.openRun(), w.ticketed(40)
	w.claim(run, list...)
	for i := 0; i < len(list); i += 4 {
		w.send(w.hold(), manifest(run, int64(i/4+1), list[i:i+4]...))
	}
	stop := w.patrol(j)
	w.eventually("all manifests are in hand", func() bool { return len(s.saw("received")) == 10 })
	proxy.CutAbrupt()
	w.eventually("all manifests are in hand again", func() bool { return len(s.saw("received")) == 20 })
	w.kill(run)
	w.eventually("all manifests are settled", func() bool { return len(s.saw("acked")) == 10 })
	stop()
	if n := w.number("select count(*) from holdfast.tasks where state = 'ready' and attempt = 2 and crashes = 1"); n != len(list) {
		t.Errorf("%d of %d tasks came back", n, len(list))
	}
	if left := w.take(w.hold()); left != nil {
		t.Errorf("left are %+v", left)
	}
}

// With very many manifests in hand every one is asked about, in batches.
func TestPatrolSettlesManyManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker = s })
	run, list := w.openRun(), w.ticketed(2*patrolBatch+50)
	w.claim(run, list...)
	messages := make([]message.Message, len(list))
	for i, ticket := range list {
		messages[i] = manifest(run, int64(i+1), ticket)
	}
	w.send(w.hold(), messages...)
	stop := w.patrol(j)
	w.eventually("all manifests are in hand", func() bool { return len(s.saw("received")) == len(list) })
	w.kill(run)
	w.eventually("all manifests are settled", func() bool { return len(s.saw("acked")) == len(list) })
	stop()
	if n := w.number("select count(*) from holdfast.tasks where state = 'ready' and attempt = 2"); n != len(list) {
		t.Errorf("%d of %d tasks came back", n, len(list))
	}
}
