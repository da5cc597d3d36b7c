package storetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var fencingTests = []test{
	{"fences only workers whose leases ended more than grace ago", testFence},
	{"fences no worker if the server processes the call late", testFenceLateCall},
	{"returns the time", testNow},
	{"is final", testFenceFinal},
	{"returns a fenced worker to one of several janitors", testFenceConcurrently},
	{"leaves no later claim", testFenceAgainstClaims},
	{"finds abandoned tasks", testAbandoned},
	{"returns positions", testPositions},
}

func testFence(s *suite) {
	live, expired := s.registerWorker(), s.registerWorkerFor(time.Microsecond)
	s.eventually("the lease has expired by the clock of the store", func() bool {
		workers, err := s.Workers(s.ctx, false)
		s.must(err)
		now := s.claim(live, message.Ticket{Task: 1, Attempt: 1})[0].Now
		return now.After(workers[0].LeaseUntil)
	})
	for name, ages := range map[string][2]time.Duration{"within the grace": {time.Hour, 0}, "a server just started": {0, 100 * 365 * 24 * time.Hour}} {
		if fenced, err := s.Fence(s.ctx, s.now(), ages[0], ages[1]); err != nil || len(fenced) > 0 {
			s.Errorf("%s: Fence returned %v, %v; want no worker", name, fenced, err)
		}
	}
	if fenced, err := s.Fence(s.ctx, s.now(), 0, 0); err != nil || !slices.Equal(fenced, []holdfast.WorkerID{expired}) {
		s.Errorf("Fence returned %v, %v; want %s", fenced, err, expired)
	}
	if fenced, err := s.Fence(s.ctx, s.now(), 0, 0); err != nil || len(fenced) > 0 {
		s.Errorf("the second Fence returned %v, %v; want no worker", fenced, err)
	}
}

// testFenceLateCall simulates a server that was frozen. The server processes earlier calls after that, when every lease
// has expired.
func testFenceLateCall(s *suite) {
	worker := s.registerWorkerFor(time.Microsecond)
	s.eventually("the lease has expired", func() bool {
		workers, err := s.Workers(s.ctx, false)
		s.must(err)
		return s.now().After(workers[0].LeaseUntil)
	})
	for _, age := range []time.Duration{3 * time.Second, time.Hour} {
		if fenced, err := s.Fence(s.ctx, s.now().Add(-age), 0, 0); err != nil || len(fenced) > 0 {
			s.Errorf("called %s ago: Fence returned %v, %v; want no worker", age, fenced, err)
		}
	}
	if fenced, err := s.Fence(s.ctx, s.now(), 0, 0); err != nil || !slices.Equal(fenced, []holdfast.WorkerID{worker}) {
		s.Errorf("Fence returned %v, %v; want %s", fenced, err, worker)
	}
}

func testNow(s *suite) {
	worker := s.registerWorker()
	last := s.now()
	for range 20 {
		claimed := s.claim(worker, message.Ticket{Task: 1, Attempt: 1})[0].Now
		now := s.now()
		if claimed.Before(last) || now.Before(claimed) {
			s.Fatalf("Now returned %s, then Claim %s, then Now %s", last, claimed, now)
		}
		last = now
	}
	if name, offset := last.Zone(); offset != 0 {
		s.Errorf("Now returned %s, in zone %s; want UTC", last, name)
	}
}

func testFenceFinal(s *suite) {
	worker := s.deadWorker(func(holdfast.WorkerID) {})
	if _, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("Renew of a dead worker: %v, want ErrFenced", err)
	}
	s.must(s.DeregisterWorker(s.ctx, worker, false))
	if err := s.Drain(s.ctx, worker); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("Drain of a dead worker: %v, want ErrConflict", err)
	}
	states, err := s.WorkerStates(s.ctx, []holdfast.WorkerID{worker})
	s.must(err)
	if states[worker].State != store.WorkerDead {
		s.Errorf("the state of the dead worker is %s", states[worker].State)
	}
}

func testFenceConcurrently(s *suite) {
	for range 10 {
		s.registerWorkerFor(time.Microsecond)
	}
	var mu sync.Mutex
	times := map[holdfast.WorkerID]int{}
	s.eventually("all workers are fenced", func() bool {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
				if err != nil {
					s.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, worker := range fenced {
					times[worker]++
				}
			})
		}
		group.Wait()
		return len(times) == 10
	})
	for worker, n := range times {
		if n != 1 {
			s.Errorf("worker %s was fenced %d times, want 1", worker, n)
		}
	}
}

