package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var dispatchTests = []test{
	{"gives what is due, oldest first", testDispatchOrder},
	{"tells who had a turn already", testDispatchAgain},
	{"says how long until the next", testDispatchNext},
	{"gives a task again until it was published", testDispatchUnpublished},
	{"accepts a ticket that was refused and arrives", testDispatchRefusedArrives},
	{"reaches tasks behind those that nobody takes", testDispatchReaches},
	{"shares the work among callers", testDispatchExclusive},
	{"gives tasks of the chosen lanes", testDispatchLanes},
	{"changes nothing if publish fails", testDispatchFailure},
}

// What is left out stays as it is, and does not count as the next to become due.
func testDispatchLanes(s *suite) {
	first, second, third := s.dueIn("a", 2), s.dueIn("b", 2), s.dueIn("c", 2)
	for _, test := range []struct {
		lanes store.Lanes
		want  []message.Ticket
	}{
		{store.Lanes{Except: []string{"a", "b", "none"}}, third},
		{store.Lanes{Except: []string{"a", "b"}}, nil},
		{store.Lanes{Only: "b"}, second},
		{store.Lanes{Only: "b", Except: []string{"a"}}, nil},
		{store.Lanes{Only: "none"}, nil},
		{store.Lanes{}, first},
	} {
		var given []message.Ticket
		result, err := s.DispatchDue(s.ctx, test.lanes, 10, func(_ context.Context, due []store.Due) []bool {
			for _, d := range due {
				given = append(given, d.Ticket)
			}
			return all(true, len(due))
		})
		s.must(err)
		if !slices.Equal(given, test.want) || result.Given != len(test.want) || result.Next != time.Hour {
			s.Errorf("%+v: given %v, want %v: %+v", test.lanes, given, test.want, result)
		}
	}
}

// due makes tasks due one after the other and returns their tickets.
func (s *suite) due(n int) []message.Ticket {
	s.Helper()
	return s.dueIn(defaultLane, n)
}

func (s *suite) dueIn(lane string, n int) (tickets []message.Ticket) {
	s.Helper()
	task := newTask()
	task.Lane = lane
	for range n {
		tickets = append(tickets, s.insert(task)...)
	}
	if changed, err := s.Unticket(s.ctx, tickets); err != nil || changed != n {
		s.Fatalf("unticketed %d of %d, %v", changed, n, err)
	}
	return tickets
}

func testDispatchOrder(s *suite) {
	s.inserts(2) // have their tickets
	later := newTask()
	later.Delay = time.Hour
	s.insert(later)
	tickets := s.due(5)
	first, result := s.dispatch(3)
	if result.Given != 3 || result.Marked != 3 || result.Next != 0 {
		s.Errorf("the first call says %+v", result)
	}
	second, result := s.dispatch(3)
	if result.Given != 2 || result.Marked != 2 {
		s.Errorf("the second call says %+v", result)
	}
	var got []message.Ticket
	for _, due := range append(first, second...) {
		got = append(got, due.Ticket)
		if due.Lane != defaultLane || due.Late < 0 {
			s.Errorf("given %+v", due)
		}
		if !s.position(due.Ticket).Ticketed {
			s.Errorf("task %s is not marked", due.Task)
		}
	}
	if !slices.Equal(got, tickets) {
		s.Errorf("given %v, want %v", got, tickets)
	}
	if due, _ := s.dispatch(3); len(due) > 0 {
		s.Errorf("given again: %v", due)
	}
	s.claimed(s.openRun(), tickets...)
}

