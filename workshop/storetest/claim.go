package storetest

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var claimTests = []test{
	{"returns a verdict for every ticket", testClaimVerdicts},
	{"returns the complete task", testClaimTask},
	{"returns everything that a task may have", testClaimWholeTasks},
	{"claims a task of the worker again", testClaimRepeated},
	{"returns a verdict for each of several equal tickets", testClaimEqualTickets},
	{"claims nothing for a worker that has ended", testClaimFenced},
	{"gives each task to one of several workers", testClaimConcurrently},
	{"never calls a ticket stale while its task becomes ready", testClaimBecomingReady},
	{"parks tasks without a handler", testPark},
	{"parks a task longer each time", testParkWaitsGrow},
	{"claims last-chance tasks only on request", testClaimLastChances},
	{"lists the tasks of a worker", testHeld},
	{"marks tasks that are claimed into a buffer", testBuffered},
}

func testClaimVerdicts(s *suite) {
	mine, theirs := s.registerWorker(), s.registerWorker()
	later, foreign := newTask(), newTask()
	later.Delay, foreign.Type, foreign.Queue = time.Hour, other, "foreign"
	tickets := s.insert(newTask(), later, foreign, newTask(), newTask(), newTask(), newTask(), newTask())
	contended := s.mustClaim(theirs, tickets[3])[0]
	retried := s.move(s.mustClaim(mine, tickets[4])[0], holdfast.Returned(errors.New("failed")))
	s.move(s.mustClaim(mine, tickets[5])[0], holdfast.Returned(nil))
	s.move(s.mustClaim(mine, tickets[6])[0], holdfast.Returned(holdfast.Permanent(nil)))
	s.move(s.task(tickets[7].Task), holdfast.Requested(holdfast.EventCancel))
	parked := s.insert(foreign)[0]
	s.must(s.Park(s.ctx, []message.Ticket{parked}, time.Hour, "no handler"))

	for _, c := range []struct {
		name   string
		ticket message.Ticket
		want   store.Verdict
	}{
		{"a ready task", tickets[0], store.Claimed},
		{"not due yet", tickets[1], store.Stale},
		{"a type that is not wanted", tickets[2], store.Unhandled},
		{"running under another worker", tickets[3], store.Contended},
		{"running under another worker, a newer ticket", message.Ticket{Task: contended.ID, Attempt: 2}, store.Ahead},
		{"an older attempt", tickets[4], store.Stale},
		{"the new attempt", message.Ticket{Task: retried.ID, Attempt: 2}, store.Claimed},
		{"a later attempt", message.Ticket{Task: tickets[0].Task, Attempt: 3}, store.Ahead},
		{"done", tickets[5], store.Stale},
		{"dead", tickets[6], store.Stale},
		{"cancelled", tickets[7], store.Stale},
		{"no such task", message.Ticket{Task: 1 << 60, Attempt: 1}, store.Ahead},
		{"parked", parked, store.Stale},
	} {
		claim := s.claim(mine, c.ticket)[0]
		if claim.Verdict != c.want {
			s.Errorf("%s: the verdict is %s, want %s", c.name, verdictName(claim.Verdict), verdictName(c.want))
		}
		if claim.Now.IsZero() {
			s.Errorf("%s: the claim has no time", c.name)
		}
		switch {
		case c.want == store.Contended && claim.Owner != theirs:
			s.Errorf("%s: the owner is %s, want %s", c.name, claim.Owner, theirs)
		case c.want == store.Unhandled && (claim.Task.ID != c.ticket.Task || claim.Task.Type != other || claim.Task.Queue != "foreign"):
			s.Errorf("%s: the task is %+v", c.name, claim.Task)
		}
	}
}

func testClaimTask(s *suite) {
	task := newTask()
	task.Payload, task.Unique, task.Key = []byte(`{"n": 1}`), "key", "tenant 7"
	ticket := s.insert(task)[0]
	worker := s.registerWorker()
	claim := s.claim(worker, ticket)[0]
	got := claim.Task
	if got.State != holdfast.Running || got.Worker != worker || got.Attempt != 1 || string(got.Payload) != `{"n": 1}` || got.Unique != "key" ||
		got.Type != kind || got.Queue != defaultQueue || got.MaxAttempts != 3 || got.StartedAt.IsZero() || got.StartedAt.Before(got.CreatedAt) {
		s.Errorf("claimed %+v", got)
	}
	if stored := s.task(ticket.Task); !equalTasks(stored, *got) {
		s.Errorf("claimed %+v, but the store has %+v", got, stored)
	}
	if claim.Now.Before(got.StartedAt) {
		s.Errorf("the time of the claim is %s, before the start of the task at %s", claim.Now, got.StartedAt)
	}
}

