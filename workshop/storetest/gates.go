package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var gateTests = []test{
	{"blocks and releases the tasks of a paused subject", testGateBlocks},
	{"releases tasks in steps", testGateSteps},
	{"a pause ends when its time has passed", testGateExpires},
	{"opens pauses that end together", testGatesExpireTogether},
	{"a second pause replaces the reason and the end that it names", testGateReplaced},
	{"refuses subjects that are not valid", testGateInvalid},
	{"records pauses in the audit log", testGateAudit},
	{"finds the gates of tasks", testGatesOf},
	{"a gate that is open blocks nothing", testGateOpen},
	{"the next gate blocks a task that the first one releases", testGateNext},
	{"a task leaves its gate when a person changes it", testGateChanged},
	{"renewals report the paused queues", testGateRenewals},
	{"verify accepts a blocked task, which does not make its queue late", testGateHealthy},
	{"claims nothing after the call that pauses", testGateExact},
	{"a worker that registers meanwhile knows the pause", testGateRegister},
	{"targets agree with the handler of deliveries", testGateTargets},
}

func (s *suite) pause(subject store.Subject, d time.Duration) store.Gate {
	s.Helper()
	paused, err := s.Pause(s.ctx, anna, store.PauseFor(subject, d))
	s.must(err)
	return paused.After
}

func (s *suite) resume(subject store.Subject) {
	s.Helper()
	_, err := s.Resume(s.ctx, anna, subject)
	s.must(err)
}

// gates returns the closed gates without the times at which they were closed.
func (s *suite) gates() []store.Gate {
	s.Helper()
	gates, err := s.Gates(s.ctx)
	s.must(err)
	return gates
}

// block claims the tickets, all of which must be Blocked, and blocks their tasks.
func (s *suite) block(worker holdfast.WorkerID, gate store.ID, tickets ...message.Ticket) {
	s.Helper()
	for i, claim := range s.claimOf(worker, tickets...) {
		if claim.Verdict != store.Blocked || claim.Gate != gate || claim.Task.ID != tickets[i].Task {
			s.Fatalf("the claim of %v is %s at gate %s, want Blocked at gate %s", tickets[i], verdictName(claim.Verdict), claim.Gate, gate)
		}
	}
	s.must(s.Block(s.ctx, gate, tickets))
}

// claimOf claims tasks of any type of the suite.
func (s *suite) claimOf(worker holdfast.WorkerID, tickets ...message.Ticket) []store.Claim {
	s.Helper()
	claims, err := s.Claim(s.ctx, worker, store.AnyOf(kind, other, "http"), tickets, store.IntoExecutors)
	s.must(err)
	return claims
}

func (s *suite) release(limit int) int {
	s.Helper()
	released, err := s.ReleaseBlocked(s.ctx, limit)
	s.must(err)
	return released.Tasks
}

// due returns the tasks that get a ticket now.
func (s *suite) due() (tasks []holdfast.TaskID) {
	s.Helper()
	given, _ := s.dispatch(1000)
	for _, d := range given {
		tasks = append(tasks, d.Task)
	}
	slices.Sort(tasks)
	return tasks
}

func deliveryTo(url string) holdfast.NewTask {
	return holdfast.NewTask{Type: "http", Queue: defaultQueue, MaxAttempts: 3, Payload: fmt.Appendf(nil, `{"url": %q}`, url)}
}

// longHost is a host that is too long for an index, even if the database compresses it.
var longHost = func() string {
	random, host := rand.New(rand.NewPCG(1, 2)), make([]byte, 6000)
	for i := range host {
		host[i] = 'a' + byte(random.IntN(26))
	}
	return string(host)
}()

const (
	slowURL    = "https://API.example.com/hooks"
	slowTarget = "https://api.example.com:443"
)