func testDispatchAgain(s *suite) {
	want := map[holdfast.TaskID]bool{s.due(1)[0].Task: false}
	run := s.openRun()
	for again, causes := range map[bool][]holdfast.Cause{
		true:  {holdfast.Crashed(run), holdfast.Interrupted(nil)},
		false: {holdfast.Returned(errors.New("failed")), holdfast.Returned(holdfast.Defer(0, nil))},
	} {
		for _, cause := range causes {
			task := s.claimed(run, s.inserts(1)...)[0]
			s.move(task, cause)
			want[task.ID] = again
		}
	}
	due, _ := s.dispatch(10)
	if len(due) != len(want) {
		s.Fatalf("%d tasks are due, want %d", len(due), len(want))
	}
	for _, d := range due {
		if d.Again != want[d.Task] {
			s.Errorf("task %s, attempt %d: again is %t", d.Task, d.Attempt, d.Again)
		}
	}

	// It is told of the last attempt only.
	for _, d := range due {
		if d.Again {
			s.move(s.claimed(run, d.Ticket)[0], holdfast.Returned(errors.New("failed")))
		}
	}
	for _, d := range first(s.dispatch(10)) {
		if d.Again {
			s.Errorf("task %s failed, and again is true", d.Task)
		}
	}
}

func first(due []store.Due, _ store.Dispatched) []store.Due { return due }

func testDispatchNext(s *suite) {
	if _, result := s.dispatch(10); result != (store.Dispatched{Next: time.Hour}) {
		s.Errorf("with nothing to do: %+v", result)
	}
	far, near := newTask(), newTask()
	far.Delay, near.Delay = 10*time.Hour, time.Minute
	s.insert(far)
	if _, result := s.dispatch(10); result.Next != time.Hour {
		s.Errorf("in ten hours: %+v", result)
	}
	s.insert(near)
	if _, result := s.dispatch(10); result.Next > time.Minute || result.Next < 30*time.Second {
		s.Errorf("in a minute: %+v", result)
	}
}

func testDispatchUnpublished(s *suite) {
	tickets := s.due(3)
	result, err := s.DispatchDue(s.ctx, store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		return []bool{true, false, true}
	})
	s.must(err)
	if result.Given != 3 || result.Marked != 2 || result.Next > time.Second {
		s.Errorf("got %+v", result)
	}
	if s.position(tickets[1]).Ticketed {
		s.Error("a task that was not published counts as ticketed")
	}
	refused := s.task(tickets[1].Task)
	if due, result := s.dispatch(10); len(due) > 0 || result.Next > 10*time.Second {
		s.Errorf("given %v again at once, and the next in %s", due, result.Next)
	}
	if lanes, err := s.Lanes(s.ctx); err != nil || lanes[0].Due != 3 {
		s.Errorf("the lanes are %+v, %v; three tasks could run now", lanes, err)
	}
	s.eventually("given again", func() bool {
		due, _ := s.dispatch(10)
		if len(due) > 0 && (len(due) > 1 || due[0].Ticket != tickets[1] || due[0].Late < time.Second) {
			s.Errorf("given %+v, want %v, which is late", due, tickets[1])
		}
		return len(due) > 0
	})
	if again := s.task(refused.ID); !equalTasks(again, refused) {
		s.Errorf("%+v became %+v", refused, again)
	}
}

// refuse has everything that is due refused by the queue.
func (s *suite) refuse(limit int) (given []store.Due) {
	s.Helper()
	_, err := s.DispatchDue(s.ctx, store.Lanes{}, limit, func(_ context.Context, due []store.Due) []bool {
		given = due
		return all(false, len(due))
	})
	s.must(err)
	return given
}

// A broker may store a ticket and its answer be lost. Whoever receives it must find the task ready.
func testDispatchRefusedArrives(s *suite) {
	tickets := s.due(2)
	if given := s.refuse(10); len(given) != 2 {
		s.Fatalf("given %v", given)
	}
	run := s.openRun()
	claims, err := s.Claim(s.ctx, run, store.AnyOf(other), tickets[:1], store.IntoExecutors)
	s.must(err)
	if v := claims[0].Verdict; v != store.Unhandled {
		s.Errorf("for a run that does not know its type it is %s", verdictName(v))
	}
	s.claimed(run, tickets[0])
	s.must(s.Park(s.ctx, tickets[1:], time.Hour, "no handler"))
	if task := s.task(tickets[1].Task); task.Parked != "no handler" {
		s.Errorf("it was not parked: %+v", task)
	}
	if claim := s.claim(run, tickets[1])[0]; claim.Verdict != store.Stale {
		s.Errorf("parked and %s", verdictName(claim.Verdict))
	}
}

