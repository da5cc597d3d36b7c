package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var orderTests = []test{
	{"starts the ordered tasks of a key one after the other", testOrderSequence},
	{"a task that is retried or delayed holds its key", testOrderHolds},
	{"a death blocks the key, ends the turn or dooms the later tasks", testOrderDeaths},
	{"a task that leaves lets the next one start", testOrderLeaves},
	{"a task that is retried by a person keeps its place", testOrderRetried},
	{"a duplicate takes no turn", testOrderDuplicates},
	{"an edited task waits for its turn", testOrderEdited},
	{"describes keys and places", testOrderPlaces},
	{"verify and the rebuild of a queue accept tasks that wait", testOrderHealthy},
	{"passes over tasks that were cancelled without their key", testOrderStale},
	{"keeps the order under random changes", testOrderRandom},
	{"keeps the order with concurrent callers", testOrderConcurrent},
}

func orderedTask(key string) holdfast.NewTask {
	task := newTask()
	task.Key, task.Ordered = key, true
	return task
}

// dueTickets dispatches until nothing is due and no outbox entry is due, and returns the tickets sorted by task. It
// also checks keys that were left, and tasks that wait for slots.
func (s *suite) dueTickets() []message.Ticket {
	s.Helper()
	var tickets []message.Ticket
	for n := 1; n > 0; {
		released, err := s.ReleaseBlocked(s.ctx, 1000)
		s.must(err)
		due, result := s.dispatch(1000)
		for _, d := range due {
			tickets = append(tickets, d.Ticket)
		}
		entries, err := s.DispatchOutbox(s.ctx, store.Queues{}, 1000, func(_ context.Context, entries []store.OutboxEntry) []bool {
			for _, entry := range entries {
				tickets = append(tickets, entry.Tickets...)
			}
			return repeated(true, len(entries))
		})
		s.must(err)
		if n = result.Given + result.Queued + entries; released.Next == 0 { // another call may release tasks at once
			n++
		}
	}
	slices.SortFunc(tickets, func(a, b message.Ticket) int { return int(a.Task - b.Task) })
	return tickets
}

// wantDue fails the test if other tasks than these get tickets now.
func (s *suite) wantDue(what string, want ...holdfast.TaskID) []message.Ticket {
	s.Helper()
	tickets := s.dueTickets()
	if got := ids(tickets); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		s.Fatalf("%s: the tasks %v get tickets, want %v", what, got, want)
	}
	return tickets
}

// entered returns the tasks of the outbox entries of an insert.
func entered(inserted store.Inserted) (list []holdfast.TaskID) {
	for _, entry := range inserted.Entries {
		list = append(list, ids(entry.Tickets)...)
	}
	slices.Sort(list)
	return list
}

func (s *suite) insertOrdered(tasks ...holdfast.NewTask) ([]holdfast.TaskID, store.Inserted) {
	s.Helper()
	inserted, err := s.Insert(s.ctx, tasks, time.Hour)
	s.must(err)
	list := make([]holdfast.TaskID, len(inserted.Tasks))
	for i, task := range inserted.Tasks {
		list[i] = task.ID
	}
	return list, inserted
}

func testOrderSequence(s *suite) {
	worker := s.registerWorker()
	a, inserted := s.insertOrdered(orderedTask("a"), orderedTask("a"), orderedTask("b"), newTask(), orderedTask("a"))
	if got, want := entered(inserted), []holdfast.TaskID{a[0], a[2], a[3]}; !slices.Equal(got, want) {
		s.Fatalf("the outbox has the tasks %v, want the first of each key and the task that is not ordered: %v", got, want)
	}
	later, inserted := s.insertOrdered(orderedTask("a"))
	if len(inserted.Entries) != 0 {
		s.Fatalf("a second insert for a key with an active task has outbox entries: %+v", inserted.Entries)
	}
	for _, id := range []holdfast.TaskID{a[1], a[4], later[0]} {
		if task := s.task(id); !task.Ordered || task.Key != "a" || task.State != holdfast.Ready {
			s.Fatalf("the stored task is %+v", task)
		}
		if claim := s.claim(worker, message.Ticket{Task: id, Attempt: 1})[0]; claim.Verdict != store.Stale {
			s.Fatalf("the claim of a task that waits is %s, want stale", verdictName(claim.Verdict))
		}
	}
	s.wantDue("nothing has ended")
	running := s.mustClaim(worker, message.Ticket{Task: a[0], Attempt: 1})
	if !running[0].Ordered || running[0].Doomed {
		s.Fatalf("the claimed task is %+v", running[0])
	}
	for _, next := range []holdfast.TaskID{a[1], a[4], later[0]} {
		s.move(running[0], holdfast.Returned(nil))
		running = s.mustClaim(worker, s.wantDue("the active task is done", next)...)
	}
	s.move(running[0], holdfast.Returned(nil))
	s.wantDue("all are done")
	again, inserted := s.insertOrdered(orderedTask("a"))
	if got := entered(inserted); !slices.Equal(got, again) {
		s.Fatalf("the outbox has %v, want the first task of the idle key", got)
	}
	if keys, err := s.OrderedKeys(s.ctx, false, 10); err != nil || len(keys) != 0 {
		s.Fatalf("OrderedKeys returned %+v, %v, want no key, because no task waits", keys, err)
	}
}

