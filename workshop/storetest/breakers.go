package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var breakerTests = []test{
	{"gives permits to a few probes and then to more", testBreakerRamps},
	{"waits longer after the probes have failed", testBreakerFails},
	{"goes on if messages fail and one probe passes", testBreakerRejects},
	{"first probes tasks that have not been tried", testBreakerOrder},
	{"finds the good task behind many bad ones", testBreakerReadsBothEnds},
	{"gives a lost probe's permit to another task", testBreakerLosesProbe},
	{"is reset by a person", testBreakerResumed},
	{"is not tripped by other reports", testBreakerIgnores},
	{"does not change with the breaker of another target", testOtherBreaker},
	{"records trips and resets in the audit log", testBreakerAudit},
}

func (s *suite) report(r store.TargetReport) {
	s.Helper()
	r.Target = slowTarget
	s.must(s.ReportTargets(s.ctx, []store.TargetReport{r}))
}

// trip trips the breaker of slowTarget, which then waits for a short time.
func (s *suite) trip() store.Gate {
	s.Helper()
	s.report(store.TargetReport{Refused: true, Pause: 300 * time.Millisecond, Cause: "503 \x00\xff busy"})
	gates := s.gates()
	if len(gates) != 1 || gates[0].Breaker == nil {
		s.Fatalf("the gates are %+v, want a breaker", gates)
	}
	return gates[0]
}

// deliveries inserts tasks of slowTarget.
func (s *suite) deliveries(n int) []message.Ticket {
	s.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = deliveryTo(slowURL)
	}
	return s.insert(tasks...)
}

// awaitPermitted waits until n tasks get permits.
func (s *suite) awaitPermitted(n int) (tickets []message.Ticket) {
	s.Helper()
	s.eventually("tasks get permits", func() bool {
		for _, id := range s.permitted() {
			tickets = append(tickets, message.Ticket{Task: id, Attempt: s.task(id).Attempt})
		}
		return len(tickets) >= n
	})
	if len(tickets) != n {
		s.Fatalf("the tasks %v get permits, want %d", tickets, n)
	}
	return tickets
}

// probe claims tasks with permits of a breaker.
func (s *suite) probe(worker holdfast.WorkerID, tickets []message.Ticket) (tasks []holdfast.Task) {
	s.Helper()
	for range 2 { // the second claim finds the tasks with their worker
		tasks = nil
		for _, claim := range s.claimOf(worker, tickets...) {
			if claim.Verdict != store.Claimed || !claim.Probe {
				s.Fatalf("the claim of a probe is %s, probe %v", verdictName(claim.Verdict), claim.Probe)
			}
			tasks = append(tasks, *claim.Task)
		}
	}
	return tasks
}

