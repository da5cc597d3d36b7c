package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var fencingTests = []test{
	{"fences only leases that are over for long enough", testFence},
	{"fences nobody for a question that is old", testFenceAskedLongAgo},
	{"tells the time", testNow},
	{"is final", testFenceFinal},
	{"goes to one of many janitors", testFenceConcurrently},
	{"leaves no claim behind", testFenceAgainstClaims},
	{"finds abandoned tasks", testAbandoned},
	{"tells positions", testPositions},
}

func testFence(s *suite) {
	live, over := s.openRun(), s.openRunFor(time.Microsecond)
	s.eventually("the lease is over by the store's clock", func() bool {
		runs, err := s.Runs(s.ctx, false)
		s.must(err)
		now := s.claim(live, message.Ticket{Task: 1, Attempt: 1})[0].Now
		return now.After(runs[0].LeaseUntil)
	})
	for name, ages := range map[string][2]time.Duration{"within the grace": {time.Hour, 0}, "a server just started": {0, 100 * 365 * 24 * time.Hour}} {
		if fenced, err := s.Fence(s.ctx, s.now(), ages[0], ages[1]); err != nil || len(fenced) > 0 {
			s.Errorf("%s: fenced %v, %v", name, fenced, err)
		}
	}
	if fenced, err := s.Fence(s.ctx, s.now(), 0, 0); err != nil || !slices.Equal(fenced, []holdfast.RunID{over}) {
		s.Errorf("fenced %v, %v; want %s", fenced, err, over)
	}
	if fenced, err := s.Fence(s.ctx, s.now(), 0, 0); err != nil || len(fenced) > 0 {
		s.Errorf("fenced again: %v, %v", fenced, err)
	}
}

// A server that was frozen answers what it was asked before, and finds every lease over.
func testFenceAskedLongAgo(s *suite) {
	run := s.openRunFor(time.Microsecond)
	s.eventually("the lease is over", func() bool {
		runs, err := s.Runs(s.ctx, false)
		s.must(err)
		return s.now().After(runs[0].LeaseUntil)
	})
	for _, age := range []time.Duration{3 * time.Second, time.Hour} {
		if fenced, err := s.Fence(s.ctx, s.now().Add(-age), 0, 0); err != nil || len(fenced) > 0 {
			s.Errorf("asked %s ago, it fenced %v, %v", age, fenced, err)
		}
	}
	if fenced, err := s.Fence(s.ctx, s.now(), 0, 0); err != nil || !slices.Equal(fenced, []holdfast.RunID{run}) {
		s.Errorf("fenced %v, %v; want %s", fenced, err, run)
	}
}

func testNow(s *suite) {
	run := s.openRun()
	last := s.now()
	for range 20 {
		claimed := s.claim(run, message.Ticket{Task: 1, Attempt: 1})[0].Now
		now := s.now()
		if claimed.Before(last) || now.Before(claimed) {
			s.Fatalf("it is %s, then %s for a claim, then %s", last, claimed, now)
		}
		last = now
	}
	if name, offset := last.Zone(); offset != 0 {
		s.Errorf("it is %s, in zone %s", last, name)
	}
}

func testFenceFinal(s *suite) {
	run := s.deadRun(func(holdfast.RunID) {})
	if _, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("a dead run was renewed: %v", err)
	}
	s.must(s.CloseRun(s.ctx, run, false))
	if err := s.Drain(s.ctx, run); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("draining a dead run: %v", err)
	}
	states, err := s.RunStates(s.ctx, []holdfast.RunID{run})
	s.must(err)
	if states[run].State != store.RunDead {
		s.Errorf("the dead run is %s", states[run].State)
	}
}

func testFenceConcurrently(s *suite) {
	for range 10 {
		s.openRunFor(time.Microsecond)
	}
	var mu sync.Mutex
	times := map[holdfast.RunID]int{}
	s.eventually("all are fenced", func() bool {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
				if err != nil {
					s.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, run := range fenced {
					times[run]++
				}
			})
		}
		group.Wait()
		return len(times) == 10
	})
	for run, n := range times {
		if n != 1 {
			s.Errorf("run %s was fenced %d times", run, n)
		}
	}
}

