package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var limitTests = []test{
	{"lets as many tasks run as the concurrency allows", testLimitConcurrency},
	{"frees a permit however the attempt ends", testLimitFrees},
	{"spreads the starts of a rate", testLimitRate},
	{"keeps a rate while few tasks arrive at a time", testLimitTrickle},
	{"counts each key and target for itself", testLimitPer},
	{"gives the permits of several limits or none", testLimitCombined},
	{"starts a task of two busy limits", testLimitReserved},
	{"keeps no permit for a task that is cancelled or paused", testLimitReservationEnds},
	{"gives no permit to a task of a closed gate", testLimitPaused},
	{"changes and unsets limits", testLimitChanged},
	{"applies a higher rate at once", testLimitFaster},
	{"refuses limits that are not valid", testLimitInvalid},
	{"reports what a task waits for", testLimitsOf},
	{"counts the tasks of several limits apart", testLimitsBeside},
	{"gives permits while another limit is removed", testLimitBesideRemoved},
	{"blocks more buckets than one step looks at", testLimitManyBuckets},
	{"gives many permits in few calls", testLimitFewCalls},
	{"gives permits while a gate that has opened releases its tasks", testLimitBesideRelease},
	{"never exceeds a concurrency", testLimitExact},
	{"gives no more permits than workers have executors", testLimitRoom},
	{"a host that is too long has no target and delays no other task", testLimitLongHost},
}

func (s *suite) setLimit(l store.Limit) store.Limit {
	s.Helper()
	set, err := s.SetLimit(s.ctx, anna, l.Change())
	s.must(err)
	return set.After
}

// ofKind is the scope of the tasks of newTask.
var ofKind = store.Scope{Subject: store.Subject{Type: kind}}

// perKey is the scope with a bucket for each key.
var perKey = store.Scope{Per: store.PerKey}

// keyed inserts one task for each key.
func (s *suite) keyed(keys ...string) []message.Ticket {
	s.Helper()
	tasks := make([]holdfast.NewTask, len(keys))
	for i, key := range keys {
		tasks[i] = newTask()
		tasks[i].Key = key
	}
	return s.insert(tasks...)
}

// permitted releases blocked tasks until no task gets a permit, and returns those that are due now, by id.
func (s *suite) permitted() []holdfast.TaskID {
	s.Helper()
	for {
		released, err := s.ReleaseBlocked(s.ctx, 1000)
		s.must(err)
		if released.Tasks == 0 && released.Next != 0 {
			return s.due()
		}
	}
}

func (s *suite) wantPermitted(when string, want ...message.Ticket) {
	s.Helper()
	ids := make([]holdfast.TaskID, len(want))
	for i, ticket := range want {
		ids[i] = ticket.Task
	}
	slices.Sort(ids)
	if got := s.permitted(); !slices.Equal(got, ids) {
		s.Fatalf("%s: the tasks %v get permits, want %v", when, got, ids)
	}
}

func (s *suite) wantUse(when string, inUse, blocked int) {
	s.Helper()
	limits, err := s.Limits(s.ctx)
	s.must(err)
	if len(limits) != 1 || limits[0].InUse != inUse || limits[0].Blocked != blocked {
		s.Errorf("%s: the limits are %+v, want %d permits in use and %d blocked tasks", when, limits, inUse, blocked)
	}
}

// wantPermitsInUse calls ReleaseBlocked, which must give no permit.
func (s *suite) wantPermitsInUse(when string, want bool) {
	s.Helper()
	if released, err := s.ReleaseBlocked(s.ctx, 0); err != nil || released.Tasks != 0 || released.PermitsInUse != want {
		s.Errorf("%s: ReleaseBlocked returns %+v, %v; want PermitsInUse %t", when, released, err, want)
	}
}

func (s *suite) succeed(tasks ...holdfast.Task) {
	s.Helper()
	for _, task := range tasks {
		if !s.apply(s.settle(task, holdfast.Returned(nil)))[0] {
			s.Fatalf("the success of task %s was refused", task.ID)
		}
	}
}