func testGateBlocks(s *suite) {
	paused, plain, keyed := newTask(), newTask(), newTask()
	paused.Queue, plain.Type, keyed.Key = "mail", other, "tenant 7"
	for _, subject := range []struct {
		store.Subject
		task holdfast.NewTask
	}{
		{store.Subject{Queue: "mail"}, paused}, {store.Subject{Type: kind}, newTask()}, {store.Subject{Key: "tenant 7"}, keyed}, {store.Subject{Target: slowTarget}, deliveryTo(slowURL)},
	} {
		worker := s.registerWorker()
		free := plain
		if subject.Target != "" {
			free = deliveryTo("https://api.example.com:8443/hooks")
		}
		tickets := append(s.insert(subject.task, subject.task), s.insert(free)...)
		gate := s.pause(subject.Subject, 0)
		if gate.Subject != subject.Subject || gate.Kind != store.GatePause || gate.Name != anna.Name || gate.ClosedAt.IsZero() || !gate.Until.IsZero() {
			s.Errorf("the gate is %+v", gate)
		}
		claims := s.claimOf(worker, tickets...)
		if claims[0].Verdict != store.Blocked || claims[1].Verdict != store.Blocked || claims[2].Verdict != store.Claimed {
			s.Fatalf("%s: the verdicts are %s, %s and %s", subject.Subject, verdictName(claims[0].Verdict), verdictName(claims[1].Verdict), verdictName(claims[2].Verdict))
		}
		s.block(worker, gate.ID, tickets[:2]...)
		// Another copy of a ticket does not change the block.
		if claim := s.claimOf(worker, tickets[0])[0]; claim.Verdict != store.Stale {
			s.Errorf("%s: the claim of a blocked task is %s", subject.Subject, verdictName(claim.Verdict))
		}
		s.must(s.Block(s.ctx, gate.ID, tickets[:1]))
		if gates := s.gates(); len(gates) != 1 || gates[0].Blocked != 2 {
			s.Errorf("%s: the gates are %+v, want one with two blocked tasks", subject.Subject, gates)
		}
		if due := s.due(); len(due) > 0 || s.release(10) != 0 {
			s.Errorf("%s: the tasks %v get tickets while they are blocked", subject.Subject, due)
		}
		if task := s.task(tickets[0].Task); task.State != holdfast.Ready || task.Attempt != 1 || task.Deferrals != 0 {
			s.Errorf("a blocked task is %+v", task)
		}
		s.resume(subject.Subject)
		if n := s.release(10); n != 2 {
			s.Errorf("%s: released %d tasks, want 2", subject.Subject, n)
		}
		if due := s.due(); !slices.Equal(due, []holdfast.TaskID{tickets[0].Task, tickets[1].Task}) {
			s.Errorf("%s: due are %v after the release, want %v", subject.Subject, due, tickets[:2])
		}
		for _, claim := range s.claimOf(worker, tickets[:2]...) {
			if claim.Verdict != store.Claimed {
				s.Errorf("%s: the claim of a released task is %s", subject.Subject, verdictName(claim.Verdict))
			}
		}
		if s.release(10) != 0 || len(s.gates()) > 0 {
			s.Errorf("%s: gates remain: %+v", subject.Subject, s.gates())
		}
	}
}

func testGateSteps(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(7)
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, gate.ID, tickets...)
	s.resume(gate.Subject)
	var steps []int
	for n := s.release(3); n > 0; n = s.release(3) {
		steps = append(steps, n)
	}
	if !slices.Equal(steps, []int{3, 3, 1}) {
		s.Errorf("the steps release %v tasks, want 3, 3 and 1", steps)
	}
	if due := s.due(); len(due) != 7 {
		s.Errorf("%d tasks are due, want 7", len(due))
	}
}

func testGateExpires(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(3)
	gate := s.pause(store.Subject{Type: kind}, time.Second)
	if got := gate.Until.Sub(gate.ClosedAt); got != time.Second {
		s.Errorf("the pause lasts %s, want 1s", got)
	}
	s.block(worker, gate.ID, tickets[:2]...)
	s.eventually("the gate opens", func() bool { return len(s.gates()) == 0 })
	if claim := s.claimOf(worker, tickets[2])[0]; claim.Verdict != store.Claimed {
		s.Errorf("after the time of the pause, the claim is %s", verdictName(claim.Verdict))
	}
	if _, err := s.Resume(s.ctx, anna, gate.Subject); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("after the time of the pause, Resume returns %v", err)
	}
	if _, err := s.ResumeGate(s.ctx, anna, gate.ID, nil); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("after the time of the pause, ResumeGate returns %v", err)
	}
	s.eventually("the first task is released", func() bool { return s.release(1) == 1 })
	s.pause(store.Subject{Type: other}, 0) // opens no other pause
	s.eventually("the second task is released", func() bool { return s.release(1) == 1 })
	entries := s.auditLog(store.AuditFilter{Action: store.ActionResume})
	if len(entries) != 1 || entries[0].Surface != store.Janitor || entries[0].Subject != "type "+kind {
		s.Errorf("the audit log has %+v, want one entry of a janitor", entries)
	}
}

