package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var dispatchTests = []test{
	{"passes due tasks to the publish function, longest due first", testDispatchOrder},
	{"reports which tasks are requeued", testDispatchRequeued},
	{"returns the time until the next task is due", testDispatchNext},
	{"passes a task to the publish function again until it is published", testDispatchUnpublished},
	{"leaves a task claimable after its ticket is refused", testDispatchRefusedArrives},
	{"reaches tasks behind refused ones", testDispatchReaches},
	{"shares the tasks among callers", testDispatchExclusive},
	{"selects tasks by queue", testDispatchQueues},
	{"changes nothing if publish fails", testDispatchFailure},
}

// testDispatchQueues selects tasks by queue. Tasks of other queues do not change, and do not affect Dispatched.Next.
func testDispatchQueues(s *suite) {
	first, second, third := s.insertDueIn("a", 2), s.insertDueIn("b", 2), s.insertDueIn("c", 2)
	for _, test := range []struct {
		queues store.Queues
		want   []message.Ticket
	}{
		{store.Queues{Except: []string{"a", "b", "none"}}, third},
		{store.Queues{Except: []string{"a", "b"}}, nil},
		{store.Queues{Only: "b"}, second},
		{store.Queues{Only: "b", Except: []string{"a"}}, nil},
		{store.Queues{Only: "none"}, nil},
		{store.Queues{}, first},
	} {
		var given []message.Ticket
		result, err := s.DispatchDue(s.ctx, test.queues, 10, func(_ context.Context, due []store.Due) []bool {
			for _, d := range due {
				given = append(given, d.Ticket)
			}
			return repeated(true, len(due))
		})
		s.must(err)
		if !slices.Equal(given, test.want) || result.Given != len(test.want) || result.Next != time.Hour {
			s.Errorf("%+v: published %v, want %v; the result is %+v", test.queues, given, test.want, result)
		}
	}
}

// insertDue stores n tasks without tickets, which become due one after the other, and returns their next tickets.
func (s *suite) insertDue(n int) []message.Ticket {
	s.Helper()
	return s.insertDueIn(defaultQueue, n)
}

func (s *suite) insertDueIn(queue string, n int) (tickets []message.Ticket) {
	s.Helper()
	task := newTask()
	task.Queue = queue
	for range n {
		tickets = append(tickets, s.insert(task)...)
	}
	if changed, err := s.Unticket(s.ctx, tickets); err != nil || changed != n {
		s.Fatalf("Unticket changed %d of %d tasks, %v", changed, n, err)
	}
	return tickets
}

func testDispatchOrder(s *suite) {
	s.insertN(2) // these tasks have tickets
	later := newTask()
	later.Delay = time.Hour
	s.insert(later)
	tickets := s.insertDue(5)
	first, result := s.dispatch(3)
	if result.Given != 3 || result.Marked != 3 || result.Next != 0 {
		s.Errorf("the first call returned %+v", result)
	}
	second, result := s.dispatch(3)
	if result.Given != 2 || result.Marked != 2 {
		s.Errorf("the second call returned %+v", result)
	}
	var got []message.Ticket
	for _, due := range append(first, second...) {
		got = append(got, due.Ticket)
		if due.Queue != defaultQueue || due.Late < 0 {
			s.Errorf("the due task is %+v", due)
		}
		if !s.position(due.Ticket).Ticketed {
			s.Errorf("task %s does not count as ticketed", due.Task)
		}
	}
	if !slices.Equal(got, tickets) {
		s.Errorf("published %v, want %v", got, tickets)
	}
	if due, _ := s.dispatch(3); len(due) > 0 {
		s.Errorf("published again: %v", due)
	}
	s.mustClaim(s.registerWorker(), tickets...)
}