func testLimitConcurrency(s *suite) {
	worker, tickets, free := s.registerWorker(), s.insertN(5), newTask()
	free.Type = other
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 2})
	if limit.ID == 0 || limit.Name != anna.Name || limit.SetAt.IsZero() || limit.Concurrency != 2 || limit.Rate != (store.Rate{}) || limit.Scope != ofKind {
		s.Errorf("the limit is %+v", limit)
	}
	if claim := s.claimOf(worker, s.insert(free)...)[0]; claim.Verdict != store.Claimed {
		s.Errorf("the claim of a task without a limit is %s", verdictName(claim.Verdict))
	}
	s.block(worker, limit.ID, tickets...)
	s.wantUse("after the block", 0, 5)
	s.wantPermitsInUse("before the first permit", false)
	s.wantPermitted("at first", tickets[:2]...)
	running := s.mustClaim(worker, tickets[:2]...)
	s.wantPermitsInUse("while two run", true)
	s.wantUse("while two run", 2, 3)
	s.wantPermitted("while two run")
	if claim := s.claimOf(worker, tickets[3])[0]; claim.Verdict != store.Stale {
		s.Errorf("the claim of a blocked task is %s", verdictName(claim.Verdict))
	}
	s.succeed(running[1])
	s.wantUse("after a success", 1, 3)
	s.wantPermitted("after a success", tickets[2])
	s.succeed(running[0])
	s.succeed(s.mustClaim(worker, tickets[2])...)
	s.wantPermitted("after all successes", tickets[3:]...)
	s.succeed(s.mustClaim(worker, tickets[3:]...)...)
	s.wantPermitted("at last")
	s.wantUse("at last", 0, 0)
	s.wantPermitsInUse("at last", false)
	if len(s.gates()) > 0 {
		s.Errorf("Gates returns a limit: %+v", s.gates())
	}
}

// testLimitFrees ends attempts in all ways. Each end lets exactly one more task start.
func testLimitFrees(s *suite) {
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	s.registerWorker() // lives on, because no task gets a permit without a worker
	request := func(action store.Action, event holdfast.Event) func(task holdfast.Task, worker holdfast.WorkerID) {
		return func(task holdfast.Task, _ holdfast.WorkerID) {
			s.mustChange(s.changeOf(action, task, holdfast.Requested(event)))
		}
	}
	for name, end := range map[string]func(task holdfast.Task, worker holdfast.WorkerID){
		"success": func(task holdfast.Task, _ holdfast.WorkerID) { s.succeed(task) },
		"failure": func(task holdfast.Task, _ holdfast.WorkerID) {
			s.apply(s.settle(task, holdfast.Returned(holdfast.RetryAfter(time.Hour, errors.New("no")))))
		},
		"deferral": func(task holdfast.Task, _ holdfast.WorkerID) {
			s.apply(s.settle(task, holdfast.Returned(holdfast.Defer(time.Hour, nil))))
		},
		"death": func(task holdfast.Task, _ holdfast.WorkerID) {
			s.apply(s.settle(task, holdfast.Returned(holdfast.Permanent(errors.New("no")))))
		},
		"crash": func(task holdfast.Task, worker holdfast.WorkerID) {
			s.fence(worker)
			s.apply(s.settle(task, holdfast.Crashed(worker)))
			s.mustChange(s.changeOf(store.ActionCancel, s.task(task.ID), holdfast.Requested(holdfast.EventCancel)))
		},
		"cancellation": request(store.ActionCancel, holdfast.EventCancel),
	} {
		worker, next := s.registerWorker(), s.insertN(2)
		s.block(worker, limit.ID, next...)
		s.wantPermitted(name, next[0])
		end(s.mustClaim(worker, next[0])[0], worker)
		s.wantPermitted("after the "+name, next[1])
		s.succeed(s.mustClaim(s.registerWorker(), next[1])...)
	}
	// Cancel one task with a permit and one without before they start.
	worker, tickets := s.registerWorker(), s.insertN(3)
	s.block(worker, limit.ID, tickets...)
	s.wantPermitted("before a cancellation", tickets[0])
	for _, ticket := range tickets[:2] {
		s.mustChange(s.changeOf(store.ActionCancel, s.task(ticket.Task), holdfast.Requested(holdfast.EventCancel)))
	}
	s.wantPermitted("after the cancellation of a task with and of a task without a permit", tickets[2])
}

// testLimitRate measures a lower bound only: a busy machine may be late, but a rate must never be exceeded.
func testLimitRate(s *suite) {
	const n, burst = 12, 2 // starts that an idle bucket allows at once
	worker, tickets := s.executors(100), s.insertN(n)
	limit := s.setLimit(store.Limit{Scope: ofKind, Rate: store.Rate{Count: 20, Per: time.Second}})
	s.block(worker, limit.ID, tickets...)
	began, done := s.now(), 0
	s.eventually("all tasks get permits", func() bool {
		released, err := s.ReleaseBlocked(s.ctx, 1000)
		s.must(err)
		if done += released.Tasks; done < n && released.Next < 0 {
			s.Fatalf("tasks are blocked, and Next is %s", released.Next)
		}
		// Each start takes 50 ms. An idle bucket has a credit of 100 ms.
		if most := burst + 1 + int(s.now().Sub(began)/(50*time.Millisecond)); done > most {
			s.Fatalf("%d tasks got permits in %s", done, s.now().Sub(began))
		}
		return done == n
	})
	if due := s.due(); len(due) != n {
		s.Errorf("%d tasks are due, want %d", len(due), n)
	}
	s.succeed(s.mustClaim(worker, tickets...)...)
}

