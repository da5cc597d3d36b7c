package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var topicTests = []test{
	{"a task with a topic waits for a slot", testTopicWaits},
	{"topics share the slots by weight, and none has more than half", testTopicShares},
	{"a topic alone leaves slots to others", testTopicAlone},
	{"a task gives its slot back when its attempt has ended", testTopicReturns},
	{"a task waits again when it is due again", testTopicLater},
	{"a task that a gate blocks gives its slot back", testTopicGates},
	{"a task that leaves is passed over", testTopicLeaves},
	{"an ordered task waits for its turn, and then for a slot", testTopicOrdered},
	{"the cursors pass ids whose tasks have started or ended", testTopicCursors},
	{"lists topics in pages", testTopicLists},
	{"describes how a task waits", testTopicPlaces},
	{"stores weights", testTopicWeights},
	{"verify and the rebuild of a queue accept tasks that wait for slots", testTopicHealthy},
	{"queues and priorities have slots and cursors of their own", testTopicQueues},
	{"a retried ordered task waits for its turn, not for a slot", testTopicOrderedRetry},
	{"a topic with several priorities at its bound lets others start", testTopicPriorities},
	{"a topic that is idle at times does not start before all others", testTopicTrickle},
	{"tasks with permits do not take the slots of other topics", testTopicPermits},
	{"a task that gets another queue gives its slot back", testTopicEditedQueue},
	{"cancelled tasks are not in the way", testTopicCancelled},
	{"every task ends under random changes", testTopicRandom},
}

func topical(topic string) holdfast.NewTask {
	task := newTask()
	task.Topic = topic
	return task
}

// insertTopics inserts n tasks of each topic, and returns their ids by topic.
func (s *suite) insertTopics(n int, topics ...string) map[string][]holdfast.TaskID {
	s.Helper()
	list := make(map[string][]holdfast.TaskID)
	for _, topic := range topics {
		for _, ticket := range s.insert(repeated(topical(topic), n)...) {
			list[topic] = append(list[topic], ticket.Task)
		}
	}
	return list
}

// executors registers a worker that has n executors.
func (s *suite) executors(n int) holdfast.WorkerID {
	s.Helper()
	return s.registerWorkerWith(store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: n}, time.Hour)
}

// byTopic returns the number of tasks of each topic.
func (s *suite) byTopic(tickets []message.Ticket) map[string]int {
	s.Helper()
	n := make(map[string]int)
	for _, ticket := range tickets {
		n[s.task(ticket.Task).Topic]++
	}
	return n
}

// wantTopics fails the test unless the tickets have the wanted number of tasks of each topic.
func (s *suite) wantTopics(what string, tickets []message.Ticket, want map[string]int) {
	s.Helper()
	if got := s.byTopic(tickets); fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("%s: %v tasks get tickets, want %v", what, got, want)
	}
}

func (s *suite) progress(topic string) store.TopicProgress {
	s.Helper()
	progress, err := s.TopicProgress(s.ctx, topic)
	s.must(err)
	return progress
}

// progressUpTo waits until the cursors can have the value id. Open transactions of other tests hold them back.
func (s *suite) progressUpTo(topic string, id holdfast.TaskID) (progress store.TopicProgress) {
	s.Helper()
	s.eventually("the cursors can have their values", func() bool {
		s.release(0)
		progress = s.progress(topic)
		return progress.Stored >= id
	})
	return progress
}