// testClaimWholeTasks claims tasks that have everything a claim returns, beside tasks that have nothing of it, also after
// each kind of attempt that a task counts.
func testClaimWholeTasks(s *suite) {
	full := newTask()
	full.Unique, full.Key, full.Ordered, full.Tags = "key ü", "tenant 7", true, []string{"a", "tenant:7"}
	full.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 x=1"
	tickets := s.insert(newTask(), full, newTask())
	for i, key := range []string{"", "a key of its own", ""} {
		s.mustChange(editOf(s.task(tickets[i].Task), store.Edit{Payload: []byte(`{"edited": 1}`), Key: key}))
		tickets[i].Attempt = s.task(tickets[i].Task).Attempt
	}
	worker := s.registerWorker()
	for _, end := range []holdfast.Cause{
		holdfast.Returned(errors.New("bröken")), holdfast.Returned(holdfast.Defer(0, errors.New("later"))), holdfast.Crashed(5), holdfast.Returned(nil),
	} {
		claims := s.claim(worker, tickets...)
		var moves []holdfast.Transition
		for i, claim := range claims {
			stored := s.task(tickets[i].Task)
			if claim.Verdict != store.Claimed || !equalTasks(stored, *claim.Task) || stored.Buffered {
				s.Fatalf("claimed %+v, but the store has %+v", claim, stored)
			}
			moves = append(moves, s.settle(*claim.Task, end))
		}
		if got := claims[1].Task.ImportedKey; got != "a key of its own" {
			s.Errorf("the idempotency key is %q", got)
		}
		for i, ok := range s.apply(moves...) {
			if !ok {
				s.Fatalf("the store refused %+v", moves[i])
			}
			tickets[i].Attempt = moves[i].NextAttempt
		}
	}
}

func equalTasks(a, b holdfast.Task) bool {
	same := string(a.Payload) == string(b.Payload)
	a.Payload, b.Payload = nil, nil
	for _, t := range []*holdfast.Task{&a, &b} {
		for _, at := range []*time.Time{&t.CreatedAt, &t.NextRunAt, &t.StartedAt, &t.FinishedAt} {
			*at = at.Round(0).UTC()
		}
	}
	type fields struct {
		id                                                 holdfast.TaskID
		kind, queue, unique, key, err, parked, idempotency string
		state                                              holdfast.State
		attempt, maxAttempts, failures, crashes, deferrals int
		worker                                             holdfast.WorkerID
		buffered, ordered, doomed                          bool
		tags, topic, trace                                 string
		nextRunAt, createdAt, startedAt, finishedAt        time.Time
	}
	key := func(t holdfast.Task) fields {
		return fields{t.ID, t.Type, t.Queue, t.Unique, t.Key, t.LastError, t.Parked, t.ImportedKey, t.State, t.Attempt, t.MaxAttempts, t.Failures, t.Crashes, t.Deferrals,
			t.Worker, t.Buffered, t.Ordered, t.Doomed, strings.Join(t.Tags, " "), t.Topic, t.Trace, t.NextRunAt, t.CreatedAt, t.StartedAt, t.FinishedAt}
	}
	return same && key(a) == key(b)
}

// testClaimRepeated claims tasks of the worker again. If the answer to a claim is lost with the connection, the worker
// owns tasks that no other worker can run.
func testClaimRepeated(s *suite) {
	worker := s.registerWorker()
	tickets := s.insertN(3)
	first := s.mustClaim(worker, tickets[:2]...)
	repeat := s.mustClaim(worker, tickets...)
	for i := range first {
		if !equalTasks(first[i], repeat[i]) {
			s.Errorf("the second claim returned %+v, the first %+v", repeat[i], first[i])
		}
	}
	s.move(first[0], holdfast.Returned(nil))
	if claim := s.claim(worker, tickets[0])[0]; claim.Verdict != store.Stale {
		s.Errorf("the verdict for a finished task is %s, want stale", verdictName(claim.Verdict))
	}
}

