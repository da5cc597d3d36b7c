package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// What a claim took into a buffer is marked as such for whoever judges the end of its worker, and only until its next claim.
func testBuffered(s *suite) {
	run := s.openRun()
	tickets := s.inserts(3)
	buffer := func(tickets ...message.Ticket) {
		s.Helper()
		claims, err := s.Claim(s.ctx, run, kinds, tickets, store.IntoBuffer)
		s.must(err)
		for i, claim := range claims {
			if claim.Verdict != store.Claimed || !equalTasks(claim.Task, s.task(tickets[i].Task)) || !claim.Task.Buffered {
				s.Errorf("claimed into the buffer: %+v", claim)
			}
		}
	}
	check := func(want []bool) {
		s.Helper()
		held, err := s.Held(s.ctx, run, 0, math.MaxInt64)
		s.must(err)
		byID, err := s.TasksByID(s.ctx, ids(tickets))
		s.must(err)
		if len(held) != len(want) || len(byID) != len(want) {
			s.Fatalf("%d are held and %d exist, want %d", len(held), len(byID), len(want))
		}
		for _, task := range append(held, byID...) {
			if i := slices.Index(ids(tickets), task.ID); task.Buffered != want[i] {
				s.Errorf("task %s, number %d: buffered %t, want %t", task.ID, i, task.Buffered, want[i])
			}
		}
	}
	buffer(tickets[0])
	s.claimed(run, tickets[1])
	buffer(tickets[2])
	check([]bool{true, false, true})
	s.fence(run)
	abandoned, err := s.Abandoned(s.ctx, run, 10)
	s.must(err)
	for _, task := range abandoned {
		if task.Buffered != (task.ID != tickets[1].Task) {
			s.Errorf("abandoned %+v", task)
		}
		move := s.settle(task, holdfast.Crashed(run))
		move.Wait = 0
		s.apply(move)
	}
	for i, crashes := range []int{0, 1, 0} {
		tickets[i].Attempt++
		if task := s.task(tickets[i].Task); task.Crashes != crashes || task.Attempt != 2 || task.State != holdfast.Ready || task.Buffered {
			s.Errorf("number %d after the end of its worker: %+v, want %d crashes", i, task, crashes)
		}
	}
	due, _ := s.dispatch(10)
	for _, d := range due {
		if !d.Again {
			s.Errorf("task %s is published behind the backlog", d.Task)
		}
	}
	if len(due) != len(tickets) {
		s.Errorf("%d are published, want %d", len(due), len(tickets))
	}
	run = s.openRun()
	s.claimed(run, tickets...)
	check([]bool{false, false, false})
	again := s.settle(s.task(tickets[0].Task), holdfast.Returned(nil))
	s.apply(again)
	if task := s.task(tickets[0].Task); task.State != holdfast.Done || task.Buffered {
		s.Errorf("done: %+v", task)
	}
}

func testHeld(s *suite) {
	mine, theirs := s.openRun(), s.openRun()
	held := func(run holdfast.RunID) []holdfast.TaskID {
		s.Helper()
		tasks, err := s.Held(s.ctx, run, 0, math.MaxInt64)
		s.must(err)
		for _, task := range tasks {
			want := s.task(task.ID)
			want.Payload = nil
			if len(task.Payload) > 0 || task.State != holdfast.Running || task.Run != run || task.Attempt != want.Attempt || task.Type != want.Type || !task.CreatedAt.Equal(want.CreatedAt) {
				s.Errorf("held is %+v, want %+v", task, want)
			}
		}
		list := idsOf(tasks)
		slices.Sort(list)
		return list
	}
	if got := held(mine); len(got) > 0 {
		s.Errorf("a run that took nothing holds %v", got)
	}
	tickets := s.inserts(2500)
	s.claimed(mine, tickets[:2400]...)
	s.claimed(theirs, tickets[2400:2450]...)
	if got := held(mine); !slices.Equal(got, ids(tickets[:2400])) {
		s.Errorf("it holds %d tasks, want 2400", len(got))
	}
	if got := held(theirs); !slices.Equal(got, ids(tickets[2400:2450])) {
		s.Errorf("the other run holds %v", got)
	}
	s.move(s.task(tickets[0].Task), holdfast.Returned(nil))
	s.move(s.task(tickets[1].Task), holdfast.Interrupted(nil))
	if got := held(mine); !slices.Equal(got, ids(tickets[2:2400])) {
		s.Errorf("with two settled it holds %d tasks", len(got))
	}
	part, err := s.Held(s.ctx, mine, tickets[9].Task, tickets[19].Task)
	s.must(err)
	some := idsOf(part)
	slices.Sort(some)
	if !slices.Equal(some, ids(tickets[10:20])) {
		s.Errorf("of ten ids it holds %v", some)
	}
	// What it hands back by what Held says is accepted once.
	tasks, err := s.Held(s.ctx, theirs, 0, math.MaxInt64)
	s.must(err)
	moves := make([]holdfast.Transition, len(tasks))
	for i, task := range tasks {
		moves[i] = s.settle(task, holdfast.Interrupted(nil))
	}
	for _, want := range []bool{true, false} {
		if got := s.apply(moves...); slices.Contains(got, !want) {
			s.Errorf("handed back: %v, want all %t", got, want)
		}
	}
	if got := held(theirs); len(got) > 0 {
		s.Errorf("it still holds %v", got)
	}
	if got, err := s.Held(s.ctx, 1<<60, 0, math.MaxInt64); err != nil || len(got) > 0 {
		s.Errorf("a run that never was holds %v, %v", got, err)
	}
}

// A run's id may have been given out twice, if commits were lost between.
func testRenewAnother(s *suite) {
	info := store.RunInfo{Name: "nul\x00 and \xff", Host: "here", PID: 7}
	run, err := s.OpenRun(s.ctx, info, time.Hour)
	s.must(err)
	for _, by := range []store.RunInfo{{Name: "another", Host: "here", PID: 7}, {Name: info.Name, Host: "there", PID: 7}, {Name: info.Name, Host: "here", PID: 8}} {
		s.fencedFor(store.Renewal{Run: run, By: by, Lease: time.Hour, Taken: 9, Settled: 9})
	}
	states, err := s.RunStates(s.ctx, []holdfast.RunID{run})
	s.must(err)
	if states[run] != (store.RunStatus{State: store.RunLive}) {
		s.Errorf("renewals of others left it %+v", states[run])
	}
	for _, by := range []store.RunInfo{info, {Name: info.Name, Host: "here", PID: 7, Version: "v2", Lanes: []string{"a"}}, {}} {
		if _, err := s.Renew(s.ctx, store.Renewal{Run: run, By: by, Lease: time.Hour}); err != nil {
			s.Errorf("renewed by %+v: %v", by, err)
		}
	}
}

// A history that is named stays the same as long as nothing is lost.
func testHistory(s *suite) {
	run := s.openRun()
	var names []string
	for range 3 {
		s.claimed(run, s.inserts(1)...)
		news, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour})
		s.must(err)
		names = append(names, news.History)
	}
	if names = slices.Compact(names); len(names) > 1 {
		s.Errorf("the history changed: %q", names)
	}
}