// testLimitTrickle blocks fewer tasks at a time than an idle bucket allows. The bucket may allow its full number again
// only after an idle time.
func testLimitTrickle(s *suite) {
	worker := s.executors(100)
	limit := s.setLimit(store.Limit{Scope: ofKind, Rate: store.Rate{Count: 100, Per: time.Second}})
	const idle = 11 // starts that an idle bucket allows at once
	began, done := s.now(), 0
	for range 20 {
		s.block(worker, limit.ID, s.insertN(9)...)
		released, err := s.ReleaseBlocked(s.ctx, 1000)
		s.must(err)
		done += released.Tasks
		if most := idle + int(s.now().Sub(began)/(10*time.Millisecond)); done > most {
			s.Fatalf("%d tasks got permits in %s, at most %d may", done, s.now().Sub(began), most)
		}
	}
}

func testLimitPer(s *suite) {
	worker := s.registerWorker()
	limit := s.setLimit(store.Limit{Scope: perKey, Concurrency: 1})
	tickets := s.keyed("a", "a", "b", "")
	claims := s.claimOf(worker, tickets...)
	if claims[0].Verdict != store.Blocked || claims[2].Verdict != store.Blocked || claims[3].Verdict != store.Claimed {
		s.Fatalf("the verdicts are %s, %s and %s", verdictName(claims[0].Verdict), verdictName(claims[2].Verdict), verdictName(claims[3].Verdict))
	}
	s.must(s.Block(s.ctx, limit.ID, tickets[:3]))
	s.wantPermitted("per key", tickets[0], tickets[2])
	s.succeed(s.mustClaim(worker, tickets[0])...)
	s.wantPermitted("after the first of a key", tickets[1])
	s.succeed(s.mustClaim(worker, tickets[1], tickets[2])...)
	_, err := s.UnsetLimit(s.ctx, anna, perKey)
	s.must(err)

	targets := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Type: "http"}, Per: store.PerTarget}, Concurrency: 1})
	tickets = s.insert(deliveryTo(slowURL), deliveryTo(slowURL+"/2"), deliveryTo("https://other.example.com"), deliveryTo("nonsense"))
	claims = s.claimOf(worker, tickets...)
	if claims[0].Verdict != store.Blocked || claims[3].Verdict != store.Claimed {
		s.Fatalf("the verdicts are %s and %s", verdictName(claims[0].Verdict), verdictName(claims[3].Verdict))
	}
	s.must(s.Block(s.ctx, targets.ID, tickets[:3]))
	s.wantPermitted("per target", tickets[0], tickets[2])
}

func testLimitCombined(s *suite) {
	worker := s.registerWorker()
	byType := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 2})
	byKey := s.setLimit(store.Limit{Scope: perKey, Concurrency: 1})
	tickets := s.keyed("x", "x", "x", "y", "z")
	s.block(worker, byType.ID, tickets...)
	s.wantPermitted("both limits", tickets[0], tickets[3]) // the other tasks of x wait for their key, and let y pass
	for i, want := range []struct {
		ticket message.Ticket
		limits []store.ID
	}{{tickets[1], []store.ID{byType.ID, byKey.ID}}, {tickets[4], []store.ID{byType.ID, byKey.ID}}, {tickets[0], nil}} {
		limits, err := s.LimitsOf(s.ctx, want.ticket.Task)
		s.must(err)
		if got := limitIDs(limits); !slices.Equal(got, want.limits) {
			s.Errorf("task %d waits for the limits %v, want %v", i, got, want.limits)
		}
	}
	running := s.mustClaim(worker, tickets[0], tickets[3])
	s.succeed(running[0]) // now a permit of the type and one of x are free
	s.wantPermitted("after x", tickets[1])
	s.succeed(running[1])
	s.succeed(s.mustClaim(worker, tickets[1])...)
	s.wantPermitted("after y and the second x", tickets[2], tickets[4])
}

// busyLimits has two limits with a concurrency of 1, of a queue and of a key. Each has a running task and younger ones
// that wait.
type busyLimits struct {
	*suite
	worker  holdfast.WorkerID
	limits  [2]store.Limit
	running [2][]holdfast.Task
	both    message.Ticket // the oldest blocked task, which both limits concern
}

