package storetest

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// fenceMissing calls FenceMissing and reports whether the store fenced the worker.
func (s *presenceSuite) fenceMissing(m presence.MissingWorker, calledAt time.Time, settle time.Duration) bool {
	s.Helper()
	fenced, err := s.here.FenceMissing(s.ctx, m, calledAt, settle)
	s.must(err)
	return fenced
}

// wantNotFenced checks that FenceMissing does not fence the worker.
func (s *presenceSuite) wantNotFenced(why string, m presence.MissingWorker) {
	s.Helper()
	if s.fenceMissing(m, s.now(), 0) {
		s.Errorf("%s: FenceMissing fenced the worker", why)
	}
}

func testFenceMissing(s *presenceSuite) {
	worker, other := s.registerPresent(), s.registerPresent()
	task := s.mustClaim(worker, s.insertN(1)...)[0]
	missing := s.missing()
	if len(missing) != 2 || !s.fenceMissing(missing[0], s.now(), 0) {
		s.Fatalf("not fenced: %+v", missing)
	}
	if _, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour, Present: true}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("Renew of a fenced worker: %v, want ErrFenced", err)
	}
	s.wantNotFenced("the worker is already dead", missing[0])
	s.wantMissing("the first worker is dead", other)
	states, err := s.WorkerStates(s.ctx, []holdfast.WorkerID{worker, other})
	s.must(err)
	if states[worker].State != store.WorkerDead || states[other].State != store.WorkerLive {
		s.Errorf("the states are %v", states)
	}
	if abandoned, err := s.Abandoned(s.ctx, worker, 10); err != nil || len(abandoned) != 1 || abandoned[0].ID != task.ID {
		s.Errorf("Abandoned returned %v, %v; want task %s", abandoned, err, task.ID)
	}
	workers, err := s.Workers(s.ctx, true)
	s.must(err)
	if workers[1].EndedAt.IsZero() {
		s.Errorf("the dead worker has no end time: %+v", workers[1])
	}
}

func testFenceMissingReturned(s *presenceSuite) {
	worker := s.registerPresent()
	missing := s.onlyMissing()
	_, release := s.acquire(s.elsewhere, worker)
	s.wantNotFenced("the worker has its presence lock again", missing)
	release()
	s.eventually("the clock advances", func() bool { return s.now().After(missing.RenewedAt.Add(time.Millisecond)) })
	s.renew(worker, true)
	s.wantNotFenced("the worker has renewed its lease", missing)
	renewed := s.onlyMissing()
	for _, off := range []time.Duration{-time.Microsecond, time.Microsecond} {
		s.wantNotFenced("no renewal has this time", presence.MissingWorker{Worker: worker, RenewedAt: renewed.RenewedAt.Add(off)})
	}
	s.wantNotFenced("the worker does not exist", presence.MissingWorker{Worker: worker + 1, RenewedAt: renewed.RenewedAt})
	s.renew(worker, false)
	workers, err := s.Workers(s.ctx, false)
	s.must(err)
	s.wantNotFenced("the latest renewal said that the worker has no presence locks", presence.MissingWorker{Worker: worker, RenewedAt: workers[0].RenewedAt})
	s.renew(worker, true)
	if !s.fenceMissing(s.onlyMissing(), s.now(), 0) {
		s.Error("the worker is missing, but FenceMissing did not fence it")
	}
}

func testFenceMissingUncertain(s *presenceSuite) {
	s.registerPresent()
	missing := s.onlyMissing()
	for _, age := range []time.Duration{3 * time.Second, time.Hour} {
		if s.fenceMissing(missing, s.now().Add(-age), 0) {
			s.Errorf("called %s ago: FenceMissing fenced the worker", age)
		}
	}
	if s.fenceMissing(missing, s.now(), 100*365*24*time.Hour) {
		s.Error("FenceMissing fenced the worker although the server has just started")
	}
	if !s.fenceMissing(missing, s.now(), 0) {
		s.Error("FenceMissing did not fence a worker that is missing")
	}
}

func testFenceMissingConcurrently(s *presenceSuite) {
	for range 5 {
		s.registerPresent()
	}
	var mu sync.Mutex
	fenced := map[holdfast.WorkerID]int{}
	missing := s.missing()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			from := []Present{s.here, s.elsewhere}[i%2]
			for _, m := range missing {
				now, err := s.Now(s.ctx)
				if err != nil {
					s.Error(err)
					return
				}
				yes, err := from.FenceMissing(s.ctx, m, now, 0)
				if err != nil {
					s.Error(err)
				}
				if yes {
					mu.Lock()
					fenced[m.Worker]++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for _, m := range missing {
		if fenced[m.Worker] != 1 {
			s.Errorf("worker %s was fenced %d times, want 1", m.Worker, fenced[m.Worker])
		}
	}
}