func testBreakerRamps(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(12)
	gate := s.trip()
	b := gate.Breaker
	if gate.Kind != store.GateBreaker || gate.Target != slowTarget || gate.Surface != store.ByWorker || gate.Reason == "" || b.Probes != store.HalfOpenProbes ||
		b.State(s.now().Add(-time.Minute)) != store.BreakerOpen || b.State(b.ProbeAt) != store.BreakerHalfOpen {
		s.Errorf("the gate is %+v with the breaker %+v", gate, *b)
	}
	s.block(worker, gate.ID, tickets...)
	if of, err := s.GatesOf(s.ctx, []holdfast.TaskID{tickets[0].Task}); err != nil || of[tickets[0].Task].Breaker == nil {
		s.Errorf("the gate of a blocked task is %+v, %v", of[tickets[0].Task], err)
	}
	if limits, err := s.LimitsOf(s.ctx, tickets[2].Task); err != nil || len(limits) != 1 || limits[0].Breaker == nil || !limits[0].Breaker.ProbeAt.Equal(b.ProbeAt) ||
		limits[0].Concurrency != store.HalfOpenProbes || limits[0].Blocked != 12 || limits[0].Ahead != 2 || limits[0].Target != slowTarget || limits[0].Reason != gate.Reason {
		s.Errorf("a blocked task waits for %+v, %v", limits, err)
	}
	for _, ticket := range s.insert(deliveryTo("https://other.example"), newTask()) {
		if claim := s.claimOf(worker, ticket)[0]; claim.Verdict != store.Claimed || claim.Probe {
			s.Errorf("the claim of a task with another target is %s, probe %v", verdictName(claim.Verdict), claim.Probe)
		}
	}
	if released, err := s.ReleaseBlocked(s.ctx, 1000); err != nil || s.now().Before(b.ProbeAt) && (released.Tasks != 0 || released.Next <= 0 || released.Next > 300*time.Millisecond) {
		s.Errorf("before the first probe may start, a call releases %+v, %v", released, err)
	}
	for _, n := range []int{3, 6, 3} { // the last step allows twelve
		probes := s.awaitPermitted(n)
		if s.now().Before(b.ProbeAt) {
			s.Fatalf("a probe gets its permit before %s", b.ProbeAt)
		}
		s.wantPermitted("while the probes run")
		s.succeed(s.probe(worker, probes)...)
		s.report(store.TargetReport{Passed: n})
	}
	if gates := s.gates(); len(gates) != 0 {
		s.Errorf("after a probe has passed and no task was blocked, the gates are %+v", gates)
	}
	if claim := s.claimOf(worker, s.deliveries(1)...)[0]; claim.Verdict != store.Claimed || claim.Probe {
		s.Errorf("after the reset, a claim is %s, probe %v", verdictName(claim.Verdict), claim.Probe)
	}
}

func testBreakerFails(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(5)
	s.block(worker, s.trip().ID, tickets...)
	probes := s.probe(worker, s.awaitPermitted(3))
	for _, probe := range probes {
		s.apply(s.settle(probe, holdfast.Returned(holdfast.RetryAfter(time.Hour, errors.New("still failing")))))
	}
	before := s.gates()[0].Breaker
	s.report(store.TargetReport{Failed: 3, Cause: "502 Bad Gateway"})
	gate := s.gates()[0]
	if gate.Breaker.Wait <= before.Wait || gate.Breaker.Probes != store.HalfOpenProbes || !gate.Breaker.ProbeAt.After(before.ProbeAt) || gate.Reason != "502 Bad Gateway" {
		s.Errorf("after a probe has failed, the breaker is %+v with the cause %q; before it was %+v", *gate.Breaker, gate.Reason, *before)
	}
	s.wantPermitted("after a probe has failed")
	for _, ticket := range tickets {
		if slices.ContainsFunc(probes, func(p holdfast.Task) bool { return p.ID == ticket.Task }) {
			continue
		}
		if task := s.task(ticket.Task); task.Attempt != 1 || task.Failures != 0 || task.State != holdfast.Ready {
			s.Errorf("a blocked task is %+v", task)
		}
	}
	s.report(store.TargetReport{Refused: true, Pause: time.Hour})
	if at := s.gates()[0].Breaker.ProbeAt; at.Before(s.now().Add(59 * time.Minute)) {
		s.Errorf("the target has asked for an hour, and the next probe is at %s", at)
	}
	if reason := s.gates()[0].Reason; reason != "502 Bad Gateway" {
		s.Errorf("a report without a cause changes the cause to %q", reason)
	}
}

func testBreakerLosesProbe(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(4)
	s.block(worker, s.trip().ID, tickets...)
	crashed := s.registerWorker()
	probe := s.probe(crashed, s.awaitPermitted(3))[0]
	s.wantPermitted("while the probes run")
	s.fence(crashed)
	s.apply(s.settle(probe, holdfast.Crashed(crashed)))
	s.mustChange(s.changeOf(store.ActionCancel, s.task(probe.ID), holdfast.Requested(holdfast.EventCancel)))
	s.awaitPermitted(1)
}

