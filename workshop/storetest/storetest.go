// Package storetest is the conformance suite for stores. It tests the promises in the comments of package store. The
// tests of each adapter call Run, and one more function for each optional role that the adapter implements.
//
// The suite uses only the contract. It compares times only with the clock of the store. If a row must reach an age, the
// suite polls the store until the row has that age.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Run tests a store. For each test, open returns a new store that is empty and migrated, and closes it when the test
// ends.
func Run(t *testing.T, open func(t *testing.T) desk.Store) {
	RunServices(t, func(t *testing.T) store.Store { return open(t) })
	run(t, open, []role{
		{"Deaths", deathTests}, {"Groups", groupTests}, {"Notices", noticeTests}, {"Migrations", migrationTests},
		{"Tokens", tokenTests}, {"Answers", answerTests}, {"Figures", figureTests}, {"BlockedTasks", blockedTests},
	})
}

// RunServices is like Run, without the roles that only a database has.
func RunServices(t *testing.T, open func(t *testing.T) store.Store) {
	run(t, func(t *testing.T) desk.Store { return whole(open(t)) }, []role{
		{"Insert", insertTests}, {"Claim", claimTests}, {"Apply", applyTests}, {"Leases", leaseTests}, {"Fencing", fencingTests},
		{"Dispatch", dispatchTests}, {"Outbox", outboxTests}, {"Repair", repairTests}, {"Prune", pruneTests},
		{"Inspect", inspectTests}, {"Search", searchTests}, {"Audit", auditTests}, {"Counters", counterTests}, {"Verification", verifyTests},
		{"Operations", operationTests}, {"Gates", gateTests}, {"GateChanges", gateChangeTests},
		{"Limits", limitTests}, {"Breakers", breakerTests}, {"Priorities", priorityTests}, {"TypeQueues", typeQueueTests}, {"Order", orderTests},
		{"Topics", topicTests}, {"Plans", planTests}, {"Effects", effectTests}, {"Settings", settingTests},
	})
}

// whole returns s with its desk and its migrations. If s has none, a call of their methods panics.
func whole(s store.Store) desk.Store {
	if all, ok := s.(desk.Store); ok {
		return all
	}
	return desk.Without(s)
}

// role is the tests of a role.
type role struct {
	name  string
	tests []test
}

func run(t *testing.T, open func(t *testing.T) desk.Store, roles []role) {
	for _, role := range roles {
		t.Run(role.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range role.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					s := &suite{T: t, Store: open(t), ctx: t.Context()}
					test.run(s)
					if role.name != "Migrations" {
						s.checkCounters()
					}
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(*suite)
}

// suite is one test with its store.
type suite struct {
	*testing.T
	desk.Store
	ctx context.Context
}

const (
	defaultQueue = holdfast.DefaultQueue
	kind         = "suite.kind"
	other        = "suite.other"
)

// kinds has the task types that most tests claim.
var kinds = store.AnyOf(kind)

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually polls until holds returns true. If that takes longer than slow.Patience, the test fails.
func (s *suite) eventually(what string, holds func() bool) {
	s.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(slow.Patience())
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			s.Fatalf("timeout while waiting: %s", what)
		}
	}
}

func newTask() holdfast.NewTask {
	return holdfast.NewTask{Type: kind, Queue: defaultQueue, MaxAttempts: 3}
}

// List is List of the store, but it continues a page that has stopped after its time limit. A busy machine causes such
// stops, and no test may depend on them.
func (s *suite) List(ctx context.Context, f store.Filter) (page store.Page, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	for {
		f.Limit = limit - len(page.Tasks)
		part, err := s.Store.List(ctx, f)
		if err != nil {
			return store.Page{}, err
		}
		page.Tasks, page.Next = append(page.Tasks, part.Tasks...), part.Next
		if f.Before = part.Next; part.Next == 0 || len(page.Tasks) >= limit {
			return page, nil
		}
	}
}

// Count is Count of the store, but it continues after its time limit, as List does.
func (s *suite) Count(ctx context.Context, f store.Filter) (counts store.Counts, err error) {
	counts.By = make(map[holdfast.State]int64)
	for {
		part, err := s.Store.Count(ctx, f)
		if err != nil {
			return store.Counts{}, err
		}
		for state, n := range part.By {
			counts.By[state] += n
		}
		if f.Before = part.Next; part.Next == 0 {
			return counts, nil
		}
	}
}

// insert stores the tasks and returns the tickets of their first attempts.
func (s *suite) insert(tasks ...holdfast.NewTask) []message.Ticket {
	s.Helper()
	inserted, err := s.Insert(s.ctx, tasks, time.Hour)
	s.must(err)
	if len(inserted.Tasks) != len(tasks) {
		s.Fatalf("Insert returned %d results for %d tasks", len(inserted.Tasks), len(tasks))
	}
	tickets := make([]message.Ticket, len(tasks))
	for i, task := range inserted.Tasks {
		tickets[i] = message.Ticket{Task: task.ID, Attempt: 1}
	}
	return tickets
}

// insertN stores n tasks without options.
func (s *suite) insertN(n int) []message.Ticket {
	s.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = newTask()
	}
	return s.insert(tasks...)
}

// registerWorker registers a worker whose lease is longer than the test.
func (s *suite) registerWorker() holdfast.WorkerID {
	s.Helper()
	return s.registerWorkerFor(time.Hour)
}