func testDispatchRequeued(s *suite) {
	want := map[holdfast.TaskID]bool{s.insertDue(1)[0].Task: false}
	worker := s.registerWorker()
	for requeued, causes := range map[bool][]holdfast.Cause{
		true:  {holdfast.Crashed(worker), holdfast.Interrupted(nil)},
		false: {holdfast.Returned(errors.New("failed")), holdfast.Returned(holdfast.Defer(0, nil))},
	} {
		for _, cause := range causes {
			task := s.mustClaim(worker, s.insertN(1)...)[0]
			s.move(task, cause)
			want[task.ID] = requeued
		}
	}
	due, _ := s.dispatch(10)
	if len(due) != len(want) {
		s.Fatalf("%d tasks were due, want %d", len(due), len(want))
	}
	for _, d := range due {
		if d.Requeued != want[d.Task] {
			s.Errorf("task %s, attempt %d: Requeued is %t", d.Task, d.Attempt, d.Requeued)
		}
	}

	// Requeued depends only on the last attempt.
	for _, d := range due {
		if d.Requeued {
			s.move(s.mustClaim(worker, d.Ticket)[0], holdfast.Returned(errors.New("failed")))
		}
	}
	for _, d := range first(s.dispatch(10)) {
		if d.Requeued {
			s.Errorf("task %s failed, but Requeued is true", d.Task)
		}
	}
}

func first(due []store.Due, _ store.Dispatched) []store.Due { return due }

func testDispatchNext(s *suite) {
	if _, result := s.dispatch(10); result != (store.Dispatched{Next: time.Hour}) {
		s.Errorf("without tasks: the result is %+v", result)
	}
	late, early := newTask(), newTask()
	late.Delay, early.Delay = 10*time.Hour, time.Minute
	s.insert(late)
	if _, result := s.dispatch(10); result.Next != time.Hour {
		s.Errorf("next task in ten hours: the result is %+v", result)
	}
	s.insert(early)
	if _, result := s.dispatch(10); result.Next > time.Minute || result.Next < 30*time.Second {
		s.Errorf("next task in a minute: the result is %+v", result)
	}
}

// atOnce is less than the time for which a store defers tasks and outbox entries that were not published.
const atOnce = 2 * time.Second

func testDispatchUnpublished(s *suite) {
	tickets := s.insertDue(3)
	began := s.now()
	result, err := s.DispatchDue(s.ctx, store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		return []bool{true, false, true}
	})
	s.must(err)
	if result.Given != 3 || result.Marked != 2 || result.Next > time.Second {
		s.Errorf("the result is %+v", result)
	}
	if s.position(tickets[1]).Ticketed {
		s.Error("a task that was not published counts as ticketed")
	}
	refused := s.task(tickets[1].Task)
	if due, result := s.dispatch(10); s.now().Sub(began) > atOnce {
		s.Log("the calls took too long for a result")
		return
	} else if len(due) > 0 || result.Next > 10*time.Second {
		s.Errorf("published %v again at once; Next is %s", due, result.Next)
	}
	if queues, err := s.Queues(s.ctx); err != nil || queues[0].Due != 3 {
		s.Errorf("the queues are %+v, %v; want three due tasks", queues, err)
	}
	s.eventually("the task is passed to the publish function again", func() bool {
		due, _ := s.dispatch(10)
		if len(due) > 0 && (len(due) > 1 || due[0].Ticket != tickets[1] || due[0].Late < time.Second) {
			s.Errorf("published %+v, want %v, late by at least a second", due, tickets[1])
		}
		return len(due) > 0
	})
	if after := s.task(refused.ID); !equalTasks(after, refused) {
		s.Errorf("the task changed from %+v to %+v", refused, after)
	}
}

// dispatchRefused calls DispatchDue with a publish function that refuses all tasks, and returns these tasks.
func (s *suite) dispatchRefused(limit int) (given []store.Due) {
	s.Helper()
	_, err := s.DispatchDue(s.ctx, store.Queues{}, limit, func(_ context.Context, due []store.Due) []bool {
		given = due
		return repeated(false, len(due))
	})
	s.must(err)
	return given
}