func testClaimEqualTickets(s *suite) {
	ticket := s.insertN(1)[0]
	claims := s.claim(s.registerWorker(), ticket, ticket, message.Ticket{Task: ticket.Task, Attempt: 2})
	for i, want := range []store.Verdict{store.Claimed, store.Stale, store.Ahead} {
		if claims[i].Verdict != want {
			s.Errorf("ticket %d: the verdict is %s, want %s", i, verdictName(claims[i].Verdict), verdictName(want))
		}
	}
}

func testClaimFenced(s *suite) {
	tickets := s.insertN(2)
	stopped := s.registerWorker()
	s.must(s.DeregisterWorker(s.ctx, stopped, false))
	dead := s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, tickets[0]) })
	for name, worker := range map[string]holdfast.WorkerID{"stopped": stopped, "dead": dead, "unknown": 1 << 60} {
		if _, err := s.Claim(s.ctx, worker, kinds, tickets, store.IntoExecutors); !errors.Is(err, store.ErrFenced) {
			s.Errorf("a claim for a worker that is %s returned %v, want ErrFenced", name, err)
		}
	}
	if got := s.task(tickets[1].Task); got.State != holdfast.Ready {
		s.Errorf("a worker that has ended claimed %+v", got)
	}
}

func testClaimConcurrently(s *suite) {
	const workers, size = 8, 200
	tickets := s.insertN(size)
	var mu sync.Mutex
	owners := map[holdfast.TaskID][]holdfast.WorkerID{}
	var group sync.WaitGroup
	for range workers {
		worker := s.registerWorker()
		group.Go(func() {
			mixed := make([]message.Ticket, size)
			for i, j := range rand.Perm(size) {
				mixed[i] = tickets[j]
			}
			for len(mixed) > 0 {
				page := mixed[:min(37, len(mixed))]
				mixed = mixed[len(page):]
				claims, err := s.Claim(s.ctx, worker, kinds, page, store.IntoExecutors)
				if err != nil {
					s.Error(err)
					return
				}
				for i, claim := range claims {
					switch claim.Verdict {
					case store.Claimed:
						mu.Lock()
						owners[page[i].Task] = append(owners[page[i].Task], worker)
						mu.Unlock()
					case store.Contended:
					default:
						s.Errorf("task %s: the verdict is %s", page[i].Task, verdictName(claim.Verdict))
					}
				}
			}
		})
	}
	group.Wait()
	for _, ticket := range tickets {
		if len(owners[ticket.Task]) != 1 {
			s.Errorf("task %s was claimed by workers %v, want one", ticket.Task, owners[ticket.Task])
		}
	}
}

// testClaimBecomingReady claims a task while it becomes ready. If the verdict were Stale, the worker would drop the
// only ticket of the task.
func testClaimBecomingReady(s *suite) {
	here, there := s.registerWorker(), s.registerWorker()
	for range 40 {
		task := s.mustClaim(here, s.insertN(1)...)[0]
		back := s.settle(task, holdfast.Interrupted(nil))
		next := message.Ticket{Task: task.ID, Attempt: back.NextAttempt}
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := s.Apply(s.ctx, []holdfast.Transition{back}); err != nil {
				s.Error(err)
			}
		})
		claims, err := s.Claim(s.ctx, there, kinds, []message.Ticket{next}, store.IntoExecutors)
		group.Wait()
		s.must(err)
		if v := claims[0].Verdict; v != store.Ahead && v != store.Claimed {
			s.Fatalf("the verdict is %s, want ahead or claimed", verdictName(v))
		}
	}
}

