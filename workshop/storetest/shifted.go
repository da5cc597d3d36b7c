package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// Shiftable is an empty, migrated store with a function that adds d to the times in a column of a table.
type Shiftable struct {
	desk.Store
	Shift func(table, column string, d time.Duration)
}

// RunShifted tests what a store does minutes and hours later. It moves times that are stored, because it cannot wait for
// them, and because the contract has no call that moves a clock. For each test, open returns a new store.
func RunShifted(t *testing.T, open func(t *testing.T) Shiftable) {
	for _, test := range []struct {
		name string
		run  func(s *suite, shift func(table, column string, d time.Duration))
	}{
		{"records the use of a token after a minute", testUseTokenLater},
		{"counts the deaths of the last hour", testLastHour},
		{"forgets announced groups after some time", testForgetGroups},
		{"forgets breakers that nothing uses", testForgetBreakers},
		{"a permit is free if its task does not start soon", testPermitsLater},
		{"verify finds the ticket that an idle worker did not get", testVerifyLater},
		{"verify finds the ticket that two sentinels prove lost", testVerifyProof},
		{"verify finds the tasks that an idle worker takes", testVerifyIdle},
		{"verify finds the tasks of a worker that ended some time ago", testVerifyOrphans},
		{"corrects the times of plans, and forgets ended plans", testPlansLater},
		{"keeps the figures of a day", testFiguresLater},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			test.run(&suite{T: t, Store: s.Store, ctx: t.Context()}, s.Shift)
		})
	}
}

func testUseTokenLater(s *suite, shift func(table, column string, d time.Duration)) {
	token := s.createToken("one", 0)
	s.must(s.UseToken(s.ctx, token.ID))
	for _, c := range []struct {
		name   string
		shift  time.Duration
		writes bool
	}{
		{"half a minute later", -30 * time.Second, false},
		{"a minute later", -time.Minute, true},
		{"after the clock was set back by a second", time.Second, false},
		{"after the clock was set back by a minute", time.Minute, true},
	} {
		shift("tokens", "used_at", c.shift)
		before := s.token(token.ID).UsedAt
		s.must(s.UseToken(s.ctx, token.ID))
		if after := s.token(token.ID).UsedAt; after.Equal(before) == c.writes {
			s.Errorf("%s: the time of the use was %s and is %s", c.name, before, after)
		}
	}
}

func testLastHour(s *suite, shift func(table, column string, d time.Duration)) {
	s.taskIn(holdfast.Dead)
	shift("deaths", "died_at", -59*time.Minute)
	s.taskIn(holdfast.Dead)
	for _, want := range []int64{2, 1} {
		if groups := s.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].LastHour != want || groups[0].Tasks != 2 {
			s.Errorf("groups %+v, want one with %d deaths in the last hour", groups, want)
		}
		shift("deaths", "died_at", -2*time.Minute)
	}
}

func testForgetGroups(s *suite, shift func(table, column string, d time.Duration)) {
	s.announce(allNotices)
	var dead []holdfast.Task
	for _, host := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		dead = append(dead, s.task(s.die(defaultQueue, delivery(host, 503))))
	}
	s.announce(allNotices)
	groups := make(map[holdfast.TaskID]string)
	for _, g := range s.deathGroups(store.DeathFilter{}) {
		groups[g.Sample] = g.Fingerprint
	}
	s.changeGroup(store.GroupChange{Fingerprint: groups[dead[1].ID], Action: store.ActionNote, Text: "a note"})
	for _, task := range dead[:2] {
		s.mustChange(s.changeOf(store.ActionArchive, task, holdfast.Requested(holdfast.EventArchive)))
	}
	known := func(when string, want ...bool) {
		s.Helper()
		for i, task := range dead {
			if _, err := s.DeathGroup(s.ctx, groups[task.ID]); (err == nil) != want[i] {
				s.Errorf("%s: group %d: %v, want known: %t", when, i, err, want[i])
			}
		}
	}
	shift("dead_groups", "last_at", time.Hour-store.NoticeForgetAfter)
	s.announce(allNotices)
	known("before the time", true, true, true)
	shift("dead_groups", "last_at", -2*time.Hour)
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("announced again: %+v", got)
	}
	known("after the time", false, true, true) // a person has changed the second group, and the third one has a dead task
}