// testDispatchRefusedArrives claims and parks tasks whose tickets were refused. The broker may have stored such a
// ticket although its confirm was lost. The worker that receives the ticket must then find the task ready.
func testDispatchRefusedArrives(s *suite) {
	tickets := s.insertDue(2)
	if given := s.dispatchRefused(10); len(given) != 2 {
		s.Fatalf("DispatchDue passed %v to the publish function, want two tasks", given)
	}
	worker := s.registerWorker()
	claims, err := s.Claim(s.ctx, worker, store.AnyOf(other), tickets[:1], store.IntoExecutors)
	s.must(err)
	if v := claims[0].Verdict; v != store.Unhandled {
		s.Errorf("the verdict for a worker without the type is %s, want unhandled", verdictName(v))
	}
	s.mustClaim(worker, tickets[0])
	s.must(s.Park(s.ctx, tickets[1:], time.Hour, "no handler"))
	if task := s.task(tickets[1].Task); task.Parked != "no handler" {
		s.Errorf("the task was not parked: %+v", task)
	}
	if claim := s.claim(worker, tickets[1])[0]; claim.Verdict != store.Stale {
		s.Errorf("the verdict for a parked task is %s, want stale", verdictName(claim.Verdict))
	}
}

// testDispatchReaches publishes tasks of one queue while the broker refuses the tickets of another queue, whose tasks
// have always been due for longer.
func testDispatchReaches(s *suite) {
	s.insertDueIn("blocked", 5)
	want := s.insertDue(2)
	var got []message.Ticket
	for range 4 { // seven tasks, two per call
		result, err := s.DispatchDue(s.ctx, store.Queues{}, 2, func(_ context.Context, due []store.Due) []bool {
			outcomes := make([]bool, len(due))
			for i, d := range due {
				if outcomes[i] = d.Queue != "blocked"; outcomes[i] {
					got = append(got, d.Ticket)
				}
			}
			return outcomes
		})
		s.must(err)
		// If the broker accepted a ticket and limit was reached, the caller calls again at once.
		if want := result.Given == 2 && result.Marked > 0; want != (result.Next == 0) {
			s.Errorf("the result is %+v", result)
		}
	}
	if !slices.Equal(got, want) {
		s.Errorf("published %v, want %v", got, want)
	}
}

func testDispatchExclusive(s *suite) {
	tickets := s.insertDue(4)
	_, err := s.DispatchDue(s.ctx, store.Queues{}, 2, func(_ context.Context, mine []store.Due) []bool {
		theirs, result := s.dispatch(10) // this call does not wait for the first one
		if len(mine) != 2 || len(theirs) != 2 || mine[0].Ticket == theirs[0].Ticket {
			s.Errorf("one call got %v, the other %v", mine, theirs)
		}
		if result.Next > time.Second {
			s.Errorf("another caller has due tasks, but Next is %s, want at most a second", result.Next)
		}
		return repeated(true, len(mine))
	})
	s.must(err)
	for _, ticket := range tickets {
		if !s.position(ticket).Ticketed {
			s.Errorf("task %s was not published", ticket.Task)
		}
	}

	s.insertDue(100)
	var mu sync.Mutex
	times := map[holdfast.TaskID]int{}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for given := 1; given > 0; {
				result, err := s.DispatchDue(s.ctx, store.Queues{}, 7, func(_ context.Context, due []store.Due) []bool {
					mu.Lock()
					defer mu.Unlock()
					for _, d := range due {
						times[d.Task]++
					}
					return repeated(true, len(due))
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
		s.Errorf("%d of 100 tasks were published", len(times))
	}
	for id, n := range times {
		if n != 1 {
			s.Errorf("task %s was published %d times", id, n)
		}
	}
}

func testDispatchFailure(s *suite) {
	tickets := s.insertDue(2)
	for name, publish := range map[string]func(context.Context, []store.Due) []bool{
		"panics":                  func(context.Context, []store.Due) []bool { panic("publish") },
		"returns too few results": func(context.Context, []store.Due) []bool { return []bool{true} },
	} {
		func() {
			defer func() { _ = recover() }()
			if _, err := s.DispatchDue(s.ctx, store.Queues{}, 10, publish); err == nil {
				s.Errorf("publish %s, but DispatchDue returned no error", name)
			}
		}()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	_, err := s.DispatchDue(ctx, store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		cancel()
		return repeated(true, len(due))
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("context cancelled during publish: %v, want context.Canceled", err)
	}
	// A server keeps the rows locked until it notices that the caller has disconnected.
	given := 0
	s.eventually("the tasks are due again", func() bool {
		due, _ := s.dispatch(10)
		given += len(due)
		return given >= len(tickets)
	})
	if given != len(tickets) {
		s.Errorf("%d tasks were published, want %d", given, len(tickets))
	}
}