func testOrderHolds(s *suite) {
	worker := s.registerWorker()
	delayed := orderedTask("a")
	delayed.Delay = time.Hour
	list, inserted := s.insertOrdered(delayed, orderedTask("a"))
	if len(inserted.Entries) != 0 {
		s.Fatalf("the outbox has %+v, want nothing behind a delayed task", inserted.Entries)
	}
	s.wantDue("the first task is delayed")

	b, _ := s.insertOrdered(orderedTask("b"), orderedTask("b"))
	ticket := message.Ticket{Task: b[0], Attempt: 1}
	for _, cause := range []holdfast.Cause{
		holdfast.Returned(errors.New("no")), holdfast.Interrupted(errors.New("stop")), holdfast.Returned(holdfast.Defer(0, errors.New("later"))), holdfast.Crashed(worker),
	} {
		s.move(s.mustClaim(worker, ticket)[0], cause)
		ticket.Attempt++
		if got := s.wantDue("the first task is retried", b[0]); got[0] != ticket {
			s.Fatalf("the ticket is %v, want %v", got[0], ticket)
		}
	}
	s.move(s.mustClaim(worker, ticket)[0], holdfast.Returned(nil)) // a success that is recorded
	s.wantDue("the first task is done", b[1])
	s.move(s.task(list[0]), holdfast.Requested(holdfast.EventCancel))
	s.wantDue("the delayed task is cancelled", list[1])
}

// dieOrdered claims a task and lets it die. after is the policy for the later tasks of its key.
func (s *suite) dieOrdered(worker holdfast.WorkerID, ticket message.Ticket, after holdfast.AfterDeath) {
	s.Helper()
	task := s.mustClaim(worker, ticket)[0]
	p := policy()
	p.AfterDeath = after
	move, err := holdfast.Settle(task, holdfast.Returned(holdfast.Permanent(errors.New("no"))), task.CreatedAt, p)
	s.must(err)
	if !s.apply(move)[0] {
		s.Fatalf("the store refused the death of %+v", task)
	}
}

func (s *suite) retry(id holdfast.TaskID) {
	s.Helper()
	s.move(s.task(id), holdfast.Requested(holdfast.EventRequeue))
}

func testOrderDeaths(s *suite) {
	worker := s.registerWorker()
	first := func(id holdfast.TaskID) message.Ticket { return message.Ticket{Task: id, Attempt: 1} }

	blocked, _ := s.insertOrdered(orderedTask("block"), orderedTask("block"))
	s.dieOrdered(worker, first(blocked[0]), holdfast.AfterDeathBlock)
	s.wantDue("the dead task blocks its key")
	s.retry(blocked[0])
	tickets := s.wantDue("the dead task is retried", blocked[0])
	s.move(s.mustClaim(worker, tickets...)[0], holdfast.Returned(nil))
	s.wantDue("the retried task is done", blocked[1])

	skipped, _ := s.insertOrdered(orderedTask("skip"), orderedTask("skip"))
	s.dieOrdered(worker, first(skipped[0]), holdfast.AfterDeathSkip)
	s.wantDue("the next task starts", skipped[1])

	doomed, _ := s.insertOrdered(orderedTask("dead"), orderedTask("dead"), orderedTask("dead"))
	s.dieOrdered(worker, first(doomed[0]), holdfast.AfterDeathDead)
	tickets = s.wantDue("the tasks behind are doomed", doomed[1], doomed[2])
	added, _ := s.insertOrdered(orderedTask("dead"))
	tickets = append(tickets, first(added[0]))
	for _, task := range s.mustClaim(worker, tickets...) {
		if !task.Doomed || !s.task(task.ID).Doomed {
			s.Fatalf("the claimed task is not doomed: %+v", task)
		}
		if dead := s.move(task, holdfast.KeyDied()); dead.State != holdfast.Dead || dead.Failures != 0 {
			s.Fatalf("the doomed task is %+v", dead)
		}
	}
	s.retry(doomed[1])
	s.wantDue("the first task is still dead, so the retried one is doomed again", doomed[1])
	s.retry(doomed[0])
	s.wantDue("the first task is retried", doomed[0])
	fresh, inserted := s.insertOrdered(orderedTask("dead"))
	if len(inserted.Entries) != 0 || s.task(fresh[0]).Doomed {
		s.Fatal("a task behind the retried task does not wait")
	}
	s.retry(doomed[2])
	task := s.mustClaim(worker, message.Ticket{Task: doomed[0], Attempt: 2})[0]
	s.move(task, holdfast.Returned(nil))
	s.wantDue("the retried tasks keep their places", doomed[2])
}

