package janitor

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// The patrol drops a manifest without a query for its tasks if the worker's cursor has passed its page. This does not
// apply to a manifest without a page number.
func TestPatrolDropsFinishedPagesWithoutAQuery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	var queries atomic.Int32
	j := w.janitor(func(o *Options) {
		o.Broker = s
		o.Store = &faultyStore{Store: w.store, positions: func() error { queries.Add(1); return errNever }}
	})
	worker, list := w.registerWorker(), w.ticketed(3)
	w.claim(worker, list...)
	_, err := w.store.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Taken: 3, Settled: 2})
	w.must(err)
	w.send(w.hold(), manifest(worker, 1, list[0]), manifest(worker, 3, list[1]), manifest(worker, 0, list[2]), manifest(worker, 2, list[0]))
	stop := w.patrol(j)
	w.eventually("two pages are dropped", func() bool { return len(s.saw("received")) == 4 && len(s.saw("acked")) == 2 })
	_, err = w.store.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Taken: 3, Settled: 3})
	w.must(err)
	w.eventually("the third page is dropped after the worker's next renewal", func() bool { return len(s.saw("acked")) == 3 })
	stop()
	if n := queries.Load(); n != 0 {
		t.Errorf("%d queries for tasks, want none", n)
	}
	if left := w.take(w.hold()); len(left) != 1 || left[0].Manifest == nil || left[0].Manifest.Page != 0 {
		t.Errorf("left in the holding queue: %+v, want the manifest without a page", left)
	}
}

// The patrol takes back the tasks in a manifest of a dead worker, even if another process wrote the manifest without a
// page number. Settled tasks do not change.
func TestPatrolTakesBackTheTasksOfADeadWorker(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]int64{"its own manifest": 5, "a manifest without a page": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			j := w.janitor(nil)
			worker, list := w.registerWorker(), w.ticketed(5)
			tasks := w.claim(worker, list...)
			w.settle(tasks[0], holdfast.Returned(nil))
			w.settle(tasks[1], holdfast.Returned(holdfast.RetryAfter(time.Hour, errFault)))
			_, err := w.store.Renew(t.Context(), store.Renewal{Worker: worker, Lease: time.Hour, Taken: 9, Settled: 4})
			w.must(err)
			w.kill(worker)
			done, waits := w.task(tasks[0].ID), w.task(tasks[1].ID)
			w.send(w.hold(), manifest(worker, page, list...))
			stop := w.patrol(j)
			for _, task := range tasks[2:] {
				w.eventually("the task is ready again", func() bool { return w.task(task.ID).State == holdfast.Ready })
				if got := w.task(task.ID); got.Attempt != 2 || got.Crashes != 1 || got.Failures != 0 {
					t.Errorf("got %+v", got)
				}
			}
			w.unchanged(done)
			w.unchanged(waits)
			_, err = j.dispatchDue(t.Context())
			w.must(err)
			w.sameTickets("in the requeue queue", w.takeTickets(w.requeue()), []message.Ticket{next(list[2]), next(list[3]), next(list[4])})
			if got := w.takeTickets(w.main()); got != nil {
				t.Errorf("in the main queue: %v, want none", got)
			}
			stop()
			if left := w.take(w.hold()); left != nil {
				t.Errorf("left in the holding queue: %+v", left)
			}
		})
	}
}