// failAttempts makes an attempt of each task, which fails and is repeated at once. It returns the tickets of the next
// attempts.
func (s *suite) failAttempts(worker holdfast.WorkerID, tickets []message.Ticket) (next []message.Ticket) {
	s.Helper()
	for _, claim := range s.claimOf(worker, tickets...) {
		s.apply(s.settle(*claim.Task, holdfast.Returned(holdfast.RetryAfter(0, errors.New("500")))))
		next = append(next, message.Ticket{Task: claim.Task.ID, Attempt: claim.Task.Attempt + 1})
	}
	return next
}

// The target rejects the messages of most probes, and answers one. Its breaker does not wait longer, and allows more.
func testBreakerRejects(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(8)
	s.block(worker, s.trip().ID, tickets...)
	s.awaitPermitted(3)
	first := s.gates()[0].Breaker
	s.report(store.TargetReport{Rejected: 3, Cause: "500"})
	rejected := s.gates()[0].Breaker
	if rejected.Wait <= first.Wait || rejected.Probes != store.HalfOpenProbes {
		s.Errorf("after all probes were rejected, the breaker is %+v, before it was %+v", rejected, first)
	}
	s.eventually("a probe may start", func() bool { return s.now().After(rejected.ProbeAt) })
	for _, r := range []store.TargetReport{{Rejected: 1}, {Rejected: 1}, {Passed: 1}} { // the store keeps the numbers in between
		s.report(r)
	}
	if b := s.gates()[0].Breaker; b.Probes != 2*store.HalfOpenProbes || b.Wait != first.Wait || b.ProbeAt.After(rejected.ProbeAt) {
		s.Errorf("after one probe has passed and two were rejected, the breaker is %+v", b)
	}
	s.report(store.TargetReport{Failed: 1})
	s.report(store.TargetReport{Rejected: 1})
	s.report(store.TargetReport{Failed: 2})
	if b := s.gates()[0].Breaker; b.Probes != store.HalfOpenProbes || !b.ProbeAt.After(rejected.ProbeAt) {
		s.Errorf("after half of a step has accused the target, the breaker is %+v", b)
	}
}

// Tasks that have not been tried are probed before those that have, although the others were blocked first. Among the
// tried ones, a task that failed as a probe comes last.
func testBreakerOrder(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(7)
	tried := s.failAttempts(worker, tickets[:5])
	gate := s.trip()
	s.block(worker, gate.ID, tried...)
	s.block(worker, gate.ID, tickets[5:]...)
	first := s.awaitPermitted(3)
	for _, ticket := range tickets[5:] {
		if !slices.Contains(first, ticket) {
			s.Errorf("the first probes are %v, without the untried task %v", first, ticket)
		}
	}
	s.block(worker, gate.ID, s.failProbes(worker, first)...)
	if second := s.awaitPermitted(3); slices.ContainsFunc(second, func(t message.Ticket) bool {
		return slices.ContainsFunc(first, func(f message.Ticket) bool { return f.Task == t.Task })
	}) {
		s.Errorf("the second probes are %v, after the first ones %v", second, first)
	}
}

// failProbes is failAttempts for tasks with permits of a breaker.
func (s *suite) failProbes(worker holdfast.WorkerID, tickets []message.Ticket) (next []message.Ticket) {
	s.Helper()
	for _, task := range s.probe(worker, tickets) {
		s.apply(s.settle(task, holdfast.Returned(holdfast.RetryAfter(0, errors.New("500")))))
		next = append(next, message.Ticket{Task: task.ID, Attempt: task.Attempt + 1})
	}
	return next
}

// Many tasks that were tried before, and then one that was not: it is a probe of the first step.
func testBreakerReadsBothEnds(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(301)
	var tried []message.Ticket
	for some := range slices.Chunk(tickets[:300], 50) {
		tried = append(tried, s.failAttempts(worker, some)...)
	}
	gate := s.trip()
	s.block(worker, gate.ID, tried...)
	s.block(worker, gate.ID, tickets[300])
	if first := s.awaitPermitted(3); !slices.Contains(first, tickets[300]) {
		s.Errorf("the first probes are %v, without the untried task %v", first, tickets[300])
	}
}

