package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var verifyTests = []test{
	{"finds nothing among tasks as the design wants them", testVerifyClean},
	{"finds a ticket that is proved lost", testVerifyLostTicket},
	{"finds a ticket that an idle worker did not get", testVerifyOverdueTicket},
	{"finds a due task without a ticket", testVerifyOverdueDispatch},
	{"finds tasks under workers that have ended", testVerifyEndedWorker},
	{"finds tasks under workers whose lease has expired", testVerifyExpiredLease},
	{"reads all tasks in steps", testVerifySteps},
	{"counts the tickets of each queue", testCountTickets},
	{"keeps the newest result of each part", testVerifyResults},
}

// strict has limits that every state exceeds at once.
var strict = store.VerifyLimits{Overdue: time.Microsecond, Orphan: time.Microsecond}

// VerifyFaults returns the faulty tasks that a complete check finds, by code.
func VerifyFaults(t *testing.T, s store.Verification, limits store.VerifyLimits) map[store.FaultCode][]holdfast.TaskID {
	t.Helper()
	found := make(map[store.FaultCode][]holdfast.TaskID)
	for _, part := range store.VerifyParts() {
		for after := holdfast.TaskID(0); ; {
			step, err := s.VerifyStep(t.Context(), part, after, limits)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range step.Findings {
				if fault, known := store.FaultOf(f.Code); !known || fault.Part != part {
					t.Fatal("part ", part, " found ", f)
				}
				found[f.Code] = append(found[f.Code], f.Task)
			}
			if step.Next == 0 {
				break
			}
			if after >= step.Next {
				t.Fatal("part ", part, " does not advance from ", after)
			}
			after = step.Next
		}
	}
	return found
}

func (s *suite) verify(limits store.VerifyLimits) map[store.FaultCode][]holdfast.TaskID {
	s.Helper()
	return VerifyFaults(s.T, s.Store, limits)
}

// wantFault polls until a complete check finds exactly the given tasks with a fault, and no other fault.
func (s *suite) wantFault(code store.FaultCode, limits store.VerifyLimits, tasks ...holdfast.TaskID) {
	s.Helper()
	for _, limits.Counted = range []bool{false, true} {
		s.eventually("the check finds "+string(code), func() bool {
			found := s.verify(limits)
			return len(found) == 1 && slices.Equal(found[code], tasks)
		})
	}
}

func (s *suite) wantNoFault(limits store.VerifyLimits) {
	s.Helper()
	for _, limits.Counted = range []bool{false, true} {
		if found := s.verify(limits); len(found) > 0 {
			s.Errorf("the check finds %v", found)
		}
	}
}