// testGatesExpireTogether lets more pauses end than one transaction may open. A pause does not open the others.
func testGatesExpireTogether(s *suite) {
	keyOf := func(n int) store.Subject { return store.Subject{Key: fmt.Sprint("tenant ", n)} }
	const pauses = store.OpenStep + 2
	ids := make([]store.ID, pauses)
	for n := range pauses {
		ids[n] = s.pause(keyOf(n), time.Millisecond).ID
	}
	s.eventually("the time of all pauses has passed", func() bool { return len(s.gates()) == 0 })
	if again := s.pause(keyOf(1), time.Hour); again.ID == ids[1] {
		s.Errorf("the second pause of %s has the id %s of the first one, which has ended", again.Subject, again.ID)
	}
	opened := func(when string, want int) {
		s.Helper()
		if entries := s.auditLog(store.AuditFilter{Action: store.ActionResume, Limit: 2 * pauses}); len(entries) != want {
			s.Fatalf("%s: %d gates are open, want %d", when, len(entries), want)
		}
	}
	opened("after a pause of one subject", 1)
	s.eventually("the last gate opens", func() bool {
		released, err := s.ReleaseBlocked(s.ctx, 10)
		s.must(err)
		return released.Next < 0
	})
	opened("after the last step", pauses)
	if gates := s.gates(); len(gates) != 1 || gates[0].Subject != keyOf(1) {
		s.Errorf("the closed gates are %+v, want the second pause of %s", gates, keyOf(1))
	}
}

func testGateReplaced(s *suite) {
	subject := store.Subject{Queue: defaultQueue}
	first := s.pause(subject, 0)
	changed, err := s.Pause(s.ctx, store.Actor{Name: "ben", Surface: store.API, Reason: "longer"}, store.PauseFor(subject, time.Hour))
	s.must(err)
	second := changed.After
	if second.ID != first.ID || second.Name != "ben" || second.Reason != "longer" || second.Until.IsZero() || !second.ClosedAt.Equal(first.ClosedAt) {
		s.Errorf("the first pause is %+v, the second %+v", first, second)
	}
	if gates := s.gates(); len(gates) != 1 || gates[0].Name != "ben" {
		s.Errorf("the gates are %+v", gates)
	}
	s.resume(subject)
	if _, err := s.Resume(s.ctx, anna, subject); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("a second Resume returns %v", err)
	}
	if third := s.pause(subject, 0); third.Until != (time.Time{}) {
		s.Errorf("the third pause is %+v", third)
	}
}

func testGateInvalid(s *suite) {
	for _, subject := range []store.Subject{
		{}, {Queue: "q", Type: "t"}, {Queue: "Q!"}, {Type: "a b"}, {Target: "example.com"}, {Target: "https://example.com"},
		{Target: "https://EXAMPLE.com:443"}, {Queue: strings.Repeat("q", 101)}, {Type: strings.Repeat("t", 101)}, {Key: strings.Repeat("k", 256)}, {Key: "a\nb"}, {Key: "k", Type: kind},
		{Key: longHost}, {Target: "https://" + longHost + ":443"}, {Target: "https://example.com:65536"},
	} {
		if _, err := s.Pause(s.ctx, anna, store.PauseFor(subject, 0)); !errors.Is(err, holdfast.ErrInvalid) || len(err.Error()) > 500 {
			s.Errorf("%+v: %v", subject, err)
		}
		if _, err := s.SetLimit(s.ctx, anna, store.Limit{Scope: store.Scope{Subject: subject}, Concurrency: 1}.Change()); (subject.Queue == "" || subject.Type == "") &&
			(subject.Key == "" || subject.Type == "") && !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("a limit for %+v: %v", subject, err)
		}
		if err := s.ReportTargets(s.ctx, []store.TargetReport{{Target: subject.Target, Trip: true}}); !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("a report of the target %q: %v", subject.Target, err)
		}
	}
	if _, err := s.SetTopicWeight(s.ctx, anna, longHost, 2); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a weight of a topic that is too long: %v", err)
	}
	if _, err := s.Pause(s.ctx, anna, store.PauseFor(store.Subject{Type: kind}, -time.Second)); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a negative time: %v", err)
	}
	long := store.Actor{Name: "anna", Reason: strings.Repeat("x", 1001)}
	if _, err := s.Pause(s.ctx, long, store.PauseFor(store.Subject{Type: kind}, 0)); !errors.Is(err, holdfast.ErrInvalid) || len(s.gates()) > 0 {
		s.Errorf("a reason that is too long: %v, gates %+v", err, s.gates())
	}
}

