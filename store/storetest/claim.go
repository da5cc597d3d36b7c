package storetest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var claimTests = []test{
	{"gives every ticket its verdict", testClaimVerdicts},
	{"returns the complete task", testClaimTask},
	{"claims again what the run holds", testClaimAgain},
	{"answers each of equal tickets", testClaimEqualTickets},
	{"takes nothing for a run that is over", testClaimFenced},
	{"gives each task to one of many", testClaimConcurrently},
	{"never drops a task that is just coming back", testClaimComingBack},
	{"parks what has no handler", testPark},
	{"parks longer each time", testParkWaitsGrow},
	{"leaves suspects until they are asked for alone", testClaimSuspects},
	{"lists what a run holds", testHeld},
	{"marks what was claimed into a buffer", testBuffered},
}

func testClaimVerdicts(s *suite) {
	mine, theirs := s.openRun(), s.openRun()
	later, foreign := newTask(), newTask()
	later.Delay, foreign.Type, foreign.Lane = time.Hour, other, "foreign"
	tickets := s.insert(newTask(), later, foreign, newTask(), newTask(), newTask(), newTask(), newTask())
	contended := s.claimed(theirs, tickets[3])[0]
	retried := s.move(s.claimed(mine, tickets[4])[0], holdfast.Returned(errors.New("again")))
	s.move(s.claimed(mine, tickets[5])[0], holdfast.Returned(nil))
	s.move(s.claimed(mine, tickets[6])[0], holdfast.Returned(holdfast.Permanent(nil)))
	s.move(s.task(tickets[7].Task), holdfast.Asked(holdfast.EventCancel))
	parked := s.insert(foreign)[0]
	s.must(s.Park(s.ctx, []message.Ticket{parked}, time.Hour, "no handler"))

	for _, c := range []struct {
		name   string
		ticket message.Ticket
		want   store.Verdict
	}{
		{"a ready task", tickets[0], store.Claimed},
		{"not due yet", tickets[1], store.Stale},
		{"a type nobody asked for", tickets[2], store.Unhandled},
		{"running elsewhere", tickets[3], store.Contended},
		{"running elsewhere, a newer ticket", message.Ticket{Task: contended.ID, Attempt: 2}, store.Ahead},
		{"an older attempt", tickets[4], store.Stale},
		{"the new attempt", message.Ticket{Task: retried.ID, Attempt: 2}, store.Claimed},
		{"an attempt to come", message.Ticket{Task: tickets[0].Task, Attempt: 3}, store.Ahead},
		{"done", tickets[5], store.Stale},
		{"dead", tickets[6], store.Stale},
		{"cancelled", tickets[7], store.Stale},
		{"no such task", message.Ticket{Task: 1 << 60, Attempt: 1}, store.Ahead},
		{"parked", parked, store.Stale},
	} {
		claim := s.claim(mine, c.ticket)[0]
		if claim.Verdict != c.want {
			s.Errorf("%s: %s, want %s", c.name, verdictName(claim.Verdict), verdictName(c.want))
		}
		if claim.Now.IsZero() {
			s.Errorf("%s: the store's clock is missing", c.name)
		}
		switch {
		case c.want == store.Contended && claim.Owner != theirs:
			s.Errorf("%s: the owner is %s, want %s", c.name, claim.Owner, theirs)
		case c.want == store.Unhandled && (claim.Task.ID != c.ticket.Task || claim.Task.Type != other || claim.Task.Lane != "foreign"):
			s.Errorf("%s: %+v", c.name, claim.Task)
		}
	}
}

