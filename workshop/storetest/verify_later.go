package storetest

import (
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// ticketChecks checks the tickets of a store whose times it moves.
type ticketChecks struct {
	*suite
	shift func(table, column string, d time.Duration)
}

// later lets a time pass for queues, sentinels, tickets, outbox entries and workers.
func (c *ticketChecks) later(d time.Duration) {
	c.Helper()
	for table, columns := range map[string][]string{
		"queues":  {"sentinel_sent_at", "drained_through", "drained_at", "held_through", "held_at", "proved_through"},
		"tasks":   {"created_at", "next_run_at", "ticketed_at"},
		"outbox":  {"created_at"},
		"workers": {"started_at"},
	} {
		for _, column := range columns {
			c.shift(table, column, -d)
		}
	}
}

// want checks that the tickets of these tasks have a fault, and that no other one has.
func (c *ticketChecks) want(when string, limits store.VerifyLimits, code store.FaultCode, tasks ...message.Ticket) {
	c.Helper()
	limits.Orphan = time.Hour
	found := c.verify(limits)
	got, want := found[code], ids(tasks)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(found) > min(len(tasks), 1) {
		c.Errorf("%s: the check finds %v, want %s of %v", when, found, code, want)
	}
}

// insertIn stores a task of a type in a queue. Its ticket is published, and its outbox entry is deleted unless kept is
// set.
func (c *ticketChecks) insertIn(queue, taskType string, kept bool) message.Ticket {
	c.Helper()
	task := newTask()
	task.Queue, task.Type = queue, taskType
	inserted, err := c.Insert(c.ctx, []holdfast.NewTask{task}, 0)
	c.must(err)
	if !kept {
		c.must(c.DeleteOutbox(c.ctx, []int64{inserted.Entries[0].ID}))
	}
	return inserted.Entries[0].Tickets[0]
}

// deliver delivers a sentinel of each queue but one.
func (c *ticketChecks) deliver(except string) {
	c.Helper()
	sentinels, err := c.SentinelsDue(c.ctx, 0, 0)
	c.must(err)
	for _, sentinel := range sentinels {
		if sentinel.Queue != except {
			c.must(c.Drained(c.ctx, sentinel))
		}
	}
}

// testVerifyLater finds the ticket that its worker did not get. Other queues have tickets too: one got no sentinel, and
// one has an outbox entry.
func testVerifyLater(s *suite, shift func(table, column string, d time.Duration)) {
	const silent, covered = "silent", "covered"
	c := &ticketChecks{s, shift}
	s.idleWorker()
	ticket := c.insertIn(defaultQueue, kind, false)
	c.insertIn(silent, kind, false)
	c.insertIn(defaultQueue, other, false) // no worker takes it
	c.insertIn(covered, kind, true)
	c.later(15 * time.Second)
	at := store.VerifyLimits{Overdue: time.Microsecond}
	c.want("before a sentinel", at, "")
	c.deliver(silent)
	c.want("the sentinel has just left", at, "")
	s.must(s.KeepSentinels(s.ctx, time.Hour))
	c.want("the sentinel was just kept", at, "")
	c.later(time.Minute)
	shift("workers", "started_at", -time.Hour)
	overdue := func(when string) {
		s.Helper()
		c.want(when, at, store.OverdueTicket, ticket)
	}
	overdue("a minute later")
	for _, limits := range []struct {
		slack, overdue time.Duration
		found          bool
	}{{2 * time.Second, time.Minute, true}, {time.Hour, time.Minute, true}, {0, 10 * time.Minute, false}} {
		at := store.VerifyLimits{Slack: limits.slack, Overdue: limits.overdue}
		if limits.found {
			c.want("with a slack", at, store.OverdueTicket, ticket)
		} else {
			c.want("with a longer time", at, "")
		}
	}
	shift("tasks", "ticketed_at", 14*time.Second)
	c.want("the ticket was sent shortly before the sentinel", store.VerifyLimits{Slack: time.Hour, Overdue: time.Second}, "")
	shift("tasks", "ticketed_at", time.Minute)
	c.want("the ticket was sent after the sentinel", at, "")
	shift("tasks", "ticketed_at", -74*time.Second)

	for _, column := range []string{"drained_through", "drained_at", "held_at"} {
		shift("queues", column, 2*time.Hour)
		c.want("a sentinel has a time in the future", at, "")
		shift("queues", column, -2*time.Hour)
	}
	s.pause(store.Subject{Queue: silent}, 0)
	overdue("another queue is paused")
	for _, d := range []time.Duration{0, time.Hour} {
		s.pause(store.Subject{Queue: defaultQueue}, d)
		c.want("the queue is paused", at, "")
		s.resume(store.Subject{Queue: defaultQueue})
		overdue("the pause was ended")
	}
	s.pause(store.Subject{Queue: defaultQueue}, time.Millisecond)
	s.eventually("the pause ends", func() bool { return len(s.gates()) == 1 })
	overdue("the pause has ended")
	s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: defaultQueue}}, Concurrency: 10})
	overdue("the queue has a limit")
	s.must(s.PassedOn(s.ctx, []message.Ticket{ticket}))
	shift("tasks", "ticketed_at", -160*time.Second) // about 100 seconds before the sentinel
	shift("outbox", "created_at", -160*time.Second)
	c.want("the ticket was passed on", store.VerifyLimits{Slack: 20 * time.Second, Overdue: time.Second}, "")
	c.want("the ticket was passed on", store.VerifyLimits{Slack: time.Second, Overdue: time.Second}, store.OverdueTicket, ticket)
}