func testGateAudit(s *suite) {
	subject := store.Subject{Target: slowTarget}
	s.pause(subject, 0)
	s.pause(subject, time.Hour)
	s.resume(subject)
	entries := s.auditLog(store.AuditFilter{Subject: "target " + slowTarget})
	if len(entries) != 3 {
		s.Fatalf("the audit log has %d entries, want 3", len(entries))
	}
	for i, want := range []struct {
		action        store.Action
		before, after bool
	}{{store.ActionResume, true, false}, {store.ActionPause, true, true}, {store.ActionPause, false, true}} {
		e := entries[i]
		if e.Action != want.action || (len(e.Before) > 0) != want.before || (len(e.After) > 0) != want.after || e.Name != anna.Name {
			s.Errorf("entry %d is %+v", i, e)
		}
		for _, document := range []json.RawMessage{e.Before, e.After} {
			if len(document) > 0 && !json.Valid(document) {
				s.Errorf("entry %d has %q", i, document)
			}
		}
	}
}

func testGatesOf(s *suite) {
	worker := s.registerWorker()
	mail, free := newTask(), newTask()
	mail.Queue, free.Type = "mail", other
	s.insert(mail, newTask()) // these tasks are not listed
	inQueue, ofType, slow, running, without := s.insert(mail)[0], s.insert(newTask())[0], s.insert(deliveryTo(slowURL))[0], s.insert(newTask())[0], s.insert(free)[0]
	s.mustClaim(worker, running)
	tasks := []holdfast.TaskID{inQueue.Task, ofType.Task, slow.Task, running.Task, without.Task, 1 << 40}
	want := func(when string, want map[holdfast.TaskID]store.ID) {
		s.Helper()
		gates, err := s.GatesOf(s.ctx, tasks)
		s.must(err)
		got := make(map[holdfast.TaskID]store.ID)
		for task, gate := range gates {
			if got[task] = gate.ID; gate.Name != anna.Name || gate.ClosedAt.IsZero() || gate.Kind != store.GatePause {
				s.Errorf("%s, task %s has the gate %+v", when, task, gate)
			}
		}
		if !maps.Equal(got, want) {
			s.Errorf("%s, the gates are %v, want %v", when, got, want)
		}
	}
	want("before a pause", map[holdfast.TaskID]store.ID{})
	queue := s.pause(store.Subject{Queue: "mail"}, 0)
	byType, target := s.pause(store.Subject{Type: kind}, 0), s.pause(store.Subject{Target: slowTarget}, 0)
	s.block(worker, byType.ID, ofType)
	want("after the pauses", map[holdfast.TaskID]store.ID{inQueue.Task: queue.ID, ofType.Task: byType.ID, slow.Task: target.ID})
	s.resume(queue.Subject)
	want("after the end of one", map[holdfast.TaskID]store.ID{inQueue.Task: byType.ID, ofType.Task: byType.ID, slow.Task: target.ID})
	s.resume(byType.Subject)
	want("after the end of two", map[holdfast.TaskID]store.ID{slow.Task: target.ID})
	if gates, err := s.GatesOf(s.ctx, nil); err != nil || len(gates) > 0 {
		s.Errorf("without tasks: %v, %v", gates, err)
	}
}