func testTopicWaits(s *suite) {
	task := topical("news")
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{task, newTask()}, time.Hour)
	s.must(err)
	id := inserted.Tasks[0].ID
	if len(inserted.Entries) != 1 || len(inserted.Entries[0].Tickets) != 1 || inserted.Entries[0].Tickets[0].Task == id {
		s.Fatalf("the outbox has %+v, want only the task without a topic", inserted.Entries)
	}
	s.wantDue("before a worker is registered")
	if got := s.task(id); got.Topic != "news" || got.State != holdfast.Ready {
		s.Fatalf("the stored task is %+v", got)
	}
	worker := s.registerWorker()
	if claim := s.claim(worker, message.Ticket{Task: id, Attempt: 1})[0]; claim.Verdict != store.Stale {
		s.Fatalf("the claim of a task without a slot is %s, want stale", verdictName(claim.Verdict))
	}
	tickets := s.wantDue("a worker is registered", id)
	if running := s.mustClaim(worker, tickets...)[0]; running.Topic != "news" {
		s.Fatalf("the claimed task is %+v", running)
	}
	if read, err := s.TasksByID(s.ctx, []holdfast.TaskID{id}); err != nil || len(read) != 1 || read[0].Topic != "news" {
		s.Fatalf("TasksByID returned %+v, %v", read, err)
	}
}

func testTopicShares(s *suite) {
	s.executors(12)
	if before, err := s.SetTopicWeight(s.ctx, anna, "a", 3); err != nil || before != 1 {
		s.Fatalf("SetTopicWeight returned %d, %v", before, err)
	}
	s.insertTopics(30, "a", "b", "c", "d")
	s.wantTopics("12 executors", s.dueTickets(), map[string]int{"a": 6, "b": 2, "c": 2, "d": 2})
	s.wantTopics("all slots are taken", s.dueTickets(), map[string]int{})

	s.executors(4) // 16 in all
	s.wantTopics("more executors", s.dueTickets(), map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
}

func testTopicAlone(s *suite) {
	s.executors(8)
	list := s.insertTopics(20, "a")
	s.wantTopics("one topic", s.dueTickets(), map[string]int{"a": 7})
	s.insertTopics(20, "b")
	s.wantTopics("another topic", s.dueTickets(), map[string]int{"b": 1})
	worker := s.registerWorkerWith(store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 1, Queues: []string{"other"}}, time.Hour)
	for _, id := range list["a"][:4] {
		s.move(s.mustClaim(worker, message.Ticket{Task: id, Attempt: 1})[0], holdfast.Returned(nil))
	}
	s.wantTopics("the first topic has 3 of 8 slots", s.dueTickets(), map[string]int{"a": 1, "b": 3})
}

func testTopicReturns(s *suite) {
	worker := s.executors(16)
	list := s.insertTopics(30, "a")["a"]
	s.wantDue("a topic alone leaves 2 of 16 slots", list[:14]...)
	task := func(i int) holdfast.Task {
		s.Helper()
		return s.mustClaim(worker, message.Ticket{Task: list[i], Attempt: 1})[0]
	}
	// Few tasks end, so there are as many slots as executors.
	s.move(task(0), holdfast.Returned(nil))
	s.wantDue("a task is done", list[14])
	s.move(task(1), holdfast.Returned(holdfast.Permanent(errors.New("no"))))
	s.wantDue("a task is dead", list[15])
	s.move(task(2), holdfast.Requested(holdfast.EventCancel))
	s.wantDue("a task is cancelled", list[16])
	s.move(task(3), holdfast.Returned(holdfast.Defer(time.Hour, errors.New("later"))))
	s.wantDue("a task is deferred", list[17])

	// After a crash or an interruption a task keeps its slot.
	running := task(4)
	for attempt, cause := range []holdfast.Cause{holdfast.Crashed(worker), holdfast.Interrupted(errors.New("stop"))} {
		s.move(running, cause)
		tickets := s.wantDue("the attempt was broken off", list[4])
		if want := (message.Ticket{Task: list[4], Attempt: attempt + 2}); tickets[0] != want {
			s.Fatalf("the ticket is %v, want %v", tickets[0], want)
		}
		running = s.mustClaim(worker, tickets...)[0]
	}
	s.wantDue("no slot is free")
	if use := s.progress("a").Parts; len(use) != 1 || use[0].Slots != 14 || use[0].Waiting != 12 || use[0].Later != 1 {
		s.Fatalf("the parts are %+v, want 14 slots, 12 waiting and 1 later", use)
	}
}