func testBreakerResumed(s *suite) {
	worker, tickets := s.registerWorker(), s.deliveries(2)
	subject := store.Subject{Target: slowTarget}
	s.block(worker, s.trip().ID, tickets...)
	s.pause(subject, 0)
	s.resume(subject)
	if gates := s.gates(); len(gates) != 0 {
		s.Errorf("after the resume, the gates are %+v", gates)
	}
	if n := s.release(1000); n != len(tickets) {
		s.Errorf("after the resume, %d tasks are released, want %d", n, len(tickets))
	}
	if _, err := s.Resume(s.ctx, anna, subject); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("the resume of a target without a gate: %v", err)
	}
}

func testBreakerIgnores(s *suite) {
	s.report(store.TargetReport{Passed: 3, Failed: 3})
	if gates := s.gates(); len(gates) != 0 {
		s.Errorf("reports of probes trip %+v", gates)
	}
	s.must(s.ReportTargets(s.ctx, nil))
	err := s.ReportTargets(s.ctx, []store.TargetReport{{Target: slowTarget, Trip: true}, {Target: slowURL, Trip: true}})
	if !errors.Is(err, holdfast.ErrInvalid) || len(s.gates()) != 0 {
		s.Errorf("a report of a URL: %v, and the gates are %+v", err, s.gates())
	}
	err = s.ReportTargets(s.ctx, []store.TargetReport{{Target: slowTarget, Trip: true, Cause: strings.Repeat("é", 1001)}})
	if !errors.Is(err, holdfast.ErrInvalid) || len(s.gates()) != 0 {
		s.Errorf("a report with a long cause: %v, and the gates are %+v", err, s.gates())
	}
	s.report(store.TargetReport{Trip: true, Cause: "first"})
	first := s.gates()[0]
	s.report(store.TargetReport{Trip: true, Cause: "second"})
	if gates := s.gates(); len(gates) != 1 || gates[0].ID != first.ID || !gates[0].Breaker.ProbeAt.Equal(first.Breaker.ProbeAt) {
		s.Errorf("a second trip changes %+v to %+v", first, gates)
	}
}

func testOtherBreaker(s *suite) {
	const quick = "https://quick.example.com:443"
	report := func(r store.TargetReport) map[string]store.Gate {
		s.Helper()
		r.Target = quick
		s.must(s.ReportTargets(s.ctx, []store.TargetReport{r}))
		gates := make(map[string]store.Gate)
		for _, gate := range s.gates() {
			if gate.Breaker != nil {
				gates[gate.Target] = gate
			}
		}
		return gates
	}
	s.pause(store.Subject{Target: quick}, 0) // a gate for the same target that is no breaker
	tickets := s.deliveries(1)
	s.report(store.TargetReport{Refused: true, Pause: time.Hour, Cause: "503"})
	slow := s.gates()[1]
	s.block(s.registerWorker(), slow.ID, tickets...)
	unchanged := func(when string, gates map[string]store.Gate) {
		s.Helper()
		if got := gates[slowTarget]; got.ID != slow.ID || !got.Breaker.ProbeAt.Equal(slow.Breaker.ProbeAt) || got.Breaker.Wait != slow.Breaker.Wait {
			s.Errorf("%s, the breaker of the other target is %+v, want %+v", when, got, slow)
		}
	}
	for range 2 { // a breaker that was reset trips like a new one
		gates := report(store.TargetReport{Refused: true, Pause: time.Microsecond, Cause: "503"})
		if len(gates) != 2 {
			s.Fatalf("the breakers are %+v, want two", gates)
		}
		unchanged("after a trip", gates)
		gates = report(store.TargetReport{Refused: true, Pause: time.Microsecond, Cause: "502"})
		if gates[quick].Breaker == nil || gates[quick].Reason != "502" {
			s.Errorf("after a probe has failed, the breakers are %+v", gates)
		}
		unchanged("after a probe has failed", gates)
		s.eventually("a probe may start", func() bool { return s.now().After(gates[quick].Breaker.ProbeAt) })
		gates = report(store.TargetReport{Passed: 1})
		if _, closed := gates[quick]; closed {
			s.Errorf("after a probe has passed, the breaker still exists, but it blocks no task: %+v", gates[quick])
		}
		unchanged("after a probe has passed", gates)
	}
}