func newBusyLimits(s *suite) *busyLimits {
	s.Helper()
	b := &busyLimits{suite: s, worker: s.registerWorker()}
	b.limits[0] = s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: defaultQueue}}, Concurrency: 1})
	b.limits[1] = s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Key: "x"}}, Concurrency: 1})
	b.add(0)
	b.add(1)
	b.both = s.keyed("x")[0]
	s.block(b.worker, b.limits[0].ID, b.both)
	b.start()
	return b
}

// add blocks a task of one limit.
func (b *busyLimits) add(limit int) {
	b.Helper()
	task := newTask()
	if limit == 1 {
		task.Queue, task.Key = "second", "x"
	}
	b.block(b.worker, b.limits[limit].ID, b.insert(task)...)
}

// start gives permits, and claims the tasks that get them. It reports whether the task of both limits is one of them.
func (b *busyLimits) start() (both bool) {
	b.Helper()
	for _, id := range b.permitted() {
		if id == b.both.Task {
			both = true
			continue
		}
		task := b.mustClaim(b.worker, message.Ticket{Task: id, Attempt: 1})[0]
		limit := 0
		if task.Queue != defaultQueue {
			limit = 1
		}
		b.running[limit] = append(b.running[limit], task)
		if len(b.running[limit]) > 1 {
			b.Fatalf("%d tasks of the limit %s run", len(b.running[limit]), b.limits[limit].Scope)
		}
		b.add(limit)
	}
	return both
}

// end ends the running task of a limit.
func (b *busyLimits) end(limit int) {
	b.Helper()
	b.succeed(b.running[limit]...)
	b.running[limit] = nil
}

// wantReserved checks for which task the first limit keeps a permit, as the given task sees it.
func (b *busyLimits) wantReserved(when string, seenBy, want holdfast.TaskID) {
	b.Helper()
	limits, err := b.LimitsOf(b.ctx, seenBy)
	b.must(err)
	if len(limits) == 0 || limits[0].Reserved != want {
		b.Errorf("%s: the limits of task %s are %+v, want a permit that is kept for task %s", when, seenBy, limits, want)
	}
}

// keep ends and starts younger tasks of the first limit until it keeps its permit.
func (b *busyLimits) keep() {
	b.Helper()
	b.end(0)
	b.eventually("the limit keeps a permit", func() bool {
		if b.start() {
			b.Fatalf("task %s starts without a permit of the key", b.both.Task)
		}
		kept := len(b.running[0]) == 0
		b.end(0)
		return kept
	})
}

func testLimitReserved(s *suite) {
	b := newBusyLimits(s)
	b.wantReserved("at first", b.both.Task, 0)
	if limits, err := s.LimitsOf(s.ctx, b.both.Task); err != nil || len(limits) != 2 || limits[0].Ahead != 0 || limits[1].Ahead != 1 {
		s.Errorf("the task of both limits waits for %+v, %v; want no task ahead at the first limit and one at the second", limits, err)
	}
	younger := s.insertN(1)
	b.keep()
	b.wantReserved("after the first limit had a permit", b.both.Task, b.both.Task)
	b.wantReserved("after the first limit had a permit", younger[0].Task, b.both.Task)
	b.eventually("the task of both limits starts", func() bool {
		b.end(1)
		return b.start()
	})
	b.wantReserved("when the task has started", younger[0].Task, 0)
	s.succeed(s.mustClaim(b.worker, b.both)...)
	b.eventually("younger tasks start again", func() bool { b.start(); return len(b.running[0]) == 1 && len(b.running[1]) == 1 })
}

func testLimitReservationEnds(s *suite) {
	b := newBusyLimits(s)
	b.keep()
	younger := s.insertN(1)
	pause := s.pause(store.Subject{Key: "x"}, 0)
	b.wantReserved("in a pause", younger[0].Task, 0)
	b.eventually("a younger task starts in the pause", func() bool { b.start(); return len(b.running[0]) == 1 })
	s.resume(pause.Subject)
	b.end(1) // the task moves to the first limit
	b.eventually("a younger task of the key starts", func() bool { b.start(); return len(b.running[1]) == 1 })
	b.keep()
	b.wantReserved("after the pause", younger[0].Task, b.both.Task)
	s.mustChange(s.changeOf(store.ActionCancel, s.task(b.both.Task), holdfast.Requested(holdfast.EventCancel)))
	b.wantReserved("after the cancellation", younger[0].Task, 0)
	b.eventually("a younger task starts after the cancellation", func() bool { b.start(); return len(b.running[0]) == 1 })
}

func limitIDs(limits []store.TaskLimit) (ids []store.ID) {
	for _, limit := range limits {
		ids = append(ids, limit.ID)
	}
	return ids
}