func testTopicLater(s *suite) {
	worker := s.executors(8)
	list := s.insertTopics(20, "a")["a"]
	s.wantDue("a topic alone leaves 1 of 8 slots", list[:7]...)
	failed := s.mustClaim(worker, message.Ticket{Task: list[0], Attempt: 1})[0]
	s.move(failed, holdfast.Returned(holdfast.RetryAfter(time.Millisecond, errors.New("again"))))
	delayed := topical("a")
	delayed.Delay = time.Millisecond
	added, _ := s.insertOrdered(delayed)
	s.eventually("both wait for slots", func() bool {
		s.dueTickets()
		return s.progress("a").Parts[0].Later == 0
	})
	if got := s.task(added[0]); got.State != holdfast.Ready || !got.StartedAt.IsZero() {
		s.Fatalf("the delayed task is %+v", got)
	}
	for _, id := range list[1:4] {
		s.move(s.mustClaim(worker, message.Ticket{Task: id, Attempt: 1})[0], holdfast.Returned(nil))
	}
	want := message.Ticket{Task: list[0], Attempt: 2}
	s.eventually("the retried task is the first of the topic", func() bool {
		return slices.Contains(s.dueTickets(), want) || s.task(list[0]).State == holdfast.Running || s.position(want).Ticketed
	})
	s.mustClaim(worker, want)
}

func testTopicGates(s *suite) {
	worker := s.executors(4)
	list := s.insertTopics(4, "a")["a"]
	tickets := s.wantDue("3 of 4 slots", list[:3]...)
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, gate.ID, tickets...)
	tickets = s.wantDue("the blocked tasks have no slots", list[3])
	s.block(worker, gate.ID, tickets...)
	s.eventually("the blocked tasks give their slots back", func() bool {
		s.release(0)
		return s.progress("a").Parts[0].Later == 4
	})
	s.resume(store.Subject{Type: kind})
	s.wantDue("the tasks wait again after the pause", list[:3]...)

	// When a task gets a permit, it also gets a slot.
	limit := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Type: kind}}, Concurrency: 2})
	s.block(worker, limit.ID, message.Ticket{Task: list[0], Attempt: 1}, message.Ticket{Task: list[1], Attempt: 1})
	claimed := 0
	s.eventually("two tasks get permits, and tickets without waiting for slots", func() bool {
		for _, ticket := range s.dueTickets() {
			if claim := s.claim(worker, ticket)[0]; claim.Verdict == store.Claimed {
				claimed++
			}
		}
		return claimed == 2
	})
}

func testTopicLeaves(s *suite) {
	worker := s.executors(2)
	list := s.insertTopics(7, "a")["a"]
	running := s.mustClaim(worker, s.wantDue("the first task", list[0])...)[0]
	s.move(s.task(list[1]), holdfast.Requested(holdfast.EventCancel))
	later := s.now().Add(time.Hour)
	for i, edit := range []store.Edit{{RunAt: later}, {Payload: []byte(`{"n":1}`)}, {Queue: "elsewhere"}} {
		made, err := s.Change(s.ctx, anna, []store.Change{{Action: store.ActionEdit, Task: s.task(list[i+2]), Edit: &edit}})
		if err != nil || !made[0] {
			s.Fatalf("the edit %+v returned %v, %v", edit, made, err)
		}
	}
	if got := s.progressUpTo("a", list[1]); got.Done != list[0]-1 || got.Scanned != list[1] {
		s.Fatalf("the cursors are %+v, want done before %d and scanned up to %d", got.Cursors, list[0], list[1])
	}
	// The queue named elsewhere has the same two executors, so its first task gets a slot at once.
	tickets := s.wantDue("a task has another queue", list[4])
	s.move(s.mustClaim(worker, tickets...)[0], holdfast.Returned(nil))
	s.move(running, holdfast.Returned(nil))
	running = s.mustClaim(worker, s.wantDue("two tasks have left", list[3])...)[0]
	if got := s.progressUpTo("a", list[2]); got.Done != list[2]-1 || got.Scanned != list[2]-1 {
		s.Fatalf("the cursors are %+v, want both before %d, which is delayed", got.Cursors, list[2])
	}
	cancelled := s.move(s.task(list[5]), holdfast.Requested(holdfast.EventCancel))
	made, err := s.Change(s.ctx, anna, []store.Change{{Action: store.ActionPurge, Task: cancelled}})
	if err != nil || !made[0] {
		s.Fatalf("the purge returned %v, %v", made, err)
	}
	s.move(running, holdfast.Returned(nil))
	s.move(s.mustClaim(worker, s.wantDue("a task is deleted", list[6])...)[0], holdfast.Returned(nil))
	s.retry(list[1])
	if got := s.progress("a"); got.Done != list[1]-1 {
		s.Fatalf("the cursors are %+v, want done before %d, which a person has retried", got.Cursors, list[1])
	}
	s.wantDue("the cancelled task is retried", list[1])
}