func testGateOpen(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(2)
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.resume(gate.Subject)
	s.release(10)
	s.must(s.Block(s.ctx, gate.ID, tickets[:1])) // as a worker does that has just seen the gate closed
	if due := s.due(); !slices.Equal(due, []holdfast.TaskID{tickets[0].Task}) {
		s.Errorf("due are %v, want task %s", due, tickets[0].Task)
	}
	s.mustClaim(worker, tickets...)
	s.must(s.Block(s.ctx, s.pause(gate.Subject, 0).ID, tickets)) // running tasks do not change
	if task := s.task(tickets[0].Task); task.State != holdfast.Running {
		s.Errorf("Block changed a running task: %+v", task)
	}
}

func testGateNext(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(1)
	byType, byQueue := s.pause(store.Subject{Type: kind}, 0), s.pause(store.Subject{Queue: defaultQueue}, 0)
	s.block(worker, byType.ID, tickets...)
	if gates := s.gates(); len(gates) != 2 || gates[0].Blocked != 1 || gates[1].Blocked != 0 {
		s.Errorf("the gates are %+v, want a blocked task at the first one", gates)
	}
	s.resume(byType.Subject)
	if s.release(10) != 1 || len(s.due()) != 1 {
		s.Fatal("the task is not released")
	}
	s.block(worker, byQueue.ID, tickets...)
	s.resume(byQueue.Subject)
	if s.release(10) != 1 || len(s.due()) != 1 {
		s.Fatal("the task is not released from the second gate")
	}
	s.mustClaim(worker, tickets...)
}

func testGateChanged(s *suite) {
	worker, tickets := s.registerWorker(), s.insertN(3)
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, gate.ID, tickets...)
	s.move(s.task(tickets[0].Task), holdfast.Requested(holdfast.EventCancel))
	edited := s.task(tickets[1].Task)
	edited.Payload = nil
	s.mustChange(store.Change{Action: store.ActionEdit, Task: edited, Edit: &store.Edit{Queue: "other"}})
	if gates := s.gates(); gates[0].Blocked != 1 {
		s.Errorf("%d tasks are blocked, want 1", gates[0].Blocked)
	}
	if due := s.due(); !slices.Equal(due, []holdfast.TaskID{edited.ID}) {
		s.Errorf("due are %v, want the edited task", due)
	}
	s.block(worker, gate.ID, message.Ticket{Task: edited.ID, Attempt: 2})
	s.resume(gate.Subject)
	if n := s.release(10); n != 2 {
		s.Errorf("released %d tasks, want 2", n)
	}
	if task := s.task(tickets[0].Task); task.State != holdfast.Cancelled {
		s.Errorf("the cancelled task is %+v", task)
	}
}

func testGateRenewals(s *suite) {
	worker := s.registerWorker()
	want := func(when string, want ...string) {
		s.Helper()
		result, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour})
		s.must(err)
		if !slices.Equal(result.Paused, want) {
			s.Errorf("%s, the paused queues are %v, want %v", when, result.Paused, want)
		}
	}
	s.setLimit(store.Limit{Scope: store.Scope{Subject: store.Subject{Queue: "limited"}}, Concurrency: 1})
	want("before a pause")
	for _, subject := range []store.Subject{{Queue: "mail"}, {Type: kind}} {
		s.pause(subject, 0)
	}
	s.pause(store.Subject{Queue: "bills"}, time.Hour)
	want("after the pauses", "bills", "mail")
	s.resume(store.Subject{Queue: "mail"})
	want("after the end of one", "bills")
	s.pause(store.Subject{Queue: "bills"}, time.Millisecond)
	s.eventually("the pause ends", func() bool { return len(s.gates()) == 1 })
	want("after all")
}

func testGateHealthy(s *suite) {
	s.idleWorker()
	worker, tickets := s.registerWorker(), s.insertN(1)
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, gate.ID, tickets...)
	s.wantNoFault(store.VerifyLimits{})
	queues, err := s.Queues(s.ctx)
	s.must(err)
	for _, q := range queues {
		if q.Name == defaultQueue && (q.OldestDue != 0 || q.Due != 0 || q.Ready != 1) {
			s.Errorf("the queue is %+v, want one ready task that is not due", q)
		}
	}
	if _, err := s.CorrectTimes(s.ctx); err != nil {
		s.Fatal(err)
	}
	if due := s.due(); len(due) > 0 {
		s.Errorf("the tasks %v are due", due)
	}
}