// Once a run is fenced it can take nothing any more, so a look at its tasks after that
// misses none.
func testFenceAgainstClaims(s *suite) {
	for range 10 {
		run := s.openRun()
		tickets := s.inserts(30)
		var claimed int
		var group sync.WaitGroup
		group.Go(func() {
			for _, ticket := range tickets {
				claims, err := s.Claim(s.ctx, run, kinds, []message.Ticket{ticket}, store.IntoExecutors)
				if errors.Is(err, store.ErrFenced) {
					return
				}
				if err != nil {
					s.Error(err)
					return
				}
				if claims[0].Verdict == store.Claimed {
					claimed++
				}
			}
		})
		s.fence(run)
		abandoned, err := s.Abandoned(s.ctx, run, 1000)
		group.Wait()
		s.must(err)
		if len(abandoned) != claimed {
			s.Fatalf("%d tasks are abandoned, %d were claimed", len(abandoned), claimed)
		}
	}
}

func testAbandoned(s *suite) {
	live := s.openRun()
	s.claimed(live, s.inserts(1)...)
	if got, err := s.Abandoned(s.ctx, 0, 10); err != nil || len(got) > 0 {
		s.Errorf("nothing is abandoned, but %v, %v", got, err)
	}
	first, second := s.inserts(3), s.inserts(2)
	dead := s.deadRun(func(run holdfast.RunID) { s.claimed(run, first...) })
	alsoDead := s.deadRun(func(run holdfast.RunID) { s.claimed(run, second...) })
	find := func(run holdfast.RunID, limit int) []holdfast.Task {
		tasks, err := s.Abandoned(s.ctx, run, limit)
		s.must(err)
		return tasks
	}
	for _, task := range find(dead, 10) {
		if task.Run != dead || task.State != holdfast.Running || len(task.Payload) > 0 {
			s.Errorf("abandoned: %+v", task)
		}
	}
	for _, c := range []struct {
		run   holdfast.RunID
		limit int
		want  int
	}{{dead, 10, 3}, {dead, 2, 2}, {alsoDead, 10, 2}, {0, 10, 5}, {live, 10, 0}} {
		if got := find(c.run, c.limit); len(got) != c.want {
			s.Errorf("run %s, limit %d: %d tasks, want %d", c.run, c.limit, len(got), c.want)
		}
	}
	for _, task := range find(0, 10) {
		s.move(task, holdfast.Crashed(task.Run))
	}
	if got := find(0, 10); len(got) > 0 {
		s.Errorf("still abandoned: %v", got)
	}

	// A run that ends later is found again.
	third := s.inserts(1)
	s.deadRun(func(run holdfast.RunID) { s.claimed(run, third...) })
	if got := find(0, 10); !slices.Equal(idsOf(got), ids(third)) {
		s.Errorf("abandoned are %v, want %v", idsOf(got), ids(third))
	}
}

func testPositions(s *suite) {
	later := newTask()
	later.Delay = time.Hour
	tickets := s.insert(newTask(), later, newTask(), newTask())
	run := s.openRun()
	s.claimed(run, tickets[2])
	dead := s.deadRun(func(run holdfast.RunID) { s.claimed(run, tickets[3]) })
	asked := append(slices.Clone(tickets), message.Ticket{Task: 1 << 60, Attempt: 1}, tickets[0])
	got, err := s.Positions(s.ctx, asked)
	s.must(err)
	want := []store.Position{
		{Found: true, State: holdfast.Ready, Attempt: 1, Ticketed: true},
		{Found: true, State: holdfast.Ready, Attempt: 1},
		{Found: true, State: holdfast.Running, Attempt: 1, Run: run, RunState: store.RunLive},
		{Found: true, State: holdfast.Running, Attempt: 1, Run: dead, RunState: store.RunDead},
		{},
		{Found: true, State: holdfast.Ready, Attempt: 1, Ticketed: true},
	}
	if !slices.Equal(got, want) {
		s.Errorf("positions are %+v, want %+v", got, want)
	}
	tasks, err := s.TasksByID(s.ctx, append(ids(tickets), 1<<60))
	s.must(err)
	if len(tasks) != len(tickets) {
		s.Errorf("%d of %d tasks were read", len(tasks), len(tickets))
	}
}