func testBreakerAudit(s *suite) {
	const other = "https://other.example.com:443"
	s.must(s.ReportTargets(s.ctx, []store.TargetReport{
		{Target: slowTarget, Trip: true, Cause: "500 \x00 first"}, {Target: other, Refused: true, Pause: time.Microsecond, Cause: "503"},
	}))
	for _, r := range []store.TargetReport{{Trip: true, Cause: "again"}, {Failed: 1, Cause: "502"}} { // neither trips nor resets it
		s.report(r)
	}
	reset := time.Time{}
	for _, gate := range s.gates() {
		if gate.Target == other {
			reset = gate.Breaker.ProbeAt
		}
	}
	s.eventually("a probe may start", func() bool { return s.now().After(reset) })
	s.must(s.ReportTargets(s.ctx, []store.TargetReport{{Target: other, Passed: 1}}))
	if _, err := s.Resume(s.ctx, anna, store.Subject{Target: slowTarget}); err != nil {
		s.Fatal(err)
	}
	trip := func(cause string) store.Actor {
		return store.Actor{Name: "worker", Surface: store.ByWorker, Reason: cause}
	}
	first := s.auditLog(store.AuditFilter{Subject: "target " + slowTarget, Action: store.ActionTrip})
	if len(first) != 1 || !strings.HasPrefix(first[0].Reason, "500 ") {
		s.Fatalf("the trip of the first breaker: %+v", first)
	}
	for _, want := range []struct {
		subject string
		action  store.Action
		by      store.Actor
		before  string // reason
		after   string
	}{
		{slowTarget, store.ActionTrip, trip(first[0].Reason), "", first[0].Reason},
		{slowTarget, store.ActionResume, anna, "502", ""},
		{other, store.ActionTrip, trip("503"), "", "503"},
		{other, store.ActionResume, store.ResetByWorker, "503", ""},
	} {
		entries := s.auditLog(store.AuditFilter{Subject: "target " + want.subject, Action: want.action})
		if len(entries) != 1 || entries[0].Actor != want.by || entries[0].Task != 0 {
			s.Errorf("%s of %s: the entries are %+v, want one by %+v", want.action, want.subject, entries, want.by)
			continue
		}
		for what, document := range map[string]struct {
			json.RawMessage
			reason string
		}{"before": {entries[0].Before, want.before}, "after": {entries[0].After, want.after}} {
			var v *struct{ Kind, Reason string }
			if len(document.RawMessage) > 0 {
				s.must(json.Unmarshal(document.RawMessage, &v))
			}
			if exists := document.reason != ""; exists != (v != nil) || exists && (v.Kind != "breaker" || v.Reason != document.reason) {
				s.Errorf("%s of %s: %s is %s, want the reason %q", want.action, want.subject, what, document.RawMessage, document.reason)
			}
		}
	}
}

// Trip trips the breaker of a target.
func Trip(t *testing.T, s store.Breakers) {
	t.Helper()
	if err := s.ReportTargets(t.Context(), []store.TargetReport{{Target: slowTarget, Trip: true, Cause: "503"}}); err != nil {
		t.Fatal(err)
	}
}

// CheckProbeSoon checks that each breaker allows a probe within an hour.
func CheckProbeSoon(t *testing.T, s desk.Store) {
	t.Helper()
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gates, err := s.Gates(t.Context())
	if err != nil || len(gates) == 0 {
		t.Fatalf("the gates are %+v, %v; want a breaker", gates, err)
	}
	for _, gate := range gates {
		if gate.Breaker.ProbeAt.Sub(now) > time.Hour {
			t.Errorf("at %s, the next probe of %s is at %s", now, gate.Subject, gate.Breaker.ProbeAt)
		}
	}
}