// testGateExact pauses while workers claim. No claim may commit after Pause has returned.
func testGateExact(s *suite) {
	const workers, rounds, perRound = 6, 12, 60
	for range rounds {
		tickets := s.insertN(perRound)
		var next atomic.Int64
		var claimers sync.WaitGroup
		for range workers {
			worker := s.registerWorker()
			claimers.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(tickets) {
						return
					}
					if _, err := s.Claim(s.ctx, worker, kinds, tickets[i:i+1], store.IntoExecutors); err != nil {
						s.Error(err)
					}
				}
			})
		}
		s.eventually("some tasks are claimed", func() bool { return next.Load() > perRound/4 })
		gate := s.pause(store.Subject{Type: kind}, 0)
		before := s.countRunning()
		claimers.Wait()
		if after := s.countRunning(); after != before {
			s.Errorf("%d tasks were claimed after Pause had returned", after-before)
		}
		s.resume(gate.Subject)
		s.release(1000)
	}
}

func (s *suite) countRunning() int64 {
	s.Helper()
	counts, err := s.Count(s.ctx, store.Filter{States: []holdfast.State{holdfast.Running}, Until: time.Time{}})
	s.must(err)
	return counts.By[holdfast.Running]
}

// testGateRegister registers workers while a person pauses and resumes. A worker must know each pause whose call has
// returned.
func testGateRegister(s *suite) {
	ticket := s.insertN(1)[0]
	var registered sync.WaitGroup
	stop := make(chan struct{})
	workers := make(chan holdfast.WorkerID)
	registered.Go(func() {
		defer close(workers)
		for {
			worker, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "new"}, time.Hour)
			if err != nil {
				s.Error(err)
				return
			}
			select {
			case workers <- worker:
			case <-stop:
				return
			}
		}
	})
	defer registered.Wait()
	defer close(stop)
	for range 100 {
		gate := s.pause(store.Subject{Type: kind}, 0)
		for range 2 { // the first one may have registered before the pause
			worker, ok := <-workers
			if !ok {
				return
			}
			if claim := s.claim(worker, ticket)[0]; claim.Verdict != store.Blocked {
				s.Fatalf("a new worker gets the verdict %s", verdictName(claim.Verdict))
			}
		}
		s.resume(gate.Subject)
	}
}