// If a manifest is the only record of its tasks in the broker, the patrol acknowledges it only after the store has
// taken the tasks back.
func TestPatrolKeepsAManifestUntilTheStoreHasTheTasks(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*faultyStore, func() error){
		"when it queries":        func(f *faultyStore, fault func() error) { f.positions = fault },
		"when it writes":         func(f *faultyStore, fault func() error) { f.apply = fault },
		"when the reply is lost": func(f *faultyStore, fault func() error) { f.Store = lostReplies{f.Store, fault} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := &spy{Broker: w.broker}
			var acksBefore, faults atomic.Int32
			f := &faultyStore{Store: w.store}
			fail(f, func() error {
				if faults.Add(1) > 2 {
					return nil
				}
				acksBefore.Add(int32(len(s.saw("acked"))))
				return errFault
			})
			j := w.janitor(func(o *Options) { o.Broker, o.Store = s, f })
			worker, list := w.registerWorker(), w.ticketed(2)
			w.claim(worker, list...)
			w.kill(worker)
			w.send(w.hold(), manifest(worker, 1, list...))
			w.patrol(j)
			w.eventually("the manifest is settled", func() bool { return len(s.saw("acked")) == 1 })
			for _, ticket := range list {
				if task := w.task(ticket.Task); task.State != holdfast.Ready || task.Attempt != 2 || task.Crashes != 1 {
					t.Errorf("got %+v", task)
				}
			}
			if acksBefore.Load() != 0 {
				t.Error("the manifest was acknowledged before its tasks were taken back")
			}
			if faults.Load() == 0 {
				t.Error("no call failed")
			}
			if n := len(s.saw("received")); n != 1 {
				t.Errorf("the manifest was delivered %d times; each requeue counts against its delivery limit", n)
			}
		})
	}
}

// The patrol replaces an old manifest of a live worker by one with the open tasks only and the same page number. It
// acknowledges the old manifest after the confirm of the new one.
func TestPatrolReplacesOldManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker, refuse: firstMessages(2)}
	j := w.janitor(func(o *Options) { o.Broker, o.PatrolAfter = s, time.Nanosecond })
	worker, list := w.registerWorker(), w.ticketed(4)
	tasks := w.claim(worker, list...)
	w.settle(tasks[0], holdfast.Returned(nil))
	w.settle(tasks[1], holdfast.Interrupted(nil))
	w.send(w.hold(), manifest(worker, 7, list...))
	before := [2]holdfast.Task{w.task(tasks[2].ID), w.task(tasks[3].ID)}
	stop := w.patrol(j)
	w.eventually("the old manifest is acked", func() bool { return len(s.saw("acked")) > 0 })
	stop()
	replacement := manifest(worker, 7, list[2:]...)
	replacement.Manifest.Rounds = 1
	want := string(replacement.Encode())
	order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" })
	if len(order) < 4 || !slices.Equal(order[:4], []string{"refused", "refused", "stored", "acked"}) {
		t.Errorf("events are %v", order)
	}
	if e := s.saw("stored")[0]; e.queue != w.hold() || e.body != want {
		t.Errorf("published %s, want %s", e.body, want)
	}
	for _, m := range w.take(w.hold()) { // it may have been replaced more than once
		if m.Manifest == nil || m.Manifest.Page != 7 || !slices.Equal(m.Manifest.Tickets, list[2:]) {
			t.Errorf("left in the holding queue: %s, want %s", m.Encode(), want)
		}
	}
	w.unchanged(before[0])
	w.unchanged(before[1])
}

// The patrol checks the manifests of long tasks at growing intervals, up to a limit.
func TestPatrolChecksAtGrowingIntervals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var queried []message.Ticket
	f := &queryRecorder{faultyStore{Store: w.store}, &queried}
	j := w.janitor(func(o *Options) { o.Store, o.PatrolAfter = f, 10*time.Second })
	worker, list := w.registerWorker(), w.ticketed(8)
	w.claim(worker, list...)
	var received []receivedManifest
	var ages []time.Duration
	early := min(slow.Times(time.Second), 5*time.Second) // longer than a pass
	for i, age := range []struct {
		rounds int
		age    time.Duration
	}{
		{0, 10*time.Second - early}, {0, 10 * time.Second}, {1, 20*time.Second - early}, {1, 20 * time.Second},
		{3, 80*time.Second - early}, {3, 80 * time.Second}, {70, maxCheckAfter - early}, {70, maxCheckAfter},
	} {
		m := message.Manifest{Worker: worker, Page: int64(i + 1), Tickets: list[i : i+1], Rounds: age.rounds}
		w.send(w.hold(), message.Message{Manifest: &m})
		received, ages = append(received, receivedManifest{tag: uint64(i + 1), manifest: m}), append(ages, age.age)
	}
	in := w.listen(w.hold())
	for range received {
		in.next()
	}
	for i, age := range ages {
		received[i].receivedAt = time.Now().Add(-age)
	}
	kept, err := j.pass(t.Context(), in.sub, received)
	w.must(err)
	w.sameTickets("queried", queried, []message.Ticket{list[1], list[3], list[5], list[7]})
	if len(kept) != 4 {
		t.Errorf("kept %d manifests, want 4", len(kept))
	}
}