// testFenceAgainstClaims fences a worker while it claims tasks. A fenced worker cannot claim more tasks, so Abandoned
// returns all of its tasks.
func testFenceAgainstClaims(s *suite) {
	for range 10 {
		worker := s.registerWorker()
		tickets := s.insertN(30)
		var claimed int
		var group sync.WaitGroup
		group.Go(func() {
			for _, ticket := range tickets {
				claims, err := s.Claim(s.ctx, worker, kinds, []message.Ticket{ticket}, store.IntoExecutors)
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
		s.fence(worker)
		abandoned, err := s.Abandoned(s.ctx, worker, 1000)
		group.Wait()
		s.must(err)
		if len(abandoned) != claimed {
			s.Fatalf("Abandoned returned %d tasks, but the worker claimed %d", len(abandoned), claimed)
		}
	}
}

func testAbandoned(s *suite) {
	live := s.registerWorker()
	s.mustClaim(live, s.insertN(1)...)
	if got, err := s.Abandoned(s.ctx, 0, 10); err != nil || len(got) > 0 {
		s.Errorf("no task is abandoned, but Abandoned returned %v, %v", got, err)
	}
	first, second := s.insertN(3), s.insertN(2)
	dead := s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, first...) })
	alsoDead := s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, second...) })
	find := func(worker holdfast.WorkerID, limit int) []holdfast.Task {
		tasks, err := s.Abandoned(s.ctx, worker, limit)
		s.must(err)
		return tasks
	}
	for _, task := range find(dead, 10) {
		if task.Worker != dead || task.State != holdfast.Running || len(task.Payload) > 0 {
			s.Errorf("Abandoned returned %+v", task)
		}
	}
	for _, c := range []struct {
		worker holdfast.WorkerID
		limit  int
		want   int
	}{{dead, 10, 3}, {dead, 2, 2}, {alsoDead, 10, 2}, {0, 10, 5}, {live, 10, 0}} {
		if got := find(c.worker, c.limit); len(got) != c.want {
			s.Errorf("worker %s, limit %d: Abandoned returned %d tasks, want %d", c.worker, c.limit, len(got), c.want)
		}
	}
	for _, task := range find(0, 10) {
		s.move(task, holdfast.Crashed(task.Worker))
	}
	if got := find(0, 10); len(got) > 0 {
		s.Errorf("Abandoned returned crashed tasks: %v", got)
	}

	// Abandoned also finds the tasks of a worker that ends later.
	third := s.insertN(1)
	s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, third...) })
	if got := find(0, 10); !slices.Equal(idsOf(got), ids(third)) {
		s.Errorf("Abandoned returned %v, want %v", idsOf(got), ids(third))
	}
}

func testPositions(s *suite) {
	later := newTask()
	later.Delay = time.Hour
	tickets := s.insert(newTask(), later, newTask(), newTask())
	worker := s.registerWorker()
	s.mustClaim(worker, tickets[2])
	dead := s.deadWorker(func(worker holdfast.WorkerID) { s.mustClaim(worker, tickets[3]) })
	all := append(slices.Clone(tickets), message.Ticket{Task: 1 << 60, Attempt: 1}, tickets[0])
	got, err := s.Positions(s.ctx, all)
	s.must(err)
	want := []store.Position{
		{Found: true, State: holdfast.Ready, Attempt: 1, Ticketed: true},
		{Found: true, State: holdfast.Ready, Attempt: 1},
		{Found: true, State: holdfast.Running, Attempt: 1, Worker: worker, WorkerState: store.WorkerLive},
		{Found: true, State: holdfast.Running, Attempt: 1, Worker: dead, WorkerState: store.WorkerDead},
		{},
		{Found: true, State: holdfast.Ready, Attempt: 1, Ticketed: true},
	}
	if !slices.Equal(got, want) {
		s.Errorf("Positions returned %+v, want %+v", got, want)
	}
	tasks, err := s.TasksByID(s.ctx, append(ids(tickets), 1<<60))
	s.must(err)
	if len(tasks) != len(tickets) {
		s.Errorf("TasksByID returned %d of %d tasks", len(tasks), len(tickets))
	}
}