func testForgetBreakers(s *suite, shift func(table, column string, d time.Duration)) {
	const (
		idle           = "https://idle.example.com:443"
		forgottenAfter = 10 * time.Minute // as in package breaker
	)
	pause, tickets := s.pause(store.Subject{Type: other}, 0), s.deliveries(1)
	trip := func(target string) store.Gate {
		s.Helper()
		s.must(s.ReportTargets(s.ctx, []store.TargetReport{{Target: target, Refused: true, Pause: time.Hour}}))
		gates := s.gates()
		return gates[len(gates)-1]
	}
	used := trip(slowTarget)
	s.block(s.registerWorker(), used.ID, tickets...)
	forgotten := trip(idle)
	s.release(1000) // gives no permit within the hour
	known := func(when string, want ...store.ID) {
		s.Helper()
		var got []store.ID
		s.release(1000)
		for _, gate := range s.gates() {
			got = append(got, gate.ID)
		}
		if !slices.Equal(got, want) {
			s.Errorf("%s, the gates are %v, want %v", when, got, want)
		}
	}
	shift("gates", "probe_at", s.now().Sub(used.Breaker.ProbeAt)-forgottenAfter+time.Minute)
	known("before the time", pause.ID, used.ID, forgotten.ID)
	shift("gates", "probe_at", -2*time.Minute)
	known("after the time", pause.ID, used.ID) // a task is blocked at the second gate
	if entries := s.auditLog(store.AuditFilter{Action: store.ActionResume}); len(entries) != 1 || entries[0].Actor != store.ResetByJanitor ||
		entries[0].Subject != forgotten.Subject.String() {
		s.Errorf("the audit log has %+v, want the reset of the breaker of %s", entries, forgotten.Subject)
	}
}

func testPermitsLater(s *suite, shift func(table, column string, d time.Duration)) {
	worker, tickets, waits := s.registerWorker(), s.insertN(2), s.insertN(1)
	queue := store.Subject{Queue: defaultQueue}
	limit := s.setLimit(store.Limit{Scope: store.Scope{Subject: queue}, Concurrency: 10})
	s.block(worker, limit.ID, tickets...)
	s.release(10)
	want := func(when string, want int) {
		s.Helper()
		if limits, err := s.Limits(s.ctx); err != nil || len(limits) != 1 || limits[0].InUse != want {
			s.Errorf("%s: the limits are %+v, %v; want %d permits in use", when, limits, err, want)
		}
		if limits, err := s.LimitsOf(s.ctx, waits[0].Task); err != nil || len(limits) != 1 || limits[0].InUse != want {
			s.Errorf("%s: a task waits for %+v, %v; want %d permits in use", when, limits, err, want)
		}
	}
	want("the tasks are due", 2)
	shift("tasks", "due_at", time.Hour)
	want("another try to publish the tickets is to follow", 2)
	shift("tasks", "next_run_at", time.Hour)
	want("the tasks are delayed", 0)
	shift("tasks", "next_run_at", -time.Hour)
	shift("tasks", "due_at", -time.Hour)
	others := []store.Subject{{Queue: "elsewhere"}, {Type: kind}, {Key: "x"}}
	for _, subject := range others {
		s.pause(subject, 0)
	}
	shift("gates", "closed_at", -time.Hour)
	want("the tickets do not wait in the queue", 2)
	s.pause(queue, 0)
	want("a claim may be in progress", 2)
	shift("gates", "closed_at", -time.Hour)
	want("the queue is paused", 0)
	s.pause(queue, 5*time.Second)
	want("the pause ends soon", 2)
	s.pause(queue, time.Hour)
	want("the pause ends later", 0)
	s.resume(queue)
	want("the pause was ended", 2)
	for _, subject := range others {
		s.resume(subject)
	}
	running := s.mustClaim(worker, tickets...)
	s.pause(queue, 0)
	shift("gates", "closed_at", -time.Hour)
	want("the tasks run", 2)
	s.resume(queue)
	s.move(running[0], holdfast.Returned(holdfast.RetryAfter(time.Second, nil)))
	want("a task is to run again soon", 1)
}