// The patrol does not replace an old manifest if all of its tasks are finished.
func TestPatrolDropsOldManifestsOfFinishedTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker, o.PatrolAfter = s, time.Nanosecond })
	worker, list := w.registerWorker(), w.ticketed(2)
	for _, task := range w.claim(worker, list...) {
		w.settle(task, holdfast.Returned(nil))
	}
	w.send(w.hold(), manifest(worker, 1, list...))
	stop := w.patrol(j)
	w.eventually("the manifest is acked", func() bool { return len(s.saw("acked")) == 1 })
	stop()
	if left := w.take(w.hold()); left != nil || len(s.saw("stored")) != 0 {
		t.Errorf("left in the holding queue: %+v; published: %v", left, s.saw("stored"))
	}
}

// The patrol keeps the manifest of a live worker, without a query for its tasks, until the manifest is old.
func TestPatrolLeavesYoungManifestsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	var passes atomic.Int32
	f := &passCounter{faultyStore: faultyStore{Store: w.store, positions: func() error { return errNever }}, passes: &passes}
	j := w.janitor(func(o *Options) { o.Broker, o.Store, o.PatrolAfter = s, f, time.Hour })
	worker, list := w.registerWorker(), w.ticketed(1)
	w.claim(worker, list...)
	w.send(w.hold(), manifest(worker, 1, list...))
	stop := w.patrol(j)
	w.eventually("the patrol has done a few passes", func() bool { return passes.Load() >= 3 })
	stop()
	if order := s.order(); !slices.Equal(order, []string{"received"}) {
		t.Errorf("events are %v", order)
	}
	if left := w.take(w.hold()); len(left) != 1 {
		t.Errorf("left in the holding queue: %+v", left)
	}
}

// If another worker runs the tasks of a manifest, the patrol publishes a manifest for that worker.
func TestPatrolPublishesTheManifestForTheWorkerThatRunsTheTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.topology.HoldingQueues = 4
	w.declare()
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker = s })
	dead, owner, list := w.registerWorker(), w.registerWorker(), w.ticketed(2)
	for w.topology.HoldingQueue(dead) == w.topology.HoldingQueue(owner) {
		owner = w.registerWorker()
	}
	task := w.claim(owner, list...)[0]
	w.kill(dead)
	w.send(w.topology.HoldingQueue(dead), manifest(dead, 3, list...))
	sub, err := s.Subscribe(t.Context(), w.topology.HoldingQueue(dead), 10)
	w.must(err)
	defer sub.Close()
	d := <-sub.Deliveries()
	_, err = j.pass(t.Context(), sub, []receivedManifest{{d.Tag, *w.decode(d.Body).Manifest, time.Now()}})
	w.must(err)
	got := w.take(w.topology.HoldingQueue(owner))
	if len(got) != 1 || got[0].Manifest == nil || got[0].Manifest.Worker != owner || got[0].Manifest.Page != 0 || !slices.Equal(got[0].Manifest.Tickets, list) {
		t.Errorf("got %+v", got)
	}
	w.unchanged(w.task(task.ID))
	if order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" }); !slices.Equal(order, []string{"stored", "acked"}) {
		t.Errorf("events are %v", order)
	}
}

// If the database has lost commits, it may not know the claim or the worker. Then the patrol makes the tasks of the
// manifest due for new tickets.
func TestPatrolRepairsLostCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.janitor(nil)
	worker := w.registerWorker()
	list := w.ticketed(3)
	delayed := newTask()
	delayed.Delay = time.Hour
	inserted, err := w.store.Insert(t.Context(), []holdfast.NewTask{delayed}, 0)
	w.must(err)
	waits := message.Ticket{Task: inserted.Tasks[0].ID, Attempt: 1}
	before := w.task(waits.Task)
	ahead := list[2]
	ahead.Attempt = 4
	w.kill(worker)
	const unknown = holdfast.WorkerID(1 << 40)
	w.send(w.hold(), manifest(worker, 1, list[0], waits), manifest(unknown, 1, list[1]), manifest(unknown, 2, ahead))
	w.patrol(j)
	for _, ticket := range list {
		w.eventually("the task waits for a new ticket", func() bool { return !w.position(ticket).Ticketed })
	}
	_, err = j.dispatchDue(t.Context())
	w.must(err)
	w.sameTickets("published", w.takeTickets(w.main()), list)
	w.unchanged(before)
}