// RunVerifyBlocks checks that a check with Counted reads the blocks with open tasks. The store is empty. exec executes
// a statement that changes no counters, as a person may.
func RunVerifyBlocks(t *testing.T, s desk.Store, exec func(string)) {
	const block = 100_000 // the ids of a block of the counters
	w := &suite{T: t, Store: s, ctx: t.Context()}
	tasks := w.mustClaim(w.registerWorker(), w.insertN(8)...)
	for _, task := range tasks[3:] {
		w.move(task, holdfast.Returned(nil))
	}
	open := []holdfast.TaskID{block, 2*block - 1, 7*block + 3} // the first and the last id of a block, and one between
	for i, id := range append(open, 5, block-1, block+30_000, 2*block, 9*block) {
		exec(fmt.Sprintf("update tasks set id = %d where id = %d", -id, tasks[i].ID))
	}
	exec("update tasks set id = -id")
	exec("delete from workers")
	limits := store.VerifyLimits{Orphan: time.Microsecond, Overdue: time.Hour, Slack: time.Hour}
	want := func(when string, counted bool, tasks ...holdfast.TaskID) {
		t.Helper()
		limits.Counted = counted
		if found := VerifyFaults(t, s, limits)[store.ZombieMissing]; !slices.Equal(found, tasks) {
			t.Errorf("%s: the check found %v, want %v", when, found, tasks)
		}
	}
	recount := func() {
		for range 10 {
			if _, err := s.Recount(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := append([]holdfast.TaskID{5}, open...)
	recount()
	want("after a recount", true, open...)
	exec("update tasks set state = 'running', worker_id = 7, finished_at = null where id = 5")
	want("a task was reopened by hand", true, open...)
	want("a task was reopened by hand", false, all...)
	recount()
	want("after another recount", true, all...)
	limits.Orphan = time.Hour
	want("within the time", false)
	exec("update tasks set state = 'ready', worker_id = null, finished_at = null, ticketed_at = created_at")
	if sum := w.countTickets()[defaultQueue]; sum.Ticketed != int64(len(tasks)) {
		t.Errorf("%d tickets are counted, want %d", sum.Ticketed, len(tasks))
	}
}

// RunVerifyRecords checks that a check finds the tasks whose records are lost, and an attempt that was recorded twice.
// The store is empty. exec executes a statement, as a person may.
func RunVerifyRecords(t *testing.T, s desk.Store, exec func(string)) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	worker := w.executors(2)
	tickets := append(w.insertN(5), w.insert(repeated(orderedTask("a"), 2)...)...)
	for _, ticket := range tickets[:2] {
		w.move(w.mustClaim(worker, ticket)[0], holdfast.Returned(holdfast.RetryAfter(time.Hour, nil)))
	}
	elsewhere := newTask()
	elsewhere.Queue = "elsewhere"
	removed := w.insert(elsewhere)[0]
	topics := w.insertTopics(4, "a")["a"]
	slot := w.dueTickets()[0]
	if slot.Task != topics[0] {
		t.Fatalf("the first ticket is of task %s, want task %s", slot.Task, topics[0])
	}
	w.block(worker, w.pause(store.Subject{Queue: "elsewhere"}, 0).ID, removed)
	gate := w.pause(store.Subject{Type: kind}, 0)
	w.block(worker, gate.ID, append(slices.Clone(tickets[2:6]), slot)...)
	want := func(when string, code store.FaultCode, tasks ...holdfast.TaskID) {
		t.Helper()
		found := w.verify(store.VerifyLimits{Slack: time.Hour, Overdue: time.Hour, Orphan: time.Hour})
		slices.Sort(found[code])
		if !slices.Equal(found[code], tasks) || len(found) > min(len(tasks), 1) {
			t.Errorf("%s: the check finds %v, want %s of %v", when, found, code, tasks)
		}
	}
	want("before a loss", "")
	exec(fmt.Sprintf("update attempts set attempt = attempt + 1 where task_id = %d", tickets[0].Task))
	want("an attempt was recorded twice", store.DuplicatedAttempt, tickets[0].Task)
	exec("delete from attempts")
	exec(fmt.Sprintf("update blocked set attempt = attempt + 1 where task_id = %d", tickets[2].Task))
	exec(fmt.Sprintf("delete from blocked where task_id in (%d, %d, %d)", tickets[3].Task, tickets[5].Task, slot.Task))
	lost := []holdfast.TaskID{tickets[2].Task, tickets[3].Task, tickets[5].Task, slot.Task}
	want("records of blocked tasks are lost", store.LostRecord, lost...)
	exec(fmt.Sprintf("delete from gates where id <> %d", gate.ID))
	want("a gate is lost", store.LostRecord, lost[0], lost[1], lost[2], removed.Task, lost[3])
	exec(fmt.Sprintf("update tasks set next_run_at = due_at where id <> %d", tickets[3].Task))
	want("tasks are to run in the year 9999", store.LostRecord, tickets[3].Task)
}

// idleWorker registers a live worker that handles the kind and has free executors.
func (s *suite) idleWorker() holdfast.WorkerID {
	s.Helper()
	worker, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "idle", Concurrency: 4, Types: []string{kind}}, time.Hour)
	s.must(err)
	return worker
}

func testVerifyClean(s *suite) {
	worker := s.idleWorker()
	later, unhandled := newTask(), newTask()
	later.Delay, unhandled.Type = time.Hour, other
	tickets := s.insert(newTask(), newTask(), later, unhandled)
	s.mustClaim(worker, tickets[0])
	for _, state := range holdfast.States() {
		s.taskIn(state)
	}
	failed := s.mustClaim(worker, tickets[1])[0]
	s.move(failed, holdfast.Returned(holdfast.RetryAfter(time.Hour, nil)))
	_, err := s.Unticket(s.ctx, tickets[3:])
	s.must(err)
	s.deliverSentinels()
	s.wantNoFault(store.VerifyLimits{Slack: time.Hour, Overdue: time.Microsecond, Orphan: time.Microsecond})
	if suspicious, err := s.Suspicious(s.ctx, strict); suspicious || err != nil {
		s.Errorf("Suspicious returned %v, %v", suspicious, err)
	}
}