func testOrderLeaves(s *suite) {
	worker := s.registerWorker()
	list, _ := s.insertOrdered(repeated(orderedTask("a"), 7)...)
	s.move(s.task(list[1]), holdfast.Requested(holdfast.EventCancel))
	s.wantDue("a task that waits is cancelled")
	s.move(s.task(list[0]), holdfast.Requested(holdfast.EventCancel))
	s.wantDue("the active task is cancelled before it starts", list[2])
	running := s.mustClaim(worker, message.Ticket{Task: list[2], Attempt: 1})[0]
	s.move(running, holdfast.Requested(holdfast.EventCancel))
	s.wantDue("the active task is cancelled while it runs", list[3])
	s.dieOrdered(worker, message.Ticket{Task: list[3], Attempt: 1}, holdfast.AfterDeathBlock)
	s.move(s.task(list[3]), holdfast.Requested(holdfast.EventArchive))
	s.wantDue("the dead task is archived", list[4])
	s.dieOrdered(worker, message.Ticket{Task: list[4], Attempt: 1}, holdfast.AfterDeathBlock)
	made, err := s.Change(s.ctx, anna, []store.Change{{Action: store.ActionPurge, Task: s.task(list[4])}})
	if err != nil || !made[0] {
		s.Fatalf("the purge returned %v, %v", made, err)
	}
	s.wantDue("the dead task is deleted", list[5])
	s.move(s.mustClaim(worker, message.Ticket{Task: list[5], Attempt: 1})[0], holdfast.Returned(holdfast.Cancel(errors.New("no"))))
	s.wantDue("the handler has cancelled its task", list[6])
}

func testOrderRetried(s *suite) {
	worker := s.registerWorker()
	list, _ := s.insertOrdered(repeated(orderedTask("a"), 4)...)
	s.dieOrdered(worker, message.Ticket{Task: list[0], Attempt: 1}, holdfast.AfterDeathSkip)
	s.dieOrdered(worker, s.wantDue("the first task is skipped", list[1])[0], holdfast.AfterDeathSkip)
	running := s.mustClaim(worker, s.wantDue("the second task is skipped", list[2])...)[0]
	s.retry(list[1])
	s.retry(list[0])
	s.wantDue("the third task runs")
	if place, err := s.OrderOf(s.ctx, list[1]); err != nil || place.Ahead != 1 || place.Active != list[2] || place.Waiting != 3 {
		s.Fatalf("the place of the retried task is %+v, %v", place, err)
	}
	s.move(running, holdfast.Returned(nil))
	for _, next := range []holdfast.TaskID{list[0], list[1], list[3]} {
		s.move(s.mustClaim(worker, s.wantDue("in the order of the ids", next)...)[0], holdfast.Returned(nil))
	}
	idle, _ := s.insertOrdered(orderedTask("idle"))
	s.move(s.task(idle[0]), holdfast.Requested(holdfast.EventCancel))
	s.retry(idle[0])
	s.wantDue("the key of the retried task was idle", idle[0])

	undone, _ := s.insertOrdered(orderedTask("undo"), orderedTask("undo"))
	s.dieOrdered(worker, message.Ticket{Task: undone[0], Attempt: 1}, holdfast.AfterDeathBlock)
	s.retry(undone[0])
	s.move(s.task(undone[0]), holdfast.Undone(1, 0, 0))
	s.wantDue("the retry is undone, so the dead task blocks its key again")
}

func testOrderDuplicates(s *suite) {
	holder := newTask()
	holder.Unique = "taken"
	s.insertOrdered(holder)
	duplicate, second, third := orderedTask("a"), orderedTask("a"), orderedTask("a")
	duplicate.Unique, third.Unique = "taken", "free"
	list, inserted := s.insertOrdered(duplicate, second, third)
	if !inserted.Tasks[0].Duplicate || inserted.Tasks[1].Duplicate || inserted.Tasks[2].Duplicate {
		s.Fatalf("Insert returned %+v", inserted.Tasks)
	}
	got := append(entered(inserted), ids(s.dueTickets())...)
	if !slices.Equal(got, list[1:2]) {
		s.Fatalf("the tasks %v get tickets, want the second one %v", got, list[1:2])
	}
	again := orderedTask("b")
	again.Unique = "taken"
	s.insertOrdered(again)
	s.wantDue("only a duplicate was enqueued")
	next, inserted := s.insertOrdered(orderedTask("b"))
	if got := entered(inserted); !slices.Equal(got, next) {
		s.Fatalf("the outbox has %v after a duplicate, want %v", got, next)
	}
}