func testTopicOrdered(s *suite) {
	worker := s.executors(2)
	task := topical("a")
	task.Key, task.Ordered = "k", true
	list, inserted := s.insertOrdered(task, task)
	other := s.insertTopics(1, "a")["a"][0]
	if len(inserted.Entries) != 0 {
		s.Fatalf("the outbox has %+v, want nothing before a slot is given", inserted.Entries)
	}
	var running holdfast.Task
	s.eventually("the first two tasks run one after the other", func() bool {
		for _, ticket := range s.dueTickets() {
			if running = s.mustClaim(worker, ticket)[0]; running.ID == list[0] {
				return true
			}
			s.move(running, holdfast.Returned(nil))
		}
		return false
	})
	s.move(running, holdfast.Returned(nil))
	s.eventually("the last ordered task runs", func() bool {
		for _, ticket := range s.dueTickets() {
			done := s.move(s.mustClaim(worker, ticket)[0], holdfast.Returned(nil))
			if done.ID == list[1] {
				return true
			}
		}
		return false
	})
	if got := s.task(other); got.State != holdfast.Done {
		s.Fatalf("the other task is %+v", got)
	}
}

func testTopicCursors(s *suite) {
	worker := s.executors(100)
	if got := s.progress("nothing"); len(got.Parts) != 0 || got.Weight != 1 || got.Done != got.Stored {
		s.Fatalf("the progress of a topic without tasks is %+v", got)
	}
	list := s.insertTopics(5, "a")["a"]
	want := func(when string, scanned, done holdfast.TaskID) {
		s.Helper()
		got := s.progressUpTo("a", max(scanned, done))
		if got.Scanned != scanned || got.Done != done {
			s.Fatalf("%s: the cursors are %+v, want %d and %d", when, got.Cursors, scanned, done)
		}
	}
	want("none has started", list[0]-1, list[0]-1)
	tasks := s.mustClaim(worker, s.wantDue("all have slots", list...)...)
	want("all have started", list[4], list[0]-1)
	for i, cause := range []holdfast.Cause{
		holdfast.Returned(nil), holdfast.Returned(errors.New("again")), holdfast.Returned(holdfast.Permanent(errors.New("no"))), holdfast.Requested(holdfast.EventCancel),
	} {
		s.move(tasks[i], cause)
	}
	want("the second will be retried", list[4], list[0])
	s.move(s.mustClaim(worker, s.wantDue("the second is due again", list[1])...)[0], holdfast.Returned(nil))
	want("the last one runs", list[4], list[3])
	s.move(tasks[4], holdfast.Returned(nil))
	want("all have ended", list[4], list[4])
	s.retry(list[2])
	want("a person has retried the dead task", list[4], list[1])
	s.move(s.mustClaim(worker, s.wantDue("it is due", list[2])...)[0], holdfast.Returned(nil))
	want("all have ended again", list[4], list[4])
}