func testLimitPaused(s *suite) {
	worker := s.registerWorker()
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	tickets := s.keyed("x", "y", "x")
	s.block(worker, limit.ID, tickets...)
	s.wantPermitted("at first", tickets[0])
	pause := s.pause(store.Subject{Key: "x"}, 0)
	// The task with the permit is paused, so another task gets the permit.
	s.block(worker, pause.ID, tickets[0])
	s.wantPermitted("after a pause of x", tickets[1])
	s.succeed(s.mustClaim(worker, tickets[1])...)
	s.wantPermitted("when only tasks of x are left")
	if gates := s.gates(); gates[0].Blocked != 2 {
		s.Errorf("the pause blocks %d tasks, want 2", gates[0].Blocked)
	}
	s.resume(pause.Subject)
	s.eventually("the tasks of x are released", func() bool { return s.release(10) == 2 })
	s.due()
	s.block(worker, limit.ID, tickets[0], tickets[2])
	s.wantPermitted("after the pause", tickets[0])
}

func testLimitChanged(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(6)
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	s.block(worker, limit.ID, tickets...)
	s.wantPermitted("with one permit", tickets[0])
	changed := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 3})
	if changed.ID != limit.ID || changed.Concurrency != 3 {
		s.Errorf("the changed limit is %+v, before %+v", changed, limit)
	}
	s.wantPermitted("with three permits", tickets[1:3]...)
	s.setLimit(store.Limit{Scope: ofKind, Concurrency: 2})
	running := s.mustClaim(worker, tickets[:3]...)
	s.succeed(running[0])
	s.wantPermitted("with two permits, while two tasks run")
	unset, err := s.UnsetLimit(s.ctx, anna, ofKind)
	s.must(err)
	if unset.ID != limit.ID || unset.Concurrency != 2 {
		s.Errorf("the unset limit is %+v", unset)
	}
	if _, err := s.UnsetLimit(s.ctx, anna, ofKind); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("UnsetLimit of a limit whose tasks are still blocked returns %v", err)
	}
	s.wantPermitted("without the limit", tickets[3:]...)
	if limits, err := s.Limits(s.ctx); err != nil || len(limits) > 0 {
		s.Errorf("limits remain: %+v, %v", limits, err)
	}
	s.mustClaim(worker, tickets[3:]...)
	if _, err := s.UnsetLimit(s.ctx, anna, ofKind); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("a second UnsetLimit returns %v", err)
	}
	var actions []store.Action
	for _, entry := range s.auditLog(store.AuditFilter{Subject: "limit type " + kind}) {
		actions = append(actions, entry.Action)
		if entry.Name != anna.Name || entry.Action == store.ActionUnset && string(entry.Before) == "" {
			s.Errorf("the audit log has %+v", entry)
		}
	}
	if want := []store.Action{store.ActionUnset, store.ActionSet, store.ActionSet, store.ActionSet}; !slices.Equal(actions, want) {
		s.Errorf("the audit log has %v, want %v", actions, want)
	}
}

func testLimitFaster(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(2)
	limit := s.setLimit(store.Limit{Scope: ofKind, Rate: store.Rate{Count: 1, Per: time.Hour}})
	s.block(worker, limit.ID, tickets...)
	s.wantPermitted("with one start an hour", tickets[0])
	if released, err := s.ReleaseBlocked(s.ctx, 10); err != nil || released.Next <= time.Minute || released.Waiting {
		s.Errorf("before the next start, a call returns %+v, %v", released, err)
	}
	s.setLimit(store.Limit{Scope: ofKind, Rate: store.Rate{Count: 1000, Per: time.Second}})
	s.eventually("the other task gets a permit", func() bool { return slices.Contains(s.permitted(), tickets[1].Task) })
}

func testLimitInvalid(s *suite) {
	for _, limit := range []store.Limit{
		{}, {Concurrency: 1}, {Scope: ofKind}, {Scope: ofKind, Concurrency: -1}, {Scope: ofKind, Concurrency: store.MaxConcurrency + 1},
		{Scope: ofKind, Rate: store.Rate{Count: 1}}, {Scope: ofKind, Rate: store.Rate{Count: 1, Per: 25 * time.Hour}},
		{Scope: ofKind, Rate: store.Rate{Count: 200_000, Per: time.Second}}, {Scope: store.Scope{Per: "task"}, Concurrency: 1},
		{Scope: store.Scope{Subject: store.Subject{Key: "k"}, Per: store.PerKey}, Concurrency: 1},
		{Scope: store.Scope{Subject: store.Subject{Type: "a b"}}, Concurrency: 1},
		{Scope: store.Scope{Subject: store.Subject{Type: "mail"}, Per: store.PerTarget}, Concurrency: 1},
		{Scope: ofKind, Rate: store.Rate{Count: 10, Per: 1500 * time.Millisecond}},
	} {
		if _, err := s.SetLimit(s.ctx, anna, limit.Change()); !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("%+v: %v", limit, err)
		}
	}
	if limits, err := s.Limits(s.ctx); err != nil || len(limits) > 0 {
		s.Errorf("the limits are %+v, %v", limits, err)
	}
}

