package storetest

import (
	"sync"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// fenceAbsent declares an absence final, if the store agrees.
func (s *presenceSuite) fenceAbsent(a presence.Absence, asked time.Time, settle time.Duration) bool {
	s.Helper()
	fenced, err := s.here.FenceAbsent(s.ctx, a, asked, settle)
	s.must(err)
	return fenced
}

// notFenced checks that the run is left alone.
func (s *presenceSuite) notFenced(why string, a presence.Absence) {
	s.Helper()
	if s.fenceAbsent(a, s.now(), 0) {
		s.Errorf("%s, and yet it was fenced", why)
	}
}

func testFenceAbsent(s *presenceSuite) {
	run, other := s.openShown(), s.openShown()
	task := s.claimed(run, s.inserts(1)...)[0]
	a := s.absent()
	if len(a) != 2 || !s.fenceAbsent(a[0], s.now(), 0) {
		s.Fatalf("not fenced: %+v", a)
	}
	s.fencedFor(store.Renewal{Run: run, Lease: time.Hour, Shown: true})
	s.notFenced("it is dead already", a[0])
	s.absentAre("the other one lives", other)
	states, err := s.RunStates(s.ctx, []holdfast.RunID{run, other})
	s.must(err)
	if states[run].State != store.RunDead || states[other].State != store.RunLive {
		s.Errorf("the states are %v", states)
	}
	if abandoned, err := s.Abandoned(s.ctx, run, 10); err != nil || len(abandoned) != 1 || abandoned[0].ID != task.ID {
		s.Errorf("abandoned are %v, %v", abandoned, err)
	}
	runs, err := s.Runs(s.ctx, true)
	s.must(err)
	if runs[1].EndedAt.IsZero() {
		s.Errorf("the dead one has not ended: %+v", runs[1])
	}
}

func testFenceAbsentBack(s *presenceSuite) {
	run := s.openShown()
	a := s.onlyAbsent()
	_, release := s.show(s.elsewhere, run)
	s.notFenced("its sign is there again", a)
	release()
	s.eventually("time passes", func() bool { return s.now().After(a.RenewedAt.Add(time.Millisecond)) })
	s.renew(run, true)
	s.notFenced("it has renewed", a)
	renewed := s.onlyAbsent()
	for _, off := range []time.Duration{-time.Microsecond, time.Microsecond} {
		s.notFenced("this renewal never was", presence.Absence{Run: run, RenewedAt: renewed.RenewedAt.Add(off)})
	}
	s.notFenced("there is no such run", presence.Absence{Run: run + 1, RenewedAt: renewed.RenewedAt})
	s.renew(run, false)
	runs, err := s.Runs(s.ctx, false)
	s.must(err)
	s.notFenced("it is not shown", presence.Absence{Run: run, RenewedAt: runs[0].RenewedAt})
	s.renew(run, true)
	if !s.fenceAbsent(s.onlyAbsent(), s.now(), 0) {
		s.Error("at last it is absent, and yet was not fenced")
	}
}

func testFenceAbsentDoubts(s *presenceSuite) {
	s.openShown()
	a := s.onlyAbsent()
	for _, age := range []time.Duration{3 * time.Second, time.Hour} {
		if s.fenceAbsent(a, s.now().Add(-age), 0) {
			s.Errorf("asked %s ago, it was fenced", age)
		}
	}
	if s.fenceAbsent(a, s.now(), 100*365*24*time.Hour) {
		s.Error("fenced by a server that has just started")
	}
	if !s.fenceAbsent(a, s.now(), 0) {
		s.Error("not fenced without a doubt")
	}
}

func testFenceAbsentConcurrently(s *presenceSuite) {
	for range 5 {
		s.openShown()
	}
	var mu sync.Mutex
	fenced := map[holdfast.RunID]int{}
	absences := s.absent()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			from := []Present{s.here, s.elsewhere}[i%2]
			for _, a := range absences {
				now, err := s.Now(s.ctx)
				if err != nil {
					s.Error(err)
					return
				}
				yes, err := from.FenceAbsent(s.ctx, a, now, 0)
				if err != nil {
					s.Error(err)
				}
				if yes {
					mu.Lock()
					fenced[a.Run]++
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	for _, a := range absences {
		if fenced[a.Run] != 1 {
			s.Errorf("run %s was fenced %d times", a.Run, fenced[a.Run])
		}
	}
}