func testTopicLists(s *suite) {
	var want []string
	for _, part := range []store.TopicPart{
		{Topic: "a", Queue: "one", Priority: holdfast.PriorityHigh}, {Topic: "a", Queue: "one"}, {Topic: "b", Queue: "one"},
		{Topic: "", Queue: "one"}, {Topic: "a", Queue: "two"}, {Topic: "z z/ü", Queue: "two"},
	} {
		task := newTask()
		task.Topic, task.Queue, task.Priority = part.Topic, part.Queue, part.Priority
		s.insert(task)
		if part.Topic != "" {
			want = append(want, fmt.Sprintf("%s %s %s", part.Queue, part.Priority, part.Topic))
		}
	}
	for _, limit := range []int{1, 2, 3, 10} {
		var got []string
		var after store.TopicPart
		for page := []store.TopicUse{{}}; len(page) > 0; {
			var err error
			page, err = s.ListTopics(s.ctx, "", after, limit)
			s.must(err)
			for _, use := range page {
				got = append(got, fmt.Sprintf("%s %s %s", use.Queue, use.Priority, use.Topic))
				after = use.TopicPart
				if use.Waiting != 1 || use.Slots != 0 || use.Later != 0 || use.Weight != 1 {
					s.Fatalf("the list has %+v", use)
				}
			}
		}
		if !slices.Equal(got, want) {
			s.Fatalf("pages of %d have %q, want %q", limit, got, want)
		}
	}
	if page, err := s.ListTopics(s.ctx, "two", store.TopicPart{}, 10); err != nil || len(page) != 2 {
		s.Fatalf("the list of one queue is %+v, %v", page, err)
	}
	if got := s.progress("a"); len(got.Parts) != 3 || got.Parts[0].Priority != holdfast.PriorityHigh || got.Parts[2].Queue != "two" {
		s.Fatalf("the progress is %+v", got)
	}
}

func testTopicPlaces(s *suite) {
	s.executors(2)
	list := s.insertTopics(3, "a")["a"]
	s.insertTopics(1, "b", "c")
	s.dueTickets()
	place, err := s.TopicOf(s.ctx, list[2])
	if err != nil || place.Topic != "a" || place.Queue != defaultQueue || place.Ahead != 1 || place.Slots != 1 || place.Others != 1 || place.Executors != 2 || place.Weight != 1 {
		s.Fatalf("TopicOf returned %+v, %v", place, err)
	}
	elsewhere := topical("z")
	elsewhere.Queue, elsewhere.Priority = "none", holdfast.PriorityHigh
	s.insert(elsewhere)
	s.registerWorkerWith(store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 3, Queues: []string{"none"}}, time.Hour)
	s.eventually("the queues have waiting topics", func() bool {
		s.release(0)
		queues, err := s.TopicQueues(s.ctx)
		s.must(err)
		want := []store.TopicQueue{{Queue: defaultQueue, Topics: 2, Executors: 2}, {Queue: "none", Priority: holdfast.PriorityHigh, Topics: 1, Executors: 5}}
		return slices.Equal(queues, want)
	})
	plain := s.insertN(1)[0].Task
	for _, id := range []holdfast.TaskID{list[0], plain, 1 << 40} {
		if place, err := s.TopicOf(s.ctx, id); !errors.Is(err, holdfast.ErrNotFound) {
			s.Fatalf("TopicOf(%d) returned %+v, %v", id, place, err)
		}
	}
}