func testLimitsOf(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(4)
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1, Rate: store.Rate{Count: 5, Per: time.Minute}})
	s.block(worker, limit.ID, tickets[:3]...)
	s.wantPermitted("at first", tickets[0])
	for i, want := range []struct{ limits, ahead int }{{0, 0}, {1, 0}, {1, 1}, {1, 2}} {
		limits, err := s.LimitsOf(s.ctx, tickets[i].Task)
		s.must(err)
		if len(limits) != want.limits {
			s.Fatalf("task %d waits for %+v", i, limits)
		}
		for _, l := range limits {
			if l.ID != limit.ID || l.InUse != 1 || l.Blocked != 2 || l.Ahead != want.ahead || l.Bucket != "" || l.Rate != limit.Rate {
				s.Errorf("task %d waits for %+v, want %d tasks ahead", i, l, want.ahead)
			}
		}
	}
	if limits, err := s.LimitsOf(s.ctx, 1<<40); err != nil || len(limits) > 0 {
		s.Errorf("a task that does not exist waits for %+v, %v", limits, err)
	}
}

// testLimitsBeside blocks tasks at two limits of types and at a limit for each key. The end of a task lets only a task
// of its limits start.
func testLimitsBeside(s *suite) {
	worker := s.registerWorker()
	inQueue := func(key string) holdfast.NewTask { // a task of the limit for each key
		task := newTask()
		task.Type, task.Queue, task.Key = "http", "mail", key
		return task
	}
	otherTask, both := newTask(), inQueue("x")
	otherTask.Type, both.Type = other, kind
	before := s.insertN(2)
	s.move(s.mustClaim(worker, before...)[0], holdfast.Returned(holdfast.RetryAfter(time.Hour, nil)))
	first := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	second := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Type: other}}, Concurrency: 1})
	third := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: "mail"}, Per: store.PerKey}, Concurrency: 1})
	a, b := s.insertN(4), s.insert(otherTask, otherTask, otherTask, otherTask)
	c := s.insert(inQueue("x"), inQueue("y"), inQueue("x"), inQueue("x"), inQueue("y"))
	s.block(worker, first.ID, a[:3]...)
	s.block(worker, second.ID, b...)
	s.block(worker, third.ID, c...)
	s.wantPermitted("one of each bucket", a[0], b[0], c[0], c[1])
	ofBoth, last := s.insert(both), s.insert(inQueue("x"))
	s.block(worker, first.ID, ofBoth...)
	s.block(worker, third.ID, last...)
	running := s.claimOf(worker, a[0], b[0], c[0], c[1])

	use := func(when string, want ...[2]int) {
		s.Helper()
		limits, err := s.Limits(s.ctx)
		s.must(err)
		var got [][2]int
		for _, l := range limits {
			got = append(got, [2]int{l.InUse, l.Blocked})
		}
		if !slices.Equal(got, want) {
			s.Errorf("%s, the limits have %v permits in use and blocked tasks, want %v", when, got, want)
		}
	}
	use("while one task of each bucket runs", [2]int{1, 3}, [2]int{1, 3}, [2]int{2, 4})
	s.pause(store.Subject{Type: kind}, 0) // no limit
	type place struct {
		limit                 store.ID
		bucket                string
		inUse, blocked, ahead int
	}
	for _, want := range []struct {
		what   string
		task   message.Ticket
		places []place
	}{
		{"a running task", a[0], nil},
		{"a running task that was claimed before the limit was set", before[1], nil},
		{"the first blocked task", a[1], []place{{first.ID, "", 1, 3, 0}}},
		{"a blocked task", a[2], []place{{first.ID, "", 1, 3, 1}}},
		{"a task that no worker has claimed", a[3], []place{{first.ID, "", 1, 3, 3}}},
		{"a task of another type", b[3], []place{{second.ID, "", 1, 3, 2}}},
		{"a task with a key", c[3], []place{{third.ID, "x", 1, 3, 1}}},
		{"a task with another key", c[4], []place{{third.ID, "y", 1, 1, 0}}},
		{"a task of two limits", ofBoth[0], []place{{first.ID, "", 1, 3, 2}, {third.ID, "x", 1, 3, 3}}},
	} {
		limits, err := s.LimitsOf(s.ctx, want.task.Task)
		s.must(err)
		var got []place
		for _, l := range limits {
			got = append(got, place{l.ID, l.Bucket, l.InUse, l.Blocked, l.Ahead})
		}
		if !slices.Equal(got, want.places) {
			s.Errorf("%s waits for %+v, want %+v", want.what, got, want.places)
		}
	}
	s.resume(store.Subject{Type: kind})
	s.succeed(*running[1].Task)
	s.wantPermitted("after a task of the second limit", b[1])
	s.succeed(*running[3].Task)
	s.wantPermitted("after a task with the second key", c[4])
	s.succeed(*running[0].Task)
	s.wantPermitted("after a task of the first limit", a[1])
	s.succeed(*running[2].Task)
	s.wantPermitted("after a task with the first key", c[2])
	use("after one task of each bucket", [2]int{1, 2}, [2]int{1, 2}, [2]int{2, 2})
}