func testVerifyLostTicket(s *suite) {
	lost := s.insertConfirmed()
	s.wantNoFault(strict)
	s.deliverTwoSentinels()
	s.insertConfirmed() // younger than the sentinels
	s.wantFault(store.LostTicket, strict, lost.Task)
	s.wantNoFault(store.VerifyLimits{Slack: time.Hour, Overdue: time.Microsecond, Orphan: time.Microsecond})

	worker, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "busy", Concurrency: 2}, time.Minute)
	s.must(err)
	_, err = s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Minute, Running: 2})
	s.must(err)
	s.wantNoFault(strict)
	_, err = s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Minute, Running: 1})
	s.must(err)
	s.wantFault(store.LostTicket, strict, lost.Task)

	if n, _, err := s.UnticketLost(s.ctx, 0); n != 1 || err != nil {
		s.Fatalf("UnticketLost returned %d, %v", n, err)
	}
	s.wantNoFault(strict)
}

func testVerifyOverdueTicket(s *suite) {
	ticket := s.insertConfirmed()
	busy, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "busy", Concurrency: 2, Types: []string{kind}}, time.Minute)
	s.must(err)
	_, err = s.Renew(s.ctx, store.Renewal{Worker: busy, Lease: time.Minute, Running: 2})
	s.must(err)
	s.deliverTwoSentinels()
	_, _, err = s.UnticketLost(s.ctx, time.Hour) // keeps the proof of a slack of 0 for later
	s.must(err)
	s.wantNoFault(strict)
	elsewhere, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "elsewhere", Concurrency: 2, Types: []string{kind}, Queues: []string{"elsewhere"}}, time.Minute)
	s.must(err)
	otherKind, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "other", Concurrency: 2, Types: []string{other}}, time.Minute)
	s.must(err)
	s.wantNoFault(strict)
	_, _ = elsewhere, otherKind
	idle := s.idleWorker()
	s.eventually("a sentinel left the queue ten seconds ago", func() bool {
		return slices.Equal(s.verify(strict)[store.OverdueTicket], []holdfast.TaskID{ticket.Task})
	})
	gate := s.pause(store.Subject{Queue: defaultQueue}, 0)
	if found := s.verify(strict)[store.OverdueTicket]; len(found) > 0 {
		s.Errorf("tickets of a paused queue are overdue: %v", found)
	}
	s.resume(gate.Subject)
	limit := store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: defaultQueue}}, Concurrency: 10}
	_, err = s.SetLimit(s.ctx, anna, limit.Change())
	s.must(err)
	s.wantFault(store.OverdueTicket, strict, ticket.Task) // a limit keeps no ticket in the queue
	_, err = s.UnsetLimit(s.ctx, anna, limit.Scope)
	s.must(err)
	s.mustClaim(idle, ticket)
	s.wantNoFault(strict)
}

func testVerifyOverdueDispatch(s *suite) {
	tickets := s.insertN(2)
	_, err := s.Unticket(s.ctx, tickets[:1])
	s.must(err)
	s.wantNoFault(strict) // no worker
	s.idleWorker()
	s.wantFault(store.OverdueDispatch, strict, tickets[0].Task)
	s.wantNoFault(store.VerifyLimits{Overdue: time.Hour})
	s.dispatch(10)
	s.wantNoFault(store.VerifyLimits{Slack: time.Hour, Overdue: time.Microsecond})
}

func testVerifyEndedWorker(s *suite) {
	var ticket message.Ticket
	worker := s.deadWorker(func(worker holdfast.WorkerID) {
		ticket = s.insertN(1)[0]
		s.mustClaim(worker, ticket)
	})
	s.wantNoFault(store.VerifyLimits{Orphan: time.Hour, Overdue: time.Hour})
	s.wantFault(store.ZombieEnded, strict, ticket.Task)
	if suspicious, err := s.Suspicious(s.ctx, strict); !suspicious || err != nil {
		s.Errorf("Suspicious returned %v, %v", suspicious, err)
	}
	tasks, err := s.Abandoned(s.ctx, worker, 10)
	s.must(err)
	s.move(tasks[0], holdfast.Crashed(worker))
	s.wantNoFault(strict)
}