func testTopicWeights(s *suite) {
	for _, bad := range []struct {
		topic  string
		weight int
	}{{"", 2}, {"a\n", 2}, {"a", 0}, {"a", store.MaxTopicWeight + 1}} {
		if _, err := s.SetTopicWeight(s.ctx, anna, bad.topic, bad.weight); !errors.Is(err, holdfast.ErrInvalid) {
			s.Fatalf("SetTopicWeight(%q, %d) returned %v", bad.topic, bad.weight, err)
		}
	}
	for _, set := range []struct {
		topic          string
		weight, before int
	}{{"b", 5, 1}, {"a", 2, 1}, {"b", 7, 5}, {"c", 3, 1}, {"c", 1, 3}} {
		if before, err := s.SetTopicWeight(s.ctx, anna, set.topic, set.weight); err != nil || before != set.before {
			s.Fatalf("SetTopicWeight(%q, %d) returned %d, %v, want %d", set.topic, set.weight, before, err, set.before)
		}
	}
	weights, err := s.TopicWeights(s.ctx, 10)
	if want := []store.TopicWeight{{Topic: "a", Weight: 2}, {Topic: "b", Weight: 7}}; err != nil || !slices.Equal(weights, want) {
		s.Fatalf("TopicWeights returned %+v, %v, want %+v", weights, err, want)
	}
	if got := s.progress("b"); got.Weight != 7 {
		s.Fatalf("the progress is %+v", got)
	}
	entries := s.auditLog(store.AuditFilter{Subject: "topic b"})
	if len(entries) != 2 || entries[0].Action != store.ActionSet || string(entries[0].Before) != `{"weight":5}` || string(entries[0].After) != `{"weight":7}` {
		s.Fatalf("the audit log has %+v", entries)
	}
}

func testTopicHealthy(s *suite) {
	s.idleWorker()
	list := s.insertTopics(500, "a")["a"]
	s.wantNoFault(store.VerifyLimits{})
	if _, err := s.CorrectTimes(s.ctx); err != nil {
		s.Fatal(err)
	}
	if n, err := s.UnticketQueue(s.ctx, defaultQueue); err != nil || n != 0 {
		s.Fatalf("UnticketQueue changed %d tasks, %v; want none", n, err)
	}
	tickets := s.dueTickets()
	if len(tickets) == 0 || len(tickets) == len(list) || tickets[0].Task != list[0] {
		s.Fatalf("%d tasks get tickets, want some of %d", len(tickets), len(list))
	}
	s.wantNoFault(store.VerifyLimits{})
	if n, err := s.UnticketQueue(s.ctx, defaultQueue); err != nil || n != len(tickets) {
		s.Fatalf("UnticketQueue changed %d tasks, %v; want %d", n, err, len(tickets))
	}
	if got := s.dueTickets(); !slices.Equal(got, tickets) {
		s.Fatalf("the tickets are %v after the queue was lost, want %v", got, tickets)
	}
}

func testTopicQueues(s *suite) {
	s.registerWorkerWith(store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 4, Queues: []string{"one"}}, time.Hour)
	tasks := make([]holdfast.NewTask, 0, 40)
	for _, queue := range []string{"one", "two"} {
		for _, p := range []holdfast.Priority{holdfast.PriorityLow, holdfast.PriorityHigh} {
			task := topical("a")
			task.Queue, task.Priority = queue, p
			tasks = append(tasks, repeated(task, 10)...)
		}
	}
	s.insert(tasks...)
	n := make(map[string]int)
	for _, ticket := range s.dueTickets() {
		task := s.task(ticket.Task)
		n[task.Subqueue()]++
	}
	if want := map[string]int{"one.high": 2, "one.low": 1}; fmt.Sprint(n) != fmt.Sprint(want) {
		s.Fatalf("the subqueues get %v, want %v: the topic has 3 of 4 slots of one queue, and the other queue has no worker", n, want)
	}
}

func testTopicOrderedRetry(s *suite) {
	worker := s.executors(2)
	busy := s.insertTopics(1, "a")["a"][0]
	s.mustClaim(worker, s.wantDue("the topic has its only slot", busy)...)
	task := topical("a")
	task.Key, task.Ordered = "k", true
	list, _ := s.insertOrdered(task, task)
	s.wantDue("the first ordered task waits for a slot")
	s.move(s.task(list[0]), holdfast.Requested(holdfast.EventCancel))
	s.wantDue("the second ordered task waits for a slot")
	s.retry(list[0])
	s.wantDue("the first one waits for its turn")
	s.executors(20)
	s.wantDue("only the active task of the key gets a slot", list[1])
}

