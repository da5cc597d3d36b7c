package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

// testBuffered claims tasks into a buffer and fences their worker. Such a task is Buffered until its next claim, and
// counts no crash.
func testBuffered(s *suite) {
	worker := s.registerWorker()
	tickets := s.insertN(3)
	buffer := func(tickets ...message.Ticket) {
		s.Helper()
		claims, err := s.Claim(s.ctx, worker, kinds, tickets, store.IntoBuffer)
		s.must(err)
		for i, claim := range claims {
			if claim.Verdict != store.Claimed || !equalTasks(*claim.Task, s.task(tickets[i].Task)) || !claim.Task.Buffered {
				s.Errorf("the claim into the buffer is %+v", claim)
			}
		}
	}
	check := func(want []bool) {
		s.Helper()
		held, err := s.Held(s.ctx, worker, 0, math.MaxInt64)
		s.must(err)
		byID, err := s.TasksByID(s.ctx, ids(tickets))
		s.must(err)
		if len(held) != len(want) || len(byID) != len(want) {
			s.Fatalf("Held returned %d tasks and TasksByID %d, want %d", len(held), len(byID), len(want))
		}
		for _, task := range append(held, byID...) {
			if i := slices.Index(ids(tickets), task.ID); task.Buffered != want[i] {
				s.Errorf("task %s, number %d: Buffered is %t, want %t", task.ID, i, task.Buffered, want[i])
			}
		}
	}
	buffer(tickets[0])
	s.mustClaim(worker, tickets[1])
	buffer(tickets[2])
	check([]bool{true, false, true})
	s.fence(worker)
	abandoned, err := s.Abandoned(s.ctx, worker, 10)
	s.must(err)
	for _, task := range abandoned {
		if task.Buffered != (task.ID != tickets[1].Task) {
			s.Errorf("Abandoned returned %+v", task)
		}
		move := s.settle(task, holdfast.Crashed(worker))
		move.Wait = 0
		s.apply(move)
	}
	for i, crashes := range []int{0, 1, 0} {
		tickets[i].Attempt++
		if task := s.task(tickets[i].Task); task.Crashes != crashes || task.Attempt != 2 || task.State != holdfast.Ready || task.Buffered {
			s.Errorf("number %d after the end of its worker is %+v, want %d crashes", i, task, crashes)
		}
	}
	due, _ := s.dispatch(10)
	for _, d := range due {
		if !d.Requeued {
			s.Errorf("task %s is not published to the requeue queue", d.Task)
		}
	}
	if len(due) != len(tickets) {
		s.Errorf("%d tasks were published, want %d", len(due), len(tickets))
	}
	worker = s.registerWorker()
	s.mustClaim(worker, tickets...)
	check([]bool{false, false, false})
	s.apply(s.settle(s.task(tickets[0].Task), holdfast.Returned(nil)))
	if task := s.task(tickets[0].Task); task.State != holdfast.Done || task.Buffered {
		s.Errorf("the done task is %+v", task)
	}
}

func testHeld(s *suite) {
	mine, theirs := s.registerWorker(), s.registerWorker()
	held := func(worker holdfast.WorkerID) []holdfast.TaskID {
		s.Helper()
		tasks, err := s.Held(s.ctx, worker, 0, math.MaxInt64)
		s.must(err)
		for _, task := range tasks {
			want := s.task(task.ID)
			want.Payload = nil
			if len(task.Payload) > 0 || task.State != holdfast.Running || task.Worker != worker || task.Attempt != want.Attempt || task.Type != want.Type || !task.CreatedAt.Equal(want.CreatedAt) {
				s.Errorf("Held returned %+v, want %+v", task, want)
			}
		}
		list := idsOf(tasks)
		slices.Sort(list)
		return list
	}
	if got := held(mine); len(got) > 0 {
		s.Errorf("Held of a worker without tasks returned %v", got)
	}
	tickets := s.insertN(2500)
	s.mustClaim(mine, tickets[:2400]...)
	s.mustClaim(theirs, tickets[2400:2450]...)
	if got := held(mine); !slices.Equal(got, ids(tickets[:2400])) {
		s.Errorf("Held returned %d tasks, want 2400", len(got))
	}
	if got := held(theirs); !slices.Equal(got, ids(tickets[2400:2450])) {
		s.Errorf("Held of the other worker returned %v", got)
	}
	s.move(s.task(tickets[0].Task), holdfast.Returned(nil))
	s.move(s.task(tickets[1].Task), holdfast.Interrupted(nil))
	if got := held(mine); !slices.Equal(got, ids(tickets[2:2400])) {
		s.Errorf("after two tasks were settled, Held returned %d tasks, want 2398", len(got))
	}
	part, err := s.Held(s.ctx, mine, tickets[9].Task, tickets[19].Task)
	s.must(err)
	some := idsOf(part)
	slices.Sort(some)
	if !slices.Equal(some, ids(tickets[10:20])) {
		s.Errorf("Held of a range of ten ids returned %v", some)
	}
	// The store accepts a transition of a task that Held returned, but only once.
	tasks, err := s.Held(s.ctx, theirs, 0, math.MaxInt64)
	s.must(err)
	moves := make([]holdfast.Transition, len(tasks))
	for i, task := range tasks {
		moves[i] = s.settle(task, holdfast.Interrupted(nil))
	}
	for _, want := range []bool{true, false} {
		if got := s.apply(moves...); slices.Contains(got, !want) {
			s.Errorf("hand-back: accepted %v, want all %t", got, want)
		}
	}
	if got := held(theirs); len(got) > 0 {
		s.Errorf("after the hand-back, Held returned %v", got)
	}
	if got, err := s.Held(s.ctx, 1<<60, 0, math.MaxInt64); err != nil || len(got) > 0 {
		s.Errorf("Held of a worker that does not exist returned %v, %v", got, err)
	}
}

// testHistory checks that the history does not change while the store loses no commit.
func testHistory(s *suite) {
	worker := s.registerWorker()
	var names []string
	for range 3 {
		s.mustClaim(worker, s.insertN(1)...)
		result, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour})
		s.must(err)
		names = append(names, result.History)
	}
	if names = slices.Compact(names); len(names) > 1 {
		s.Errorf("the history changed without a loss: %q", names)
	}
}