// testLimitBesideRemoved removes a limit without blocked tasks. The next call gives a permit of another limit.
func testLimitBesideRemoved(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(2)
	removed := s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Type: other}}, Concurrency: 1})
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	s.block(worker, limit.ID, tickets[0])
	s.wantPermitted("the first task", tickets[0])
	s.succeed(s.mustClaim(worker, tickets[0])...)
	s.wantPermitted("after the first task")
	s.block(worker, limit.ID, tickets[1])
	_, err := s.UnsetLimit(s.ctx, anna, removed.Scope)
	s.must(err)
	if n := s.release(10); n != 1 {
		s.Errorf("a call gives %d permits, want 1", n)
	}
}

func testLimitManyBuckets(s *suite) {
	worker := s.executors(1000)
	limit := s.setLimit(store.Limit{Scope: perKey, Concurrency: 1})
	var keys []string
	for i := range 250 {
		key := string(rune('a'+i%26)) + string(rune('a'+i/26))
		keys = append(keys, key, key)
	}
	tickets := s.keyed(keys...)
	s.block(worker, limit.ID, tickets...)
	var first []message.Ticket
	for i := 0; i < len(tickets); i += 2 {
		first = append(first, tickets[i])
	}
	s.wantPermitted("one of each key", first...)
	s.wantUse("one of each key", 250, 250)
}

// testLimitFewCalls blocks one task of each of many keys. A few calls of ReleaseBlocked must give all permits, although
// no key uses its limit up.
func testLimitFewCalls(s *suite) {
	const n, most = 500, 10
	worker := s.executors(1000)
	limit := s.setLimit(store.Limit{Scope: perKey, Concurrency: 2000})
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("tenant-", i)
	}
	s.block(worker, limit.ID, s.keyed(keys...)...)
	calls := 0
	for done := 0; done < n; calls++ {
		done += s.release(1000)
		if calls == most {
			s.Fatalf("%d calls have given %d of %d permits", calls, done, n)
		}
	}
}

func testLimitBesideRelease(s *suite) {
	worker, limited, paused := s.registerWorker(), newTask(), newTask()
	paused.Type = other
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	ticket := s.insert(limited)[0]
	s.block(worker, limit.ID, ticket)
	pause := s.pause(store.Subject{Type: other}, 0)
	s.block(worker, pause.ID, s.insert(paused, paused, paused)...)
	s.resume(pause.Subject)
	if released, err := s.ReleaseBlocked(s.ctx, 2); err != nil || released.Tasks != 3 || released.Next != 0 {
		s.Errorf("the first call has made %+v, %v; want two released tasks, one with a permit, and another call at once", released, err)
	}
	s.mustClaim(worker, ticket)
}