// testGateTargets compares the targets that the store computes with holdfast.TargetOf.
func testGateTargets(s *suite) {
	worker := s.registerWorker()
	long, zeros, longest := strings.Repeat("x", 200_000), strings.Repeat("0", 5000), strings.Repeat("a", 245)+".example"
	for payload, target := range map[string]string{
		`{"url":"https://example.com/a"}`:                             "https://example.com:443",
		`{"url":"http://example.com"}`:                                "http://example.com:80",
		`{"URL":"http://Example.COM:080/x?y#z"}`:                      "http://example.com:80",
		`{"url":"HTTPS://example.com:/"}`:                             "https://example.com:443",
		`{"url":"https://[2001:DB8::1]:8443/x"}`:                      "https://[2001:db8::1]:8443",
		`{"url":"https://[::1]"}`:                                     "https://[::1]:443",
		`{"url":"https://b\u00fccher.example/x"}`:                     "https://bücher.example:443",
		`{"url":"https://BÜCHER.example?x"}`:                          "https://bÜcher.example:443",
		`{"url":"https:\/\/example.org\/"}`:                           "https://example.org:443",
		`{"method":"\u0000","url":"https://nul.example"}`:             "https://nul.example:443",
		`{"url":"https://ok.example","URL":"https://last.example/x"}`: "https://last.example:443",
		`{"Url":"https://ok.example","url":null}`:                     "https://ok.example:443",
		`{"url":"https://b%C3%BCcher.example/"}`:                      "",
		`{"url":"https://example.com/%20?a=%25"}`:                     "https://example.com:443",
		`{"url":"ftp://example.com"}`:                                 "",
		`{"url":"https://user@example.com/"}`:                         "",
		`{"url":7}`:                                                   "",
		`[1]`:                                                         "",
		`{"url":"example.com"}`:                                       "",
		`{"headers":{"url":"https://no.example"},"body":"url"}`:       "",

		`{"url":7,"URL":"https://number.example"}`:                         "https://number.example:443",
		`{"URL":"https://number.example","url":{"a":1}}`:                   "",
		`{"url":"https://bad.example/%zz"}`:                                "https://bad.example:443",
		`{"url":"https://a b.example"}`:                                    "",
		`{"url":"https://a\\b.example"}`:                                   "",
		`{"url":"https://[::1"}`:                                           "",
		`{"url":"https://[::1]x:1"}`:                                       "",
		`{"url":"https://[]"}`:                                             "",
		`{"url":"https://a:b"}`:                                            "",
		`{"url":"https://a:1:2"}`:                                          "",
		`{"url":"https://:80"}`:                                            "",
		`{"url":"https://port.example:0"}`:                                 "",
		`{"url":"https://port.example:65535"}`:                             "https://port.example:65535",
		`{"url":"https://port.example:65536"}`:                             "",
		`{"url":"https://port.example:` + zeros + `80"}`:                   "https://port.example:80",
		`{"url":"https://port.example:100080"}`:                            "",
		`{"url":"https://port.example:` + strings.Repeat("9", 5000) + `"}`: "",
		`{"url":"https://` + longest + `/"}`:                               "https://" + longest + ":443",
		`{"url":"https://` + longest + `a/"}`:                              "",
		`{"url":"https://` + strings.Repeat("ü", 126) + `"}`:               "https://" + strings.Repeat("ü", 126) + ":443",
		`{"url":"https://` + strings.Repeat("ü", 127) + `"}`:               "",
		`{"url":"https://` + longHost + `/"}`:                              "",
		`{"url":"https://path.example/` + long[:8171] + `"}`:               "https://path.example:443",
		`{"url":"https://path.example/` + long[:8172] + `"}`:               "",
		`{"url":"https://path.example/` + long + `"}`:                      "",

		// Escapes that PostgreSQL cannot read.
		`{"url":"https://nul\u0000.example"}`:                                              "",
		`{"url":"https://path.example/\u0000` + long[:8170] + `"}`:                         "https://path.example:443",
		`{"url":"https://path.example/\u0000` + long[:8171] + `"}`:                         "",
		`{"url":"https://half\ud83d.example"}`:                                             "https://half\uFFFD.example:443",
		`{"url":"https://half\uDE00\uD83D.example"}`:                                       "https://half\uFFFD\uFFFD.example:443",
		`{"url":"https://pair\ud83d\ud83d\uDE00.example"}`:                                 "https://pair\uFFFD😀.example:443",
		`{"url":"https://pair\ud83d\ude00.example","body":"\u0000"}`:                       "https://pair😀.example:443",
		`{"\u0075R\u004C":"https:\u002f/key.example","body":"\\\\ud83d\ud83d"}`:            "https://key.example:443",
		`{"url":"https://slash.example/\\ud83d\"\n\t","body":"\udc00"}`:                    "https://slash.example:443",
		`{"url":"https://body.example/","body":"` + strings.Repeat(`\ud800`, 50000) + `"}`: "https://body.example:443",
	} {
		task := holdfast.NewTask{Type: "http", Queue: defaultQueue, MaxAttempts: 3, Payload: json.RawMessage(payload)}
		if got := holdfast.TargetOf("http", task.Payload); got != target {
			s.Errorf("TargetOf of %.200s is %q, want %q", payload, got, target)
		}
		ticket := s.insert(task)[0]
		if target == "" {
			// No pause of a target concerns a task without a target.
			s.pause(store.Subject{Target: slowTarget}, 0)
			if claim := s.claimOf(worker, ticket)[0]; claim.Verdict != store.Claimed {
				s.Errorf("%.200s: the verdict is %s", payload, verdictName(claim.Verdict))
			}
			s.resume(store.Subject{Target: slowTarget})
			continue
		}
		s.pause(store.Subject{Target: target}, 0)
		if claim := s.claimOf(worker, ticket)[0]; claim.Verdict != store.Blocked {
			s.Errorf("%.200s: the verdict is %s, want Blocked", payload, verdictName(claim.Verdict))
		}
		s.resume(store.Subject{Target: target})
	}
}
