// Package storetest is the suite that every store passes: it says in code what the
// comments of package store promise. An adapter's test calls Run.
//
// The suite uses nothing but the contract. It compares times only with the store's own clock, and
// where something has to become old it polls until the store says so.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Run tests a store. open returns an empty, migrated store of its own for each test and closes it when
// the test ends.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, role := range []struct {
		name  string
		tests []test
	}{
		{"Insert", insertTests}, {"Claim", claimTests}, {"Apply", applyTests}, {"Leases", leaseTests},
		{"Fencing", fencingTests}, {"Dispatch", dispatchTests}, {"Receipts", receiptTests}, {"Repair", repairTests},
		{"Prune", pruneTests}, {"Desk", deskTests}, {"Migrations", migrationTests},
	} {
		t.Run(role.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range role.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(&suite{T: t, Store: open(t), ctx: t.Context()})
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
	store.Store
	ctx context.Context
}

// patience bounds how long a test waits for something that must happen.
const patience = time.Minute

const (
	defaultLane = holdfast.DefaultLane
	kind        = "suite.kind"
	other       = "suite.other"
)

// kinds are the types most tests claim.
var kinds = store.AnyOf(kind)

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// eventually polls until what holds. Failing is the only thing that takes long.
func (s *suite) eventually(what string, holds func() bool) {
	s.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			s.Fatalf("still not: %s", what)
		}
	}
}

func newTask() holdfast.NewTask {
	return holdfast.NewTask{Type: kind, Lane: defaultLane, MaxAttempts: 3}
}

// insert stores tasks and returns the tickets of their first attempts.
func (s *suite) insert(tasks ...holdfast.NewTask) []message.Ticket {
	s.Helper()
	inserted, err := s.Insert(s.ctx, tasks, time.Hour)
	s.must(err)
	if len(inserted.Tasks) != len(tasks) {
		s.Fatalf("%d answers for %d tasks", len(inserted.Tasks), len(tasks))
	}
	tickets := make([]message.Ticket, len(tasks))
	for i, task := range inserted.Tasks {
		tickets[i] = message.Ticket{Task: task.ID, Attempt: 1}
	}
	return tickets
}

// inserts stores n plain tasks.
func (s *suite) inserts(n int) []message.Ticket {
	s.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = newTask()
	}
	return s.insert(tasks...)
}

// run starts a run that outlives the test.
func (s *suite) openRun() holdfast.RunID {
	s.Helper()
	return s.openRunFor(time.Hour)
}

func (s *suite) openRunFor(lease time.Duration) holdfast.RunID {
	s.Helper()
	run, err := s.OpenRun(s.ctx, store.RunInfo{Name: "worker", Host: "here", PID: 7, Version: "v1", Concurrency: 4}, lease)
	s.must(err)
	return run
}

// deadRun starts a run and has it fenced once f was called.
func (s *suite) deadRun(f func(holdfast.RunID)) holdfast.RunID {
	s.Helper()
	run := s.openRun()
	f(run)
	s.fence(run)
	return run
}

// fence lets the lease of a run end and declares it dead.
func (s *suite) fence(run holdfast.RunID) {
	s.Helper()
	_, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Microsecond})
	s.must(err)
	s.eventually("fenced", func() bool {
		fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
		s.must(err)
		return len(fenced) == 1 && fenced[0] == run
	})
}

func (s *suite) claim(run holdfast.RunID, tickets ...message.Ticket) []store.Claim {
	s.Helper()
	claims, err := s.Claim(s.ctx, run, kinds, tickets, store.IntoExecutors)
	s.must(err)
	if len(claims) != len(tickets) {
		s.Fatalf("%d claims for %d tickets", len(claims), len(tickets))
	}
	return claims
}

// claimed claims tasks that must all be free.
func (s *suite) claimed(run holdfast.RunID, tickets ...message.Ticket) []holdfast.Task {
	s.Helper()
	tasks := make([]holdfast.Task, len(tickets))
	for i, claim := range s.claim(run, tickets...) {
		if claim.Verdict != store.Claimed {
			s.Fatalf("ticket %v: %s, want a claim", tickets[i], verdictName(claim.Verdict))
		}
		tasks[i] = claim.Task
	}
	return tasks
}

// running is a new task that a new run holds.
func (s *suite) running() holdfast.Task {
	s.Helper()
	return s.claimed(s.openRun(), s.inserts(1)...)[0]
}

func (s *suite) task(id holdfast.TaskID) holdfast.Task {
	s.Helper()
	task, err := s.Task(s.ctx, id)
	s.must(err)
	return task
}

// policy retries at once.
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

// move applies what cause means for a task, which must be accepted, and returns the task.
func (s *suite) move(task holdfast.Task, cause holdfast.Cause) holdfast.Task {
	s.Helper()
	if !s.apply(s.settle(task, cause))[0] {
		s.Fatalf("the move of %+v was refused", task)
	}
	return s.task(task.ID)
}

func (s *suite) apply(moves ...holdfast.Transition) []bool {
	s.Helper()
	accepted, err := s.Apply(s.ctx, moves)
	s.must(err)
	if len(accepted) != len(moves) {
		s.Fatalf("%d answers for %d moves", len(accepted), len(moves))
	}
	return accepted
}

// dispatch publishes at most limit due tasks with success.
func (s *suite) dispatch(limit int) (due []store.Due, result store.Dispatched) {
	s.Helper()
	result, err := s.DispatchDue(s.ctx, store.Lanes{}, limit, func(_ context.Context, given []store.Due) []bool {
		due = given
		return all(true, len(given))
	})
	s.must(err)
	return due, result
}

func all(value bool, n int) []bool {
	list := make([]bool, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// position is where the ticket's task stands.
func (s *suite) position(ticket message.Ticket) store.Position {
	s.Helper()
	positions, err := s.Positions(s.ctx, []message.Ticket{ticket})
	s.must(err)
	if len(positions) != 1 {
		s.Fatalf("%d positions for one ticket", len(positions))
	}
	return positions[0]
}

func verdictName(v store.Verdict) string {
	names := map[store.Verdict]string{
		store.Stale: "stale", store.Claimed: "claimed", store.Contended: "contended", store.Ahead: "ahead", store.Unhandled: "unhandled", store.Suspect: "suspect",
	}
	if name, ok := names[v]; ok {
		return name
	}
	return fmt.Sprintf("verdict %d", v)
}

// ids lists the tasks of tickets.
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

// now is the store's clock.
func (s *suite) now() time.Time {
	s.Helper()
	now, err := s.Now(s.ctx)
	s.must(err)
	return now
}