func (s *suite) registerWorkerFor(lease time.Duration) holdfast.WorkerID {
	s.Helper()
	return s.registerWorkerWith(store.WorkerInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 4}, lease)
}

func (s *suite) registerWorkerWith(info store.WorkerInfo, lease time.Duration) holdfast.WorkerID {
	s.Helper()
	worker, err := s.RegisterWorker(s.ctx, info, lease)
	s.must(err)
	return worker
}

// deadWorker registers a worker, calls f, and fences the worker.
func (s *suite) deadWorker(f func(holdfast.WorkerID)) holdfast.WorkerID {
	s.Helper()
	worker := s.registerWorker()
	f(worker)
	s.fence(worker)
	return worker
}

// fence ends the lease of a worker and fences the worker.
func (s *suite) fence(worker holdfast.WorkerID) {
	s.Helper()
	_, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Microsecond})
	s.must(err)
	s.eventually("Fence fences the worker", func() bool {
		fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
		s.must(err)
		return len(fenced) == 1 && fenced[0] == worker
	})
}

func (s *suite) claim(worker holdfast.WorkerID, tickets ...message.Ticket) []store.Claim {
	s.Helper()
	claims, err := s.Claim(s.ctx, worker, kinds, tickets, store.IntoExecutors)
	s.must(err)
	if len(claims) != len(tickets) {
		s.Fatalf("Claim returned %d claims for %d tickets", len(claims), len(tickets))
	}
	return claims
}

// mustClaim claims tasks. The test fails if the worker does not get all of them.
func (s *suite) mustClaim(worker holdfast.WorkerID, tickets ...message.Ticket) []holdfast.Task {
	s.Helper()
	tasks := make([]holdfast.Task, len(tickets))
	for i, claim := range s.claim(worker, tickets...) {
		if claim.Verdict != store.Claimed {
			s.Fatalf("ticket %v: the verdict is %s, want claimed", tickets[i], verdictName(claim.Verdict))
		}
		tasks[i] = *claim.Task
	}
	return tasks
}

// runningTask returns a new task that runs under a new worker.
func (s *suite) runningTask() holdfast.Task {
	s.Helper()
	return s.mustClaim(s.registerWorker(), s.insertN(1)...)[0]
}

func (s *suite) task(id holdfast.TaskID) holdfast.Task {
	s.Helper()
	task, err := s.Task(s.ctx, id)
	s.must(err)
	return task
}

// policy returns a policy that retries at once.
func policy() holdfast.Policy {
	p := holdfast.DefaultPolicy()
	p.Strategy, p.Base, p.Jitter = holdfast.Fixed, 0, 0
	return p
}

func (s *suite) settle(task holdfast.Task, cause holdfast.Cause) holdfast.Transition {
	s.Helper()
	move, err := holdfast.Settle(task, cause, task.CreatedAt, policy())
	s.must(err)
	return move
}

// move settles a task with cause, applies the transition, and returns the task. The test fails if the store refuses the
// transition.
func (s *suite) move(task holdfast.Task, cause holdfast.Cause) holdfast.Task {
	s.Helper()
	if !s.apply(s.settle(task, cause))[0] {
		s.Fatalf("the store refused the transition of %+v", task)
	}
	return s.task(task.ID)
}

func (s *suite) apply(moves ...holdfast.Transition) []bool {
	s.Helper()
	accepted, err := s.Apply(s.ctx, moves)
	s.must(err)
	if len(accepted) != len(moves) {
		s.Fatalf("Apply returned %d results for %d transitions", len(accepted), len(moves))
	}
	return accepted
}

// dispatch calls DispatchDue with a publish function that succeeds for all tasks.
func (s *suite) dispatch(limit int) (due []store.Due, result store.Dispatched) {
	s.Helper()
	result, err := s.DispatchDue(s.ctx, store.Queues{}, limit, func(_ context.Context, given []store.Due) []bool {
		due = given
		return repeated(true, len(given))
	})
	s.must(err)
	return due, result
}

func repeated[T any](value T, n int) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// position returns the position of the task of a ticket.
func (s *suite) position(ticket message.Ticket) store.Position {
	s.Helper()
	positions, err := s.Positions(s.ctx, []message.Ticket{ticket})
	s.must(err)
	if len(positions) != 1 {
		s.Fatalf("Positions returned %d positions for one ticket", len(positions))
	}
	return positions[0]
}

func verdictName(v store.Verdict) string {
	names := map[store.Verdict]string{
		store.Stale: "stale", store.Claimed: "claimed", store.Contended: "contended", store.Ahead: "ahead",
		store.Blocked: "blocked", store.Unhandled: "unhandled", store.LastChance: "last chance",
	}
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("verdict %d", v)
}

// ids returns the task ids of tickets.
func ids(tickets []message.Ticket) []holdfast.TaskID {
	list := make([]holdfast.TaskID, len(tickets))
	for i, ticket := range tickets {
		list[i] = ticket.Task
	}
	return list
}

func idsOf(tasks []holdfast.Task) []holdfast.TaskID {
	list := make([]holdfast.TaskID, len(tasks))
	for i, task := range tasks {
		list[i] = task.ID
	}
	return list
}

// now returns the time of the store.
func (s *suite) now() time.Time {
	s.Helper()
	now, err := s.Now(s.ctx)
	s.must(err)
	return now
}