// The patrol quarantines a message that is not a manifest, with the reason, before it acknowledges the message. A
// message of a newer version goes to the unread queue instead.
func TestPatrolQuarantinesMalformedMessages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ body, reason string }{
		"garbage":       {"{", "not a holdfast message"},
		"a new version": {`{"v":2,"t":[[1,1]],"worker":1,"page":1}`, ""},
		"tickets":       {string(tickets(message.Ticket{Task: 1, Attempt: 1}).Encode()), "only manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := &spy{Broker: w.broker, refuse: firstMessages(1)}
			j := w.janitor(func(o *Options) { o.Broker = s })
			w.sendRaw(w.hold(), test.body)
			stop := w.patrol(j)
			w.eventually("the message is acked", func() bool { return len(s.saw("acked")) == 1 })
			stop()
			order := slices.DeleteFunc(s.order(), func(what string) bool { return what == "received" })
			if !slices.Equal(order, []string{"refused", "stored", "acked"}) {
				t.Errorf("events are %v", order)
			}
			if reason := s.saw("stored")[0].headers["holdfast-reason"]; !strings.Contains(reason, test.reason) {
				t.Errorf("the reason is %q, want %q", reason, test.reason)
			}
			target := w.topology.Quarantine()
			if test.reason == "" {
				target = w.topology.Unread()
			}
			if got := w.takeRaw(target); !slices.Equal(got, []string{test.body}) {
				t.Errorf("%s has %q", target, got)
			}
			if left := w.takeRaw(w.hold()); left != nil {
				t.Errorf("left in the holding queue: %q", left)
			}
		})
	}
}

// After a lost connection, the patrol receives its manifests again.
func TestPatrolLosesNothingWithItsConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	remote, proxy := w.proxiedBroker()
	s := &spy{Broker: remote}
	j := w.janitor(func(o *Options) { o.Broker = s })
	worker, list := w.registerWorker(), w.ticketed(40)
	w.claim(worker, list...)
	for i := 0; i < len(list); i += 4 {
		w.send(w.hold(), manifest(worker, int64(i/4+1), list[i:i+4]...))
	}
	stop := w.patrol(j)
	w.eventually("all manifests are received", func() bool { return len(s.saw("received")) == 10 })
	proxy.CutAbrupt()
	w.eventually("all manifests are received again", func() bool { return len(s.saw("received")) == 20 })
	w.kill(worker)
	w.eventually("all manifests are settled", func() bool { return len(s.saw("acked")) == 10 })
	stop()
	if n := w.number("select count(*) from holdfast.tasks where state = 'ready' and attempt = 2 and crashes = 1"); n != len(list) {
		t.Errorf("%d of %d tasks came back", n, len(list))
	}
	if left := w.take(w.hold()); left != nil {
		t.Errorf("left in the holding queue: %+v", left)
	}
}

// The patrol checks very many manifests in batches.
func TestPatrolSettlesManyManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &spy{Broker: w.broker}
	j := w.janitor(func(o *Options) { o.Broker = s })
	worker, list := w.registerWorker(), w.ticketed(2*patrolBatch+50)
	w.claim(worker, list...)
	messages := make([]message.Message, len(list))
	for i, ticket := range list {
		messages[i] = manifest(worker, int64(i+1), ticket)
	}
	w.send(w.hold(), messages...)
	stop := w.patrol(j)
	w.eventually("all manifests are received", func() bool { return len(s.saw("received")) == len(list) })
	w.kill(worker)
	w.eventually("all manifests are settled", func() bool { return len(s.saw("acked")) == len(list) })
	stop()
	if n := w.number("select count(*) from holdfast.tasks where state = 'ready' and attempt = 2"); n != len(list) {
		t.Errorf("%d of %d tasks came back", n, len(list))
	}
}