func testClaimTask(s *suite) {
	task := newTask()
	task.Payload, task.Unique = []byte(`{"n": 1}`), "key"
	ticket := s.insert(task)[0]
	run := s.openRun()
	claim := s.claim(run, ticket)[0]
	got := claim.Task
	if got.State != holdfast.Running || got.Run != run || got.Attempt != 1 || string(got.Payload) != `{"n": 1}` || got.Unique != "key" ||
		got.Type != kind || got.Lane != defaultLane || got.MaxAttempts != 3 || got.StartedAt.IsZero() || got.StartedAt.Before(got.CreatedAt) {
		s.Errorf("claimed %+v", got)
	}
	if stored := s.task(ticket.Task); !equalTasks(stored, got) {
		s.Errorf("claimed %+v, stored is %+v", got, stored)
	}
	if claim.Now.Before(got.StartedAt) {
		s.Errorf("now is %s, before the start at %s", claim.Now, got.StartedAt)
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
	type comparable struct {
		id                                                 holdfast.TaskID
		kind, lane, unique, err, parked, idempotency       string
		state                                              holdfast.State
		attempt, maxAttempts, failures, crashes, deferrals int
		run                                                holdfast.RunID
		buffered                                           bool
		nextRunAt, createdAt, startedAt, finishedAt        time.Time
	}
	key := func(t holdfast.Task) comparable {
		return comparable{t.ID, t.Type, t.Lane, t.Unique, t.LastError, t.Parked, t.Key, t.State, t.Attempt, t.MaxAttempts, t.Failures, t.Crashes, t.Deferrals,
			t.Run, t.Buffered, t.NextRunAt, t.CreatedAt, t.StartedAt, t.FinishedAt}
	}
	return same && key(a) == key(b)
}

// The answer to a claim can be lost with the connection. Then the run owns tasks that
// nobody else will ever run while it lives.
func testClaimAgain(s *suite) {
	run := s.openRun()
	tickets := s.inserts(3)
	first := s.claimed(run, tickets[:2]...)
	again := s.claimed(run, tickets...)
	for i := range first {
		if !equalTasks(first[i], again[i]) {
			s.Errorf("the second claim says %+v, the first %+v", again[i], first[i])
		}
	}
	s.move(first[0], holdfast.Returned(nil))
	if claim := s.claim(run, tickets[0])[0]; claim.Verdict != store.Stale {
		s.Errorf("a finished task is %s", verdictName(claim.Verdict))
	}
}

func testClaimEqualTickets(s *suite) {
	ticket := s.inserts(1)[0]
	claims := s.claim(s.openRun(), ticket, ticket, message.Ticket{Task: ticket.Task, Attempt: 2})
	for i, want := range []store.Verdict{store.Claimed, store.Stale, store.Ahead} {
		if claims[i].Verdict != want {
			s.Errorf("ticket %d is %s, want %s", i, verdictName(claims[i].Verdict), verdictName(want))
		}
	}
}

func testClaimFenced(s *suite) {
	tickets := s.inserts(2)
	closed := s.openRun()
	s.must(s.CloseRun(s.ctx, closed, false))
	dead := s.deadRun(func(run holdfast.RunID) { s.claimed(run, tickets[0]) })
	for name, run := range map[string]holdfast.RunID{"closed": closed, "dead": dead, "unknown": 1 << 60} {
		if _, err := s.Claim(s.ctx, run, kinds, tickets, store.IntoExecutors); !errors.Is(err, store.ErrFenced) {
			s.Errorf("a claim for a run that is %s: %v, want ErrFenced", name, err)
		}
	}
	if got := s.task(tickets[1].Task); got.State != holdfast.Ready {
		s.Errorf("a run that is over took %+v", got)
	}
}

func testClaimConcurrently(s *suite) {
	const workers, size = 8, 200
	tickets := s.inserts(size)
	var mu sync.Mutex
	owners := map[holdfast.TaskID][]holdfast.RunID{}
	var group sync.WaitGroup
	for range workers {
		run := s.openRun()
		group.Go(func() {
			mixed := make([]message.Ticket, size)
			for i, j := range rand.Perm(size) {
				mixed[i] = tickets[j]
			}
			for len(mixed) > 0 {
				page := mixed[:min(37, len(mixed))]
				mixed = mixed[len(page):]
				claims, err := s.Claim(s.ctx, run, kinds, page, store.IntoExecutors)
				if err != nil {
					s.Error(err)
					return
				}
				for i, claim := range claims {
					switch claim.Verdict {
					case store.Claimed:
						mu.Lock()
						owners[page[i].Task] = append(owners[page[i].Task], run)
						mu.Unlock()
					case store.Contended:
					default:
						s.Errorf("task %s is %s", page[i].Task, verdictName(claim.Verdict))
					}
				}
			}
		})
	}
	group.Wait()
	for _, ticket := range tickets {
		if len(owners[ticket.Task]) != 1 {
			s.Errorf("task %s was claimed by %v", ticket.Task, owners[ticket.Task])
		}
	}
}

// A ticket may arrive at the very moment its task becomes ready. Calling it stale then would
// drop the only hint there is.
func testClaimComingBack(s *suite) {
	here, there := s.openRun(), s.openRun()
	for range 40 {
		task := s.claimed(here, s.inserts(1)...)[0]
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
			s.Fatalf("the ticket is %s", verdictName(v))
		}
	}
}