func testOrderEdited(s *suite) {
	worker := s.registerWorker()
	list, _ := s.insertOrdered(repeated(orderedTask("a"), 3)...)
	at := s.now().Add(time.Hour)
	for i, edit := range []store.Edit{{Payload: []byte(`{"n":1}`)}, {RunAt: at}} {
		s.mustChange(editOf(s.task(list[i+1]), edit))
	}
	s.wantDue("the edited tasks wait")
	pause := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, pause.ID, message.Ticket{Task: list[0], Attempt: 1})
	s.mustChange(editOf(s.task(list[0]), store.Edit{MaxAttempts: 7}))
	tickets := s.wantDue("the edited active task waits for a gate only", list[0])
	s.resume(pause.Subject)
	s.move(s.mustClaim(worker, tickets...)[0], holdfast.Returned(nil))
	tickets = s.wantDue("the first task is done", list[1])
	s.move(s.mustClaim(worker, tickets...)[0], holdfast.Returned(nil))
	s.wantDue("the third task is delayed")
	if task := s.task(list[2]); task.NextRunAt.Sub(at).Abs() > time.Millisecond {
		s.Fatalf("the third task runs at %s, want %s", task.NextRunAt, at)
	}
}

func testOrderPlaces(s *suite) {
	worker := s.registerWorker()
	a, _ := s.insertOrdered(repeated(orderedTask("a"), 3)...)
	b, _ := s.insertOrdered(orderedTask("b"), orderedTask("b"))
	plain, _ := s.insertOrdered(newTask())
	s.insertOrdered(orderedTask("alone"))
	if place, err := s.OrderOf(s.ctx, a[2]); err != nil || place.Key != "a" || place.Active != a[0] || place.State != holdfast.Ready || place.Ahead != 1 || place.Waiting != 2 {
		s.Fatalf("the place of the third task is %+v, %v", place, err)
	}
	if place, err := s.OrderOf(s.ctx, a[0]); err != nil || place.Ahead != -1 {
		s.Fatalf("the place of the active task is %+v, %v", place, err)
	}
	for _, id := range append(plain, 1<<40) {
		if place, err := s.OrderOf(s.ctx, id); !errors.Is(err, holdfast.ErrNotFound) {
			s.Fatalf("OrderOf(%d) returned %+v, %v", id, place, err)
		}
	}
	s.dieOrdered(worker, message.Ticket{Task: b[0], Attempt: 1}, holdfast.AfterDeathBlock)
	keys, err := s.OrderedKeys(s.ctx, false, 10)
	if err != nil || len(keys) != 2 || keys[0].Key != "b" || keys[0].State != holdfast.Dead || keys[0].Active != b[0] || keys[0].Waiting != 1 ||
		keys[1].Key != "a" || keys[1].State != holdfast.Ready || keys[1].Waiting != 2 || keys[0].Since.Before(keys[1].Since) {
		s.Fatalf("OrderedKeys returned %+v, %v", keys, err)
	}
	if keys, err = s.OrderedKeys(s.ctx, true, 10); err != nil || len(keys) != 1 || keys[0].Key != "b" {
		s.Fatalf("OrderedKeys of dead tasks returned %+v, %v", keys, err)
	}
	if keys, err = s.OrderedKeys(s.ctx, false, 1); err != nil || len(keys) != 1 || keys[0].Key != "b" {
		s.Fatalf("OrderedKeys with a limit returned %+v, %v", keys, err)
	}
}

func testOrderHealthy(s *suite) {
	s.idleWorker()
	list, _ := s.insertOrdered(repeated(orderedTask("a"), 3)...)
	s.wantNoFault(store.VerifyLimits{})
	if _, err := s.CorrectTimes(s.ctx); err != nil {
		s.Fatal(err)
	}
	s.wantDue("nothing has ended")
	if n, err := s.UnticketQueue(s.ctx, defaultQueue); err != nil || n != 1 {
		s.Fatalf("UnticketQueue changed %d tasks, %v; want 1", n, err)
	}
	s.wantDue("the tickets of the queue are lost", list[0])
}

// testOrderStale starts the next task of a key although rows remain of tasks that no longer wait. Changes
// by hand leave such rows.
func testOrderStale(s *suite) {
	worker := s.registerWorker()
	list, _ := s.insertOrdered(repeated(orderedTask("a"), 4)...)
	var moves []holdfast.Transition
	for _, id := range list[1:3] {
		move := s.settle(s.task(id), holdfast.Requested(holdfast.EventCancel))
		move.OrderedKey = ""
		moves = append(moves, move)
	}
	s.apply(moves...)
	s.move(s.mustClaim(worker, message.Ticket{Task: list[0], Attempt: 1})[0], holdfast.Returned(nil))
	s.wantDue("the tasks before the last one are cancelled", list[3])
}