func testTopicPriorities(s *suite) {
	s.executors(2)
	for _, p := range []holdfast.Priority{holdfast.PriorityLow, holdfast.PriorityNormal, holdfast.PriorityHigh} {
		task := topical("a")
		task.Priority = p
		s.insert(repeated(task, 5)...)
	}
	s.wantTopics("one topic", s.dueTickets(), map[string]int{"a": 1})
	s.insertTopics(1, "b")
	s.wantTopics("another topic", s.dueTickets(), map[string]int{"b": 1})
}

// testTopicTrickle has a topic with a backlog, and two topics that get another task when their last waiting one starts.
// So these two have no waiting task at times.
func testTopicTrickle(s *suite) {
	worker := s.executors(40)
	s.insertTopics(500, "backlog")
	s.insertTopics(20, "b", "c")
	starts := make(map[string]int)
	var running []message.Ticket
	for range 60 { // the number of slots may grow meanwhile, which changes no share
		for _, ticket := range s.dueTickets() {
			topic := s.task(ticket.Task).Topic
			starts[topic]++
			running = append(running, ticket)
			if topic != "backlog" {
				s.insertTopics(1, topic)
			}
		}
		if len(running) > 0 {
			s.move(s.mustClaim(worker, running[0])[0], holdfast.Returned(nil))
			running = running[1:]
		}
	}
	least := (starts["backlog"] + starts["b"] + starts["c"]) / 4
	if starts["backlog"] < least {
		s.Fatalf("the topics start %v tasks, want at least %d of the backlog", starts, least)
	}
}

func testTopicPermits(s *suite) {
	worker := s.executors(20)
	scope := store.Scope{Subject: store.Subject{Key: "k"}}
	limit := s.setLimit(store.Limit{Scope: scope, Concurrency: 1})
	task := topical("a")
	task.Key = "k"
	s.insert(repeated(task, 40)...)
	s.eventually("the limit blocks nearly all tasks", func() bool {
		for _, ticket := range s.dueTickets() {
			if s.claim(worker, ticket)[0].Verdict == store.Blocked {
				s.block(worker, limit.ID, ticket)
			}
		}
		return s.progress("a").Parts[0].Later > 36
	})
	s.setLimit(store.Limit{Scope: scope, Concurrency: 30})
	s.permitted()
	if n := s.progress("a").Parts[0].Slots; n > 18 {
		s.Errorf("the topic has %d slots, want at most 18, because it leaves two of 20 executors to others", n)
	}
	other := s.insertTopics(1, "b")["b"][0]
	s.eventually("another topic gets a slot", func() bool {
		return slices.ContainsFunc(s.dueTickets(), func(t message.Ticket) bool { return t.Task == other })
	})
}

func testTopicEditedQueue(s *suite) {
	s.registerWorkerWith(store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 2, Queues: []string{defaultQueue}}, time.Hour)
	s.insertTopics(5, "a", "b")
	tickets := s.dueTickets()
	s.wantTopics("two executors", tickets, map[string]int{"a": 1, "b": 1})
	for _, ticket := range tickets {
		change := store.Change{Action: store.ActionEdit, Task: s.task(ticket.Task), Edit: &store.Edit{Queue: "parking"}}
		if made, err := s.Change(s.ctx, anna, []store.Change{change}); err != nil || !made[0] {
			s.Fatalf("the edit returned %v, %v", made, err)
		}
	}
	if due, _ := s.dispatch(1000); len(due) != 0 { // before the next scan
		s.Fatalf("the tasks %v get tickets in a queue without a worker", due)
	}
	s.wantTopics("two tasks have left", s.dueTickets(), map[string]int{"a": 1, "b": 1})
}