func testPark(s *suite) {
	foreign := newTask()
	foreign.Type = other
	tickets := s.insert(foreign, newTask(), foreign)
	run := s.openRun()
	held := s.claimed(run, tickets[1])[0]
	older := message.Ticket{Task: tickets[2].Task, Attempt: 7}
	s.must(s.Park(s.ctx, []message.Ticket{tickets[0], tickets[1], older}, time.Hour, "nobody handles suite.other"))
	got := s.task(tickets[0].Task)
	if got.State != holdfast.Ready || got.Attempt != 1 || got.Parked != "nobody handles suite.other" || got.NextRunAt.Sub(got.CreatedAt) < time.Hour || s.position(tickets[0]).Ticketed {
		s.Errorf("parked %+v", got)
	}
	if !equalTasks(s.task(held.ID), held) {
		s.Errorf("parking changed a running task: %+v", s.task(held.ID))
	}
	if got := s.task(tickets[2].Task); got.Parked != "" {
		s.Errorf("parking changed a task at another attempt: %+v", got)
	}

	// Parked once more it stays as it is, for its time to come is its token.
	s.must(s.Park(s.ctx, tickets[:1], time.Microsecond, "later"))
	if again := s.task(tickets[0].Task); !equalTasks(again, got) {
		s.Errorf("parking a task that waits changed %+v to %+v", got, again)
	}

	s.must(s.Park(s.ctx, tickets[2:], time.Microsecond, "for a moment"))
	s.eventually("due again", func() bool {
		due, _ := s.dispatch(10)
		return len(due) == 1 && due[0].Ticket == tickets[2]
	})
	claims, err := s.Claim(s.ctx, run, store.AnyOf(other), tickets[2:], store.IntoExecutors)
	s.must(err)
	if claims[0].Verdict != store.Claimed || claims[0].Task.Parked != "" {
		s.Errorf("claimed %+v", claims[0])
	}
}

// The waits of a parked task grow with the number of times it was parked, and begin again with its next attempt.
func testParkWaitsGrow(s *suite) {
	const first = 200 * time.Millisecond
	ticket := s.inserts(1)[0]
	park := func() (wait time.Duration) {
		now := s.now()
		s.must(s.Park(s.ctx, []message.Ticket{ticket}, first, "no handler"))
		task := s.task(ticket.Task)
		s.eventually("due again", func() bool { return !s.now().Before(task.NextRunAt) })
		return task.NextRunAt.Sub(now)
	}
	for n, want := range []time.Duration{first, 2 * first, 4 * first} {
		if wait := park(); wait < want || n == 0 && wait > 10*first {
			s.Errorf("parked for time %d, it waits for %s, want %s", n+1, wait, want)
		}
	}
	s.move(s.claimed(s.openRun(), ticket)[0], holdfast.Interrupted(nil))
	ticket.Attempt++
	if wait := park(); wait < first || wait >= 8*first {
		s.Errorf("parked for the first time at a new attempt, it waits for %s, want %s", wait, first)
	}
}

// A task that has had more crashes than the caller allows is left where it is, and can be taken by whoever
// allows them.
func testClaimSuspects(s *suite) {
	tickets := s.inserts(3)
	for i, crashes := range []int{0, 1, 2} {
		for range crashes {
			doomed := s.openRun()
			move := s.settle(s.claimed(doomed, tickets[i])[0], holdfast.Crashed(doomed))
			move.Wait = 0
			s.apply(move)
			tickets[i].Attempt++
		}
	}
	run := s.openRun()
	for _, c := range []struct {
		allowed int
		want    []store.Verdict
	}{
		{1, []store.Verdict{store.Claimed, store.Claimed, store.Suspect}},
		{0, []store.Verdict{store.Claimed, store.Claimed, store.Suspect}}, // the run has the second one already
		{store.AnyCrashes, []store.Verdict{store.Claimed, store.Claimed, store.Claimed}},
	} {
		claims, err := s.Claim(s.ctx, run, []store.Wanted{{Type: kind, MostCrashes: c.allowed}}, tickets, store.IntoExecutors)
		s.must(err)
		for i, claim := range claims {
			if claim.Verdict != c.want[i] || claim.Task.ID != tickets[i].Task {
				s.Errorf("%d crashes allowed, %d had: %s of task %s, want %s", c.allowed, i, verdictName(claim.Verdict), claim.Task.ID, verdictName(c.want[i]))
			}
		}
	}
	if claims, err := s.Claim(s.ctx, run, store.AnyOf(other), tickets[:1], store.IntoExecutors); err != nil || claims[0].Verdict != store.Claimed {
		s.Errorf("what is held already: %+v, %v", claims, err)
	}
}