func testPark(s *suite) {
	foreign := newTask()
	foreign.Type = other
	tickets := s.insert(foreign, newTask(), foreign)
	worker := s.registerWorker()
	running := s.mustClaim(worker, tickets[1])[0]
	otherAttempt := message.Ticket{Task: tickets[2].Task, Attempt: 7}
	s.must(s.Park(s.ctx, []message.Ticket{tickets[0], tickets[1], otherAttempt}, time.Hour, "no handler for suite.other"))
	got := s.task(tickets[0].Task)
	if got.State != holdfast.Ready || got.Attempt != 1 || got.Parked != "no handler for suite.other" || got.NextRunAt.Sub(got.CreatedAt) < time.Hour || s.position(tickets[0]).Ticketed {
		s.Errorf("the parked task is %+v", got)
	}
	if !equalTasks(s.task(running.ID), running) {
		s.Errorf("Park changed a running task: %+v", s.task(running.ID))
	}
	if got := s.task(tickets[2].Task); got.Parked != "" {
		s.Errorf("Park changed a task at another attempt: %+v", got)
	}

	// A second park changes nothing, because a parked task waits until it is due.
	s.must(s.Park(s.ctx, tickets[:1], time.Microsecond, "later"))
	if after := s.task(tickets[0].Task); !equalTasks(after, got) {
		s.Errorf("the second park changed %+v to %+v", got, after)
	}

	s.must(s.Park(s.ctx, tickets[2:], time.Microsecond, "briefly"))
	s.eventually("the task is due again", func() bool {
		due, _ := s.dispatch(10)
		return len(due) == 1 && due[0].Ticket == tickets[2]
	})
	claims, err := s.Claim(s.ctx, worker, store.AnyOf(other), tickets[2:], store.IntoExecutors)
	s.must(err)
	if claims[0].Verdict != store.Claimed || claims[0].Task.Parked != "" {
		s.Errorf("claimed %+v", claims[0])
	}
}

// testParkWaitsGrow checks that each park of an attempt lasts longer, and that the waits start over with the next
// attempt.
func testParkWaitsGrow(s *suite) {
	const first = 200 * time.Millisecond
	ticket := s.insertN(1)[0]
	park := func() (most, least time.Duration) { // the wait is between them: the call itself takes time
		before := s.now()
		s.must(s.Park(s.ctx, []message.Ticket{ticket}, first, "no handler"))
		after, task := s.now(), s.task(ticket.Task)
		s.eventually("the task is due again", func() bool { return !s.now().Before(task.NextRunAt) })
		return task.NextRunAt.Sub(before), task.NextRunAt.Sub(after)
	}
	for n, want := range []time.Duration{first, 2 * first, 4 * first} {
		if most, least := park(); most < want || n == 0 && least > 10*first {
			s.Errorf("park %d lasts %s to %s, want %s", n+1, least, most, want)
		}
	}
	s.move(s.mustClaim(s.registerWorker(), ticket)[0], holdfast.Interrupted(nil))
	ticket.Attempt++
	if most, least := park(); most < first || least >= 8*first {
		s.Errorf("the first park of a new attempt lasts %s to %s, want %s", least, most, first)
	}
}

// testClaimLastChances claims tasks with crashes. Claim does not claim a task that had more crashes than the caller
// allows. A caller that allows them can claim the task.
func testClaimLastChances(s *suite) {
	tickets := s.insertN(3)
	for i, crashes := range []int{0, 1, 2} {
		for range crashes {
			crashed := s.registerWorker()
			move := s.settle(s.mustClaim(crashed, tickets[i])[0], holdfast.Crashed(crashed))
			move.Wait = 0
			s.apply(move)
			tickets[i].Attempt++
		}
	}
	worker := s.registerWorker()
	for _, c := range []struct {
		allowed int
		want    []store.Verdict
	}{
		{1, []store.Verdict{store.Claimed, store.Claimed, store.LastChance}},
		{0, []store.Verdict{store.Claimed, store.Claimed, store.LastChance}}, // the worker already owns the second task
		{store.AnyCrashes, []store.Verdict{store.Claimed, store.Claimed, store.Claimed}},
	} {
		claims, err := s.Claim(s.ctx, worker, []store.Wanted{{Type: kind, MostCrashes: c.allowed}}, tickets, store.IntoExecutors)
		s.must(err)
		for i, claim := range claims {
			if claim.Verdict != c.want[i] || claim.Task.ID != tickets[i].Task {
				s.Errorf("%d crashes allowed, the task had %d: the verdict is %s for task %s, want %s", c.allowed, i, verdictName(claim.Verdict), claim.Task.ID, verdictName(c.want[i]))
			}
		}
	}
	if claims, err := s.Claim(s.ctx, worker, store.AnyOf(other), tickets[:1], store.IntoExecutors); err != nil || claims[0].Verdict != store.Claimed {
		s.Errorf("a claim of a task that the worker owns returned %+v, %v; want claimed", claims, err)
	}
}
