package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var typeQueueTests = []test{
	{"lists what live workers handle", testHandlers},
	{"ends the waits of parked tasks of some types", testUnpark},
	{"ends the waits of many parked tasks among others", testUnparkMany},
	{"only sentinels of a type queue prove a ticket there lost", testTypeQueueLost},
	{"renews the tickets of a type queue", testTypeQueueUnticketed},
	{"a check judges a ticket in a type queue by its sentinels", testTypeQueueVerified},
	{"no description of queues has a type queue", testTypeQueueUndescribed},
}

func (s *suite) addTypeQueue() (name string) {
	s.Helper()
	name = holdfast.TypeQueue(defaultQueue, other)
	s.must(s.AddQueues(s.ctx, []string{name, defaultQueue}))
	s.must(s.AddQueues(s.ctx, []string{name}))
	s.must(s.AddQueues(s.ctx, nil))
	return name
}

// typed returns a task of the default queue with the type other.
func typed() holdfast.NewTask {
	task := newTask()
	task.Type = other
	return task
}

func testHandlers(s *suite) {
	worker := func(name string, queues, types []string) holdfast.WorkerID {
		return s.registerWorkerWith(store.WorkerInfo{Name: name, Concurrency: 1, Queues: queues, Types: types}, time.Hour)
	}
	want := func(when string, want ...store.Handler) {
		s.Helper()
		got, err := s.Handlers(s.ctx)
		s.must(err)
		slices.SortFunc(got, func(a, b store.Handler) int {
			return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Queue, b.Queue))
		})
		if !slices.Equal(got, want) {
			s.Errorf("%s: the handlers are %+v, want %+v", when, got, want)
		}
	}
	want("without a worker")
	worker("unknown types", nil, nil)
	worker("all queues", nil, []string{"a", "b"})
	worker("the same", nil, []string{"b", "a"})
	two := worker("two queues", []string{"x", "y"}, []string{"a"})
	ended := worker("ended", nil, []string{"c"})
	s.must(s.DeregisterWorker(s.ctx, ended, true))
	want("with workers", store.Handler{Type: "a"}, store.Handler{Type: "a", Queue: "x"}, store.Handler{Type: "a", Queue: "y"}, store.Handler{Type: "b"})
	s.must(s.Drain(s.ctx, two))
	want("while a worker drains", store.Handler{Type: "a"}, store.Handler{Type: "b"})
}

func testUnpark(s *suite) {
	elsewhere, high, delayed := typed(), typed(), typed()
	elsewhere.Queue, high.Priority, delayed.Delay = "elsewhere", holdfast.PriorityHigh, time.Minute
	tickets := s.insert(typed(), elsewhere, high, newTask(), delayed, typed())
	s.must(s.Park(s.ctx, slices.Concat(tickets[:4], tickets[5:]), 10*time.Minute, "no handler"))
	s.mustChange(s.changeOf(store.ActionCancel, s.task(tickets[5].Task), holdfast.Requested(holdfast.EventCancel)))
	unpark := func(want int, types, queues []string) {
		s.Helper()
		if n, err := s.Unpark(s.ctx, types, queues); n != want || err != nil {
			s.Errorf("Unpark of %q in %q returned %d, %v; want %d", types, queues, n, err, want)
		}
	}
	unpark(0, nil, nil)
	unpark(0, []string{"unknown"}, nil)
	unpark(0, []string{other}, []string{"unknown"})
	unpark(2, []string{"unknown", other}, []string{defaultQueue})
	unpark(1, []string{other}, nil)
	unpark(0, []string{other}, nil)
	due, _ := s.dispatch(10)
	got := make([]message.Ticket, len(due))
	for i, d := range due {
		got[i] = d.Ticket
	}
	slices.SortFunc(got, func(a, b message.Ticket) int { return cmp.Compare(a.Task, b.Task) })
	if !slices.Equal(got, tickets[:3]) {
		s.Errorf("due: %v, want %v", got, tickets[:3])
	}
	for _, ticket := range tickets[:3] {
		if task := s.task(ticket.Task); task.Parked == "" || task.Attempt != 1 || task.NextRunAt.Sub(task.CreatedAt) > time.Minute {
			s.Errorf("the task is %+v", task)
		}
	}
	if task := s.task(tickets[3].Task); task.Parked == "" {
		s.Errorf("a task of another type is %+v", task)
	}
	s.must(s.Park(s.ctx, tickets[:1], time.Minute, "again"))
	if wait := s.task(tickets[0].Task).NextRunAt.Sub(s.now()); wait > time.Minute {
		s.Errorf("the next park lasts %s, as if it was not the first", wait)
	}
	blocked := tickets[1]
	s.must(s.Block(s.ctx, s.pause(store.Subject{Type: other}, 0).ID, []message.Ticket{blocked}))
	if task := s.task(blocked.Task); task.Parked != "" || !task.NextRunAt.Equal(task.CreatedAt) { // see unparked in parts.sql
		s.Errorf("a task that was parked and then blocked is %+v", task)
	}
}

