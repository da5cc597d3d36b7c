package storetest

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var priorityTests = []test{
	{"stores each priority in a subqueue", testPrioritySubqueues},
	{"a sentinel of one subqueue proves nothing about another", testPrioritySentinels},
	{"a pause and a limit of a queue concern every priority", testPriorityGates},
	{"filters and numbers know the priority", testPriorityNumbers},
	{"an edit changes the priority", testPriorityEdited},
	{"a worker of a queue is one of all its priorities", testPriorityIdle},
}

// prioritized returns a task for the default queue of the suite.
func prioritized(p holdfast.Priority) holdfast.NewTask {
	task := newTask()
	task.Priority = p
	return task
}

// insertAll inserts a task of each priority, the lowest first.
func (s *suite) insertAll() []message.Ticket {
	s.Helper()
	var tasks []holdfast.NewTask
	for _, p := range holdfast.Priorities() {
		tasks = append(tasks, prioritized(p))
	}
	return s.insert(tasks...)
}

func testPrioritySubqueues(s *suite) {
	var tasks []holdfast.NewTask
	for _, p := range holdfast.Priorities() {
		delayed := prioritized(p)
		delayed.Delay = time.Microsecond
		tasks = append(tasks, prioritized(p), delayed)
	}
	inserted, err := s.Insert(s.ctx, tasks, time.Hour)
	s.must(err)
	all := holdfast.Subqueues(defaultQueue)
	var entries []string
	for _, e := range inserted.Entries {
		entries = append(entries, e.Queue)
		if len(e.Tickets) != 1 {
			s.Errorf("the outbox entry of %s has %d tickets, want 1", e.Queue, len(e.Tickets))
		}
	}
	slices.Sort(entries)
	if want := slices.Sorted(slices.Values(all)); !slices.Equal(entries, want) {
		s.Errorf("the outbox entries are of %q, want %q", entries, want)
	}
	names, err := s.QueueNames(s.ctx)
	s.must(err)
	for _, name := range all {
		if !slices.Contains(names, name) {
			s.Errorf("the subqueues are %q, without %s", names, name)
		}
	}
	due, _ := s.dispatch(100)
	for _, d := range due {
		if task := s.task(d.Task); task.Queue != defaultQueue || d.Queue != task.Subqueue() {
			s.Errorf("task %s of %s with priority %s is due in %s", task.ID, task.Queue, task.Priority, d.Queue)
		}
	}
	if len(due) != len(all) {
		s.Errorf("%d tasks are due, want %d", len(due), len(all))
	}
	// One statement stores tasks that differ in nothing but their payload, so they must not differ in their priority.
	same := s.insert(prioritized(holdfast.PriorityHigh), prioritized(holdfast.PriorityHigh), prioritized(holdfast.PriorityLow))
	worker := s.registerWorker()
	for i, claim := range s.claimOf(worker, same...) {
		want := holdfast.PriorityHigh
		if i == 2 {
			want = holdfast.PriorityLow
		}
		if claim.Verdict != store.Claimed || claim.Task.Priority != want || claim.Task.Queue != defaultQueue || s.task(claim.Task.ID).Priority != want {
			s.Errorf("the claim is %s of %+v, want priority %s", verdictName(claim.Verdict), claim.Task, want)
		}
		s.succeed(*claim.Task)
	}
}

func testPrioritySentinels(s *suite) {
	tickets := s.insertAll()
	s.must(s.Drained(s.ctx, message.Sentinel{Queue: holdfast.Subqueue(defaultQueue, holdfast.PriorityHigh), At: s.now()}))
	queues, err := s.Queues(s.ctx)
	s.must(err)
	var order []holdfast.Priority
	for _, q := range queues {
		if q.Name != defaultQueue {
			continue
		}
		order = append(order, q.Priority)
		if drained := !q.DrainedAt.IsZero(); drained != (q.Priority == holdfast.PriorityHigh) {
			s.Errorf("that %s is drained is %v", q.Subqueue(), drained)
		}
		if q.Ready != 1 || q.Due != 1 {
			s.Errorf("%s has %d ready and %d due tasks, want one", q.Subqueue(), q.Ready, q.Due)
		}
	}
	highest := holdfast.Priorities()
	slices.Reverse(highest)
	if !slices.Equal(order, highest) {
		s.Errorf("the subqueues are in the order %v, want %v", order, highest)
	}
	if n, err := s.UnticketQueue(s.ctx, holdfast.Subqueue(defaultQueue, holdfast.PriorityLow)); n != 1 || err != nil {
		s.Errorf("%d tasks of the lowest priority get new tickets, %v; want 1", n, err)
	}
	if due, _ := s.dispatch(10); len(due) != 1 || due[0].Ticket != tickets[0] {
		s.Errorf("due: %+v, want %v", due, tickets[0])
	}
}