// testVerifyProof finds the ticket of one queue that two sentinels prove lost.
func testVerifyProof(s *suite, shift func(table, column string, d time.Duration)) {
	c := &ticketChecks{s, shift}
	lost, requeued := c.insertIn(defaultQueue, kind, false), c.insertIn(defaultQueue, kind, false)
	c.insertIn("covered", kind, true)
	s.must(s.PassedOn(s.ctx, []message.Ticket{requeued}))
	c.later(15 * time.Second)
	c.deliver("")
	s.must(s.KeepSentinels(s.ctx, time.Hour))
	c.want("after one sentinel", store.VerifyLimits{}, "")
	c.later(20 * time.Second)
	c.deliver("")
	c.want("within the slack", store.VerifyLimits{Slack: time.Minute}, "")
	c.want("after two sentinels", store.VerifyLimits{}, store.LostTicket, lost)
	c.want("after two sentinels", store.VerifyLimits{Slack: 10 * time.Second}, store.LostTicket, lost)
	shift("tasks", "ticketed_at", 14900*time.Millisecond)
	c.want("the ticket was sent shortly before the first sentinel", store.VerifyLimits{Slack: 10 * time.Second}, "")
	shift("tasks", "ticketed_at", -14900*time.Millisecond)
	busy, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "busy", Concurrency: 2}, time.Minute)
	s.must(err)
	renew := func(lease time.Duration) {
		s.Helper()
		_, err := s.Renew(s.ctx, store.Renewal{Worker: busy, Lease: lease, Running: 2})
		s.must(err)
	}
	renew(time.Minute)
	c.want("while a worker is busy", store.VerifyLimits{}, "")
	renew(time.Microsecond)
	s.eventually("Fence fences the worker", func() bool {
		fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
		s.must(err)
		return len(fenced) == 1
	})
	c.want("after the end of the busy worker", store.VerifyLimits{}, store.LostTicket, lost)
}