// testLimitExact lets workers run tasks under a limit, some of them without regard for the answers. It counts the
// running tasks after each claim.
func testLimitExact(s *suite) {
	const workers, most = 4, 3
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: most})
	tickets := s.insertN(60)
	queue := make(chan message.Ticket, 10*len(tickets))
	for _, ticket := range tickets {
		queue <- ticket
	}
	var running, done atomic.Int64
	var all sync.WaitGroup
	finished := make(chan struct{})
	end := sync.OnceFunc(func() { close(finished) })
	check := func(err error) (ok bool) {
		if err != nil {
			s.Error(err)
			end()
		}
		return err == nil
	}
	for range workers {
		worker := s.registerWorker()
		all.Go(func() {
			for {
				var ticket message.Ticket
				select {
				case ticket = <-queue:
				case <-finished:
					return
				}
				claims, err := s.Claim(s.ctx, worker, kinds, []message.Ticket{ticket, ticket}[:1+rand.IntN(2)], store.IntoExecutors)
				if !check(err) {
					return
				}
				switch claims[0].Verdict {
				case store.Claimed:
					if n := running.Add(1); n > most {
						s.Errorf("%d tasks run, want at most %d", n, most)
					}
					time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
					running.Add(-1)
					move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(nil), claims[0].Now, policy())
					if err == nil {
						_, err = s.Apply(s.ctx, []holdfast.Transition{move})
					}
					check(err)
					if done.Add(1) == int64(len(tickets)) {
						end()
					}
				case store.Blocked:
					check(s.Block(s.ctx, limit.ID, []message.Ticket{ticket}))
				}
			}
		})
	}
	for range 2 { // janitors
		all.Go(func() {
			for {
				select {
				case <-finished:
					return
				case <-time.After(time.Millisecond):
				}
				if _, err := s.ReleaseBlocked(s.ctx, 10); !check(err) {
					return
				}
				_, err := s.DispatchDue(s.ctx, store.Queues{}, 100, func(_ context.Context, due []store.Due) []bool {
					for _, d := range due {
						queue <- d.Ticket
					}
					return repeated(true, len(due))
				})
				if !check(err) {
					return
				}
			}
		})
	}
	late := time.AfterFunc(slow.Patience(), end)
	all.Wait()
	late.Stop()
	if n := done.Load(); n != int64(len(tickets)) {
		s.Errorf("%d of %d tasks have finished", n, len(tickets))
	}
}

// A task whose host is too long for the name of a bucket has no target. It starts, and so do its neighbors.
func testLimitLongHost(s *suite) {
	worker := s.registerWorker()
	tickets := s.insert(deliveryTo(slowURL), deliveryTo("https://"+longHost+"/"), deliveryTo(slowURL), deliveryTo("https://b.example:"+longHost))
	s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Type: holdfast.TypeHTTP}, Per: store.PerTarget}, Concurrency: 1})
	var blocked []message.Ticket
	for i, claim := range s.claimOf(worker, tickets...) {
		if want := []store.Verdict{store.Blocked, store.Claimed, store.Blocked, store.Claimed}[i]; claim.Verdict != want {
			s.Errorf("the claim of task %d is %s, want %s", i+1, verdictName(claim.Verdict), verdictName(want))
		}
		if claim.Verdict == store.Blocked {
			blocked = append(blocked, tickets[i])
		}
	}
	limits, err := s.Limits(s.ctx)
	s.must(err)
	s.must(s.Block(s.ctx, limits[0].ID, blocked))
	for _, ticket := range []message.Ticket{tickets[0], tickets[2]} {
		s.wantPermitted("under a limit of one", ticket)
		claims := s.claimOf(worker, ticket)
		if claims[0].Verdict != store.Claimed {
			s.Fatalf("the claim is %s", verdictName(claims[0].Verdict))
		}
		s.succeed(*claims[0].Task)
	}
	// A worker that has an older function of targets may block the task.
	s.must(s.Block(s.ctx, limits[0].ID, s.insert(deliveryTo("https://"+longHost+"/"))))
	if due := s.permitted(); len(due) != 1 {
		s.Errorf("the tasks %v get permits, want one", due)
	}
}

// testLimitRoom checks that permits do not put more tickets into a queue than its workers can soon start, and that tasks
// of another queue still get permits.
func testLimitRoom(s *suite) {
	const n, executors = 60, 5
	starting := func(name string) store.WorkerInfo {
		return store.WorkerInfo{Name: name, Host: "here", PID: 7, Version: "v1", Concurrency: executors, Queues: []string{name}}
	}
	blocker := s.registerWorkerWith(starting("blocker"), time.Hour)
	tickets := s.insertN(n)
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 10 * n})
	s.block(blocker, limit.ID, tickets...)
	s.wantPermitted("while no worker takes the queue")

	worker := s.registerWorkerWith(starting(defaultQueue), time.Hour)
	var due []holdfast.TaskID
	s.eventually("tasks get permits", func() bool { due = s.permitted(); return len(due) > 0 })
	if len(due) != executors {
		s.Errorf("%d tasks get permits, want one for each of %d executors", len(due), executors)
	}
	elsewhere := newTask()
	elsewhere.Queue = "blocker"
	other := s.insert(elsewhere)[0]
	s.block(blocker, limit.ID, other)
	s.eventually("a task of another queue gets a permit", func() bool { return slices.Contains(s.permitted(), other.Task) })
	s.succeed(s.mustClaim(blocker, other)...)

	ended := 0
	s.eventually("all tasks have started", func() bool {
		for _, id := range due {
			s.succeed(s.mustClaim(worker, message.Ticket{Task: id, Attempt: 1})...)
			ended++
		}
		due = s.permitted()
		return ended == n
	})
}