func testPriorityGates(s *suite) {
	worker, tickets := s.registerWorker(), s.insertAll()
	paused := s.pause(store.Subject{Queue: defaultQueue}, 0)
	s.block(worker, paused.ID, tickets...)
	result, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour})
	s.must(err)
	if !slices.Equal(result.Paused, []string{defaultQueue}) {
		s.Errorf("a renewal reports %q as paused, want %q", result.Paused, defaultQueue)
	}
	s.resume(store.Subject{Queue: defaultQueue})
	if n := s.release(1000); n != len(tickets) {
		s.Errorf("%d tasks are released, want %d", n, len(tickets))
	}
	limit := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: defaultQueue}}, Concurrency: 1})
	s.block(worker, limit.ID, tickets...)
	if got := s.permitted(); !slices.Equal(got, []holdfast.TaskID{tickets[0].Task}) {
		s.Errorf("the tasks %v get permits, want the first one", got)
	}
}

func testPriorityNumbers(s *suite) {
	tickets := s.insertAll()
	elsewhere := prioritized(holdfast.PriorityHigh)
	elsewhere.Queue = "elsewhere"
	tickets = append(tickets, s.insert(elsewhere)...)
	for _, test := range []struct {
		filter store.Filter
		want   []int // indexes of tickets, highest id first
	}{
		{store.Filter{Queue: defaultQueue}, []int{3, 2, 1, 0}},
		{store.Filter{Priorities: []holdfast.Priority{holdfast.PriorityHigh}}, []int{4, 2}},
		{store.Filter{Priorities: []holdfast.Priority{holdfast.PriorityNormal}}, []int{1}},
		{store.Filter{Queue: defaultQueue, Priorities: []holdfast.Priority{holdfast.PriorityHigh, holdfast.PriorityLow}}, []int{2, 0}},
		{store.Filter{Queue: "elsewhere", Priorities: []holdfast.Priority{holdfast.PriorityLow}}, nil},
	} {
		page, err := s.List(s.ctx, test.filter)
		s.must(err)
		var want, got []holdfast.TaskID
		for _, i := range test.want {
			want = append(want, tickets[i].Task)
		}
		for _, task := range page.Tasks {
			got = append(got, task.ID)
		}
		if !slices.Equal(got, want) {
			s.Errorf("%+v selects %v, want %v", test.filter, got, want)
		}
		counts, err := s.Count(s.ctx, test.filter)
		s.must(err)
		if n := counts.By[holdfast.Ready]; n != int64(len(want)) {
			s.Errorf("%+v counts %d tasks, want %d", test.filter, n, len(want))
		}
	}
	groups, err := s.CountGroups(s.ctx)
	s.must(err)
	for _, g := range groups {
		if g.Queue == defaultQueue && g.Tasks != 1 || g.Queue != defaultQueue && g.Queue != "elsewhere" {
			s.Errorf("a group is %+v", g)
		}
	}
	if len(groups) != len(tickets) {
		s.Errorf("the groups are %+v, want %d", groups, len(tickets))
	}
}

func testPriorityEdited(s *suite) {
	ticket := s.insert(prioritized(holdfast.PriorityLow))[0]
	critical, normal := holdfast.PriorityCritical, holdfast.PriorityNormal
	s.mustChange(editOf(s.task(ticket.Task), store.Edit{Queue: "elsewhere"}))
	s.want("a new queue keeps the priority", ticket.Task, "elsewhere", holdfast.PriorityLow)
	s.mustChange(editOf(s.task(ticket.Task), store.Edit{Priority: &critical}))
	s.want("a new priority keeps the queue", ticket.Task, "elsewhere", critical)
	s.mustChange(editOf(s.task(ticket.Task), store.Edit{Queue: defaultQueue, Priority: &normal}))
	s.want("both are new", ticket.Task, defaultQueue, normal)
	entries := s.auditLog(store.AuditFilter{Task: ticket.Task})
	was, is := versionOf(s.T, entries[0].Before), versionOf(s.T, entries[0].After)
	if was.Priority == nil || *was.Priority != critical || is.Priority == nil || *is.Priority != normal {
		s.Errorf("the entry has %s and %s", entries[0].Before, entries[0].After)
	}
	if due, _ := s.dispatch(10); len(due) != 1 || due[0].Queue != defaultQueue {
		s.Errorf("due: %+v", due)
	}
}

// want checks the queue and the priority of a task.
func (s *suite) want(what string, id holdfast.TaskID, queue string, p holdfast.Priority) {
	s.Helper()
	if task := s.task(id); task.Queue != queue || task.Priority != p {
		s.Errorf("%s: the task is in %s, want %s", what, task.Subqueue(), holdfast.Subqueue(queue, p))
	}
}

func testPriorityIdle(s *suite) {
	ticket := s.insert(prioritized(holdfast.PriorityHigh))[0]
	if n, err := s.Unticket(s.ctx, []message.Ticket{ticket}); n != 1 || err != nil {
		s.Fatalf("%d tasks are due, %v", n, err)
	}
	idle := func(queue string) {
		s.Helper()
		_, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: queue, Concurrency: 2, Types: []string{kind}, Queues: []string{queue}}, time.Minute)
		s.must(err)
	}
	idle("elsewhere")
	s.wantNoFault(strict)
	idle(defaultQueue)
	s.wantFault(store.OverdueDispatch, strict, ticket.Task)
}