// The tasks of a lane whose queue takes nothing are always the oldest.
func testDispatchReaches(s *suite) {
	s.dueIn("blocked", 5)
	want := s.due(2)
	var got []message.Ticket
	for range 4 { // seven tasks, two at a time
		result, err := s.DispatchDue(s.ctx, store.Lanes{}, 2, func(_ context.Context, due []store.Due) []bool {
			outcomes := make([]bool, len(due))
			for i, d := range due {
				if outcomes[i] = d.Lane != "blocked"; outcomes[i] {
					got = append(got, d.Ticket)
				}
			}
			return outcomes
		})
		s.must(err)
		// The rest can be tried at once if the broker takes something.
		if want := result.Given == 2 && result.Marked > 0; want != (result.Next == 0) {
			s.Errorf("got %+v", result)
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("published %v, want %v", got, want)
	}
}

func testDispatchExclusive(s *suite) {
	tickets := s.due(4)
	_, err := s.DispatchDue(s.ctx, store.Lanes{}, 2, func(_ context.Context, mine []store.Due) []bool {
		theirs, result := s.dispatch(10) // does not wait
		if len(mine) != 2 || len(theirs) != 2 || mine[0].Ticket == theirs[0].Ticket {
			s.Errorf("one has %v, the other %v", mine, theirs)
		}
		if result.Next > time.Second {
			s.Errorf("tasks in somebody's hands are due, but the other is to come in %s", result.Next)
		}
		return all(true, len(mine))
	})
	s.must(err)
	for _, ticket := range tickets {
		if !s.position(ticket).Ticketed {
			s.Errorf("task %s was given to nobody", ticket.Task)
		}
	}

	s.due(100)
	var mu sync.Mutex
	times := map[holdfast.TaskID]int{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for given := 1; given > 0; {
				result, err := s.DispatchDue(s.ctx, store.Lanes{}, 7, func(_ context.Context, due []store.Due) []bool {
					mu.Lock()
					defer mu.Unlock()
					for _, d := range due {
						times[d.Task]++
					}
					return all(true, len(due))
				})
				if err != nil {
					s.Error(err)
					return
				}
				given = result.Given
			}
		})
	}
	group.Wait()
	if len(times) != 100 {
		s.Errorf("%d of 100 tasks were given", len(times))
	}
	for id, n := range times {
		if n != 1 {
			s.Errorf("task %s was given %d times", id, n)
		}
	}
}

func testDispatchFailure(s *suite) {
	tickets := s.due(2)
	for name, publish := range map[string]func(context.Context, []store.Due) []bool{
		"panics":              func(context.Context, []store.Due) []bool { panic("publish") },
		"answers for too few": func(context.Context, []store.Due) []bool { return []bool{true} },
	} {
		func() {
			defer func() { _ = recover() }()
			if _, err := s.DispatchDue(s.ctx, store.Lanes{}, 10, publish); err == nil {
				s.Errorf("publish %s, and there is no error", name)
			}
		}()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	_, err := s.DispatchDue(ctx, store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		cancel()
		return all(true, len(due))
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("cancelled meanwhile: %v", err)
	}
	// A server may need a moment to notice that the caller is gone, and has the rows locked until then.
	given := 0
	s.eventually("the tasks are due again", func() bool {
		due, _ := s.dispatch(10)
		given += len(due)
		return given >= len(tickets)
	})
	if given != len(tickets) {
		s.Errorf("%d tasks were given, want %d", given, len(tickets))
	}
}