func testTopicCancelled(s *suite) {
	worker := s.executors(2)
	list := s.insertTopics(201, "a")["a"]
	first := s.mustClaim(worker, s.wantDue("a topic alone has one of two slots", list[0])...)[0]
	for _, id := range list[1:200] {
		s.move(s.task(id), holdfast.Requested(holdfast.EventCancel))
	}
	s.move(first, holdfast.Returned(nil))
	if released := s.release(1000); released != 1 {
		s.Fatalf("the first look starts %d tasks, want the only one that waits behind cancelled ones", released)
	}
}

// testTopicRandom makes random changes, and checks that each task ends, and that the cursors are right.
func testTopicRandom(s *suite) {
	random := rand.New(rand.NewPCG(1, 2))
	worker := s.executors(6)
	topics := []string{"a", "b", "c"}
	var all []holdfast.TaskID
	running := make(map[holdfast.TaskID]holdfast.Task)
	insert := func() {
		var tasks []holdfast.NewTask
		for range random.IntN(6) {
			task := topical(topics[random.IntN(len(topics))])
			if random.IntN(4) == 0 {
				task.Delay = time.Duration(random.IntN(20)) * time.Millisecond
			}
			if random.IntN(5) == 0 {
				task.Key, task.Ordered = "k", true
			}
			tasks = append(tasks, task)
		}
		for _, ticket := range s.insert(tasks...) {
			all = append(all, ticket.Task)
		}
	}
	step := func() {
		for _, ticket := range s.dueTickets() {
			claim := s.claim(worker, ticket)[0]
			if claim.Verdict == store.Claimed {
				running[ticket.Task] = *claim.Task
			}
		}
		for id, task := range running {
			if random.IntN(3) > 0 {
				continue
			}
			causes := []holdfast.Cause{
				holdfast.Returned(nil), holdfast.Returned(errors.New("again")), holdfast.Crashed(worker),
				holdfast.Returned(holdfast.Permanent(errors.New("no"))), holdfast.Returned(holdfast.Defer(5*time.Millisecond, errors.New("later"))),
			}
			s.move(task, causes[random.IntN(len(causes))])
			delete(running, id)
		}
		if len(all) > 0 && random.IntN(3) == 0 {
			switch task := s.task(all[random.IntN(len(all))]); {
			case task.State == holdfast.Ready && random.IntN(2) == 0:
				s.apply(s.settle(task, holdfast.Requested(holdfast.EventCancel)))
			case task.State == holdfast.Dead || task.State == holdfast.Cancelled:
				s.retry(task.ID)
			}
		}
	}
	for range 30 {
		insert()
		step()
		s.checkCursors(all, topics)
	}
	s.eventually("every task ends", func() bool {
		for _, ticket := range s.dueTickets() {
			if claim := s.claim(worker, ticket)[0]; claim.Verdict == store.Claimed {
				running[ticket.Task] = *claim.Task
			}
		}
		for id, task := range running {
			s.move(task, holdfast.Returned(nil))
			delete(running, id)
		}
		open := 0
		for _, id := range all {
			task := s.task(id)
			if !task.State.Final() {
				open++
			}
			if task.State == holdfast.Dead && task.Ordered { // the dead task holds its key
				s.move(task, holdfast.Requested(holdfast.EventArchive))
			}
		}
		return open == 0
	})
	s.checkCursors(all, topics)
}

// checkCursors compares the cursors of topics with their tasks.
func (s *suite) checkCursors(all []holdfast.TaskID, topics []string) {
	s.Helper()
	for _, topic := range topics {
		got := s.progress(topic)
		done, scanned := got.Stored, got.Stored
		for _, id := range all {
			task := s.task(id)
			if task.Topic != topic || task.State.Final() {
				continue
			}
			done = min(done, id-1)
			if task.State == holdfast.Ready && task.StartedAt.IsZero() {
				scanned = min(scanned, id-1)
			}
		}
		if got.Done != done || got.Scanned != scanned {
			s.Fatalf("the cursors of %s are %+v, want %d and %d", topic, got.Cursors, scanned, done)
		}
	}
}
