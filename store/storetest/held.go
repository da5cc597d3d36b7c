package storetest

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func testHeld(s *suite) {
	mine, theirs := s.openRun(), s.openRun()
	held := func(run holdfast.RunID) []holdfast.TaskID {
		s.Helper()
		tasks, err := s.Held(s.ctx, run)
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
	tickets := s.inserts(2500) // more than fit into one step
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
	// What it hands back by what Held says is accepted once.
	tasks, err := s.Held(s.ctx, theirs)
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
	if got, err := s.Held(s.ctx, 1<<60); err != nil || len(got) > 0 {
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