// testVerifyIdle finds a due task without a ticket, and a task whose ticket is to be published much too late, only if
// an idle worker takes them.
func testVerifyIdle(s *suite, shift func(table, column string, d time.Duration)) {
	postponed := newTask()
	postponed.Delay = time.Hour
	tickets := s.insert(newTask(), postponed, newTask())
	_, err := s.Unticket(s.ctx, tickets[:1])
	s.must(err)
	want := func(when string, found bool) {
		s.Helper()
		want := make(map[store.FaultCode][]holdfast.TaskID)
		if found {
			want[store.OverdueDispatch], want[store.OverduePostponed] = ids(tickets[:1]), ids(tickets[1:2])
		}
		if got := s.verify(store.VerifyLimits{Slack: time.Hour, Overdue: time.Minute, Orphan: time.Hour}); !maps.EqualFunc(got, want, slices.Equal) {
			s.Errorf("%s: the check finds %v, want %v", when, got, want)
		}
	}
	shift("tasks", "next_run_at", -2*time.Hour)
	shift("tasks", "due_at", -10*time.Minute)
	for _, w := range []struct {
		when  string
		info  store.WorkerInfo
		then  func(worker holdfast.WorkerID)
		takes bool
	}{
		{"a worker without types", store.WorkerInfo{}, nil, false},
		{"a worker for another type", store.WorkerInfo{Types: []string{other}}, nil, false},
		{"a worker for another queue", store.WorkerInfo{Types: []string{kind}, Queues: []string{"elsewhere"}}, nil, false},
		{"a busy worker", store.WorkerInfo{Types: []string{kind}}, func(worker holdfast.WorkerID) {
			_, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour, Running: 2})
			s.must(err)
		}, false},
		{"a worker that shuts down", store.WorkerInfo{Types: []string{kind}}, func(worker holdfast.WorkerID) { s.must(s.Drain(s.ctx, worker)) }, false},
		{"a worker that has ended", store.WorkerInfo{Types: []string{kind}}, s.fence, false},
		{"a worker for the queue", store.WorkerInfo{Types: []string{other, kind}, Queues: []string{"elsewhere", defaultQueue}}, s.fence, true},
		{"a worker for all queues", store.WorkerInfo{Types: []string{kind}}, func(holdfast.WorkerID) {}, true},
	} {
		w.info.Name, w.info.Concurrency = "idle", 2
		worker, err := s.RegisterWorker(s.ctx, w.info, time.Hour)
		s.must(err)
		want("just after the start of "+w.when, false)
		if w.then != nil && !w.takes {
			w.then(worker)
		}
		shift("workers", "started_at", -2*time.Minute)
		want(w.when, w.takes)
		if w.then != nil && w.takes {
			w.then(worker)
		}
	}
	shift("tasks", "next_run_at", 2*time.Hour)
	shift("tasks", "due_at", 20*time.Minute)
	want("before the time of the task", false)
	shift("tasks", "next_run_at", -2*time.Hour)
	shift("tasks", "due_at", 5*time.Second-70*time.Minute)
	if found := s.verify(store.VerifyLimits{Slack: time.Hour, Overdue: time.Minute, Orphan: time.Hour})[store.OverduePostponed]; len(found) > 0 {
		s.Errorf("the tasks %v are to be published soon", found)
	}
}

// testVerifyOrphans finds the running tasks of a worker that ended some time ago, and of one whose lease expired some
// time ago.
func testVerifyOrphans(s *suite, shift func(table, column string, d time.Duration)) {
	worker, idle := s.registerWorker(), s.registerWorker()
	s.must(s.DeregisterWorker(s.ctx, idle, true))
	shift("workers", "ended_at", -time.Hour)
	tickets := s.insertN(4)
	s.mustClaim(worker, tickets[0])
	s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, tickets[1]) })
	s.move(s.mustClaim(worker, tickets[2])[0], holdfast.Returned(holdfast.RetryAfter(time.Hour, nil)))
	want := func(when string, orphan time.Duration, want map[store.FaultCode][]holdfast.TaskID) {
		s.Helper()
		limits := store.VerifyLimits{Slack: time.Hour, Overdue: time.Hour, Orphan: orphan}
		if got := s.verify(limits); !maps.EqualFunc(got, want, slices.Equal) {
			s.Errorf("%s: the check finds %v, want %v", when, got, want)
		}
		if suspicious, err := s.Suspicious(s.ctx, limits); err != nil || suspicious != (len(want) > 0) {
			s.Errorf("%s: Suspicious returned %t, %v", when, suspicious, err)
		}
	}
	shift("tasks", "started_at", -24*time.Hour)
	shift("workers", "lease_until", -10*time.Minute)
	want("just after the end of the worker", 5*time.Minute, nil)
	shift("workers", "ended_at", -10*time.Minute)
	ended := map[store.FaultCode][]holdfast.TaskID{store.ZombieEnded: {tickets[1].Task}}
	want("some time after the end", 5*time.Minute, ended)
	want("within the time", time.Hour, nil)
	shift("workers", "lease_until", -time.Hour)
	want("just after the lease has expired", 30*time.Minute, nil)
	shift("workers", "lease_until", -time.Hour)
	want("some time after the lease has expired", 30*time.Minute, map[store.FaultCode][]holdfast.TaskID{store.ZombieExpired: {tickets[0].Task}})
}