func testVerifyExpiredLease(s *suite) {
	worker := s.registerWorker()
	ticket := s.insertN(1)[0]
	s.mustClaim(worker, ticket)
	s.wantNoFault(strict)
	_, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Microsecond})
	s.must(err)
	s.wantFault(store.ZombieExpired, strict, ticket.Task)
	if suspicious, err := s.Suspicious(s.ctx, strict); !suspicious || err != nil {
		s.Errorf("Suspicious returned %v, %v", suspicious, err)
	}
	_, err = s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour})
	s.must(err)
	s.wantNoFault(strict)
}

func testVerifySteps(s *suite) {
	tickets := s.insertN(200)
	s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, tickets...) })
	want := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		want[i] = ticket.Task
	}
	s.wantFault(store.ZombieEnded, strict, want...)
	step, err := s.VerifyStep(s.ctx, store.VerifyAll, want[len(want)-1], strict)
	if err != nil || step.Next != 0 || len(step.Findings) > 0 {
		s.Errorf("the step after the last task returned %v, %v", step, err)
	}
	if _, err := s.VerifyStep(s.ctx, "unknown", 0, strict); err == nil {
		s.Error("a check of an unknown part succeeds")
	}
}

func testVerifyResults(s *suite) {
	results := func() []store.VerifyResult {
		s.Helper()
		results, err := s.VerifyResults(s.ctx)
		s.must(err)
		return results
	}
	if got := results(); len(got) != 0 {
		s.Errorf("before a check: %v", got)
	}
	s.must(s.StoreVerifyResult(s.ctx, store.VerifyResult{Part: store.VerifyAll, Resume: 7, Incomplete: true}))
	if got := results(); len(got) != 1 || !got[0].Incomplete || got[0].Resume != 7 {
		s.Errorf("after an incomplete check: %+v", got)
	}
	lost := []store.FaultCount{{Code: store.LostRecord, Tasks: 30, Samples: []holdfast.TaskID{3, 4}}}
	s.must(s.StoreVerifyResult(s.ctx, store.VerifyResult{Part: store.VerifyAll, Counts: lost}))
	s.must(s.StoreVerifyResult(s.ctx, store.VerifyResult{Part: store.VerifyAll, Resume: 9, Incomplete: true}))
	s.eventually("the result has an age", func() bool { return results()[0].Age > 0 })
	got := results()[0]
	if got.Incomplete || got.Resume != 9 || len(got.Counts) != 1 || got.Counts[0].Tasks != 30 || !slices.Equal(got.Counts[0].Samples, lost[0].Samples) {
		s.Errorf("the result is %+v", got)
	}
	s.must(s.StoreVerifyResult(s.ctx, store.VerifyResult{Part: store.VerifyAll}))
	if got := results()[0]; len(got.Counts) != 0 || got.Resume != 0 {
		s.Errorf("after a check without findings: %+v", got)
	}
}

// countTickets returns the sums of CountTickets by queue.
func (s *suite) countTickets() map[string]store.TicketCount {
	s.Helper()
	sum := make(map[string]store.TicketCount)
	for after := holdfast.TaskID(0); ; {
		counts, next, err := s.CountTickets(s.ctx, after)
		s.must(err)
		for _, c := range counts {
			sum[c.Queue] = store.TicketCount{Queue: c.Queue, Ticketed: sum[c.Queue].Ticketed + c.Ticketed, Due: sum[c.Queue].Due + c.Due}
		}
		if after = next; after == 0 {
			return sum
		}
	}
}

func testCountTickets(s *suite) {
	elsewhere, later := newTask(), newTask()
	elsewhere.Queue, later.Delay = "elsewhere", time.Hour
	tickets := s.insert(newTask(), newTask(), newTask(), elsewhere, later)
	s.mustClaim(s.registerWorker(), tickets[0])
	_, err := s.Unticket(s.ctx, tickets[1:2])
	s.must(err)
	sum := s.countTickets()
	want := map[string]store.TicketCount{defaultQueue: {Queue: defaultQueue, Ticketed: 1, Due: 1}, "elsewhere": {Queue: "elsewhere", Ticketed: 1}}
	if !maps.Equal(sum, want) {
		s.Errorf("the counts are %v, want %v", sum, want)
	}
}