// testUnparkMany has more tasks than a step of Unpark reads, and most of them become due at the same time.
func testUnparkMany(s *suite) {
	const n = 2500
	tasks := make([]holdfast.NewTask, 2*n)
	for i := range tasks {
		tasks[i] = newTask()
		if i%2 == 1 {
			tasks[i].Type = other
		}
	}
	tickets := s.insert(tasks...)
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		s.must(s.Park(s.ctx, part, store.LongestPark, "no handler"))
	}
	if got, err := s.Unpark(s.ctx, []string{other}, nil); got != n || err != nil {
		s.Errorf("Unpark returned %d, %v; want %d", got, err, n)
	}
	if got, err := s.Unpark(s.ctx, []string{other}, nil); got != 0 || err != nil {
		s.Errorf("the second Unpark returned %d, %v; want 0", got, err)
	}
}

func testTypeQueueLost(s *suite) {
	name := s.addTypeQueue()
	deliver := func(queue string) {
		sentinels, err := s.SentinelsDue(s.ctx, 0, 0)
		s.must(err)
		for _, sentinel := range sentinels {
			if sentinel.Queue == queue {
				s.must(s.Drained(s.ctx, sentinel))
			}
		}
		s.must(s.KeepSentinels(s.ctx, 0))
	}
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{typed(), newTask()}, 0)
	s.must(err)
	s.must(s.DeleteOutbox(s.ctx, []int64{inserted.Entries[0].ID}))
	tickets := inserted.Entries[0].Tickets
	s.must(s.PassedOn(s.ctx, tickets))
	for range 3 {
		deliver(defaultQueue)
	}
	if lost, doubtful, err := s.UnticketLost(s.ctx, 0); lost != 0 || doubtful != 1 || err != nil || !s.position(tickets[0]).Ticketed {
		s.Errorf("after sentinels of the queue: %d lost, %d in doubt, %v; want the ticket of the other type in doubt", lost, doubtful, err)
	}
	for range 3 {
		deliver(name)
	}
	if lost, doubtful, err := s.UnticketLost(s.ctx, 0); lost != 0 || doubtful != 1 || err != nil || s.position(tickets[0]).Ticketed {
		s.Errorf("after sentinels of the type queue: %d lost, %d in doubt, %v; want one in doubt", lost, doubtful, err)
	}
}

func testTypeQueueUnticketed(s *suite) {
	name := s.addTypeQueue()
	tickets := s.insert(typed(), typed(), newTask())
	s.must(s.PassedOn(s.ctx, []message.Ticket{tickets[0], tickets[2]}))
	if n, err := s.UnticketQueue(s.ctx, name); n != 1 || err != nil || s.position(tickets[0]).Ticketed {
		s.Errorf("UnticketQueue returned %d, %v; want the ticket that was passed on", n, err)
	}
	if n, err := s.UnticketQueue(s.ctx, defaultQueue); n != 2 || err != nil {
		s.Errorf("UnticketQueue of the queue returned %d, %v; want the 2 others", n, err)
	}
}

func testTypeQueueVerified(s *suite) {
	name := s.addTypeQueue()
	s.registerWorkerWith(store.WorkerInfo{Name: "idle", Concurrency: 4, Types: []string{other}}, time.Hour)
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{typed()}, 0)
	s.must(err)
	s.must(s.DeleteOutbox(s.ctx, []int64{inserted.Entries[0].ID}))
	tickets := inserted.Entries[0].Tickets
	s.must(s.PassedOn(s.ctx, tickets))
	limits := store.VerifyLimits{Slack: 0, Overdue: time.Microsecond, Orphan: time.Hour}
	for range 3 {
		sentinels, err := s.SentinelsDue(s.ctx, 0, 0)
		s.must(err)
		for _, sentinel := range sentinels {
			if sentinel.Queue != name {
				s.must(s.Drained(s.ctx, sentinel))
			}
		}
		s.must(s.KeepSentinels(s.ctx, 0))
	}
	s.wantNoFault(limits)
	s.deliverTwoSentinels()
	s.deliverSentinels()
	s.must(s.KeepSentinels(s.ctx, 0))
	s.wantFault(store.OverdueTicket, limits, tickets[0].Task)
}

func testTypeQueueUndescribed(s *suite) {
	name := s.addTypeQueue()
	names, err := s.QueueNames(s.ctx)
	s.must(err)
	if !slices.Contains(names, name) {
		s.Errorf("the known queues are %q, without %s", names, name)
	}
	result, err := s.Renew(s.ctx, store.Renewal{Worker: s.registerWorker(), Lease: time.Hour})
	s.must(err)
	if !slices.Equal(result.Queues, names) {
		s.Errorf("a renewal returns the queues %q, want %q", result.Queues, names)
	}
	queues, err := s.Queues(s.ctx)
	s.must(err)
	for _, q := range queues {
		if q.Name != defaultQueue {
			s.Errorf("the queue %s is described", q.Name)
		}
	}
}
