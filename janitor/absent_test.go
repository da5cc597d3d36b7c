package janitor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
)

// square is where workers show signs, and a store that notes who is fenced when.
type square struct {
	Store
	began time.Time

	mu     sync.Mutex
	absent map[holdfast.RunID]time.Time // when they renewed last
	shown  func(ctx context.Context, run string) (bool, error)
	down   bool // the store fails
	late   bool // only its clock does
	blind  bool // the broker shows no witness
	fenced map[holdfast.RunID]time.Duration
	refuse bool // FenceAbsent does nothing
	asked  time.Time
	settle time.Duration

	place   chan struct{} // free to be taken if there is a token
	watch   chan struct{} // closed when the watcher's session ends
	witness chan struct{}
}

// stroll runs the duties that fence in a bubble of time, with the janitor's place free if it is to have it.
func stroll(t *testing.T, free bool, story func(s *square)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &square{
			began: time.Now(), absent: make(map[holdfast.RunID]time.Time), fenced: make(map[holdfast.RunID]time.Duration), place: make(chan struct{}, 1),
		}
		if free {
			s.place <- struct{}{}
		}
		j, ctx, end := offline(t, s)
		j.o.Present = presence.Servers{Store: plaza{stage: s}, Broker: hall{stage: s}}
		j.watcher = j.newWatcher()
		var duties sync.WaitGroup
		duties.Go(func() { j.fenceLoop(ctx) })
		duties.Go(func() { j.watcher.Run(ctx) })
		story(s)
		end()
		duties.Wait()
	})
}

// warmTime is when a janitor may fence that has met no trouble.
const warmTime = 5100 * time.Millisecond

func (s *square) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// leaves makes runs absent that have just renewed.
func (s *square) leave(runs ...holdfast.RunID) {
	s.do(func() {
		for _, run := range runs {
			s.absent[run] = time.Now()
		}
	})
}

func (s *square) comeBack(runs ...holdfast.RunID) {
	s.do(func() {
		for _, run := range runs {
			delete(s.absent, run)
		}
	})
}

// within insists that exactly these runs are fenced within d.
func (s *square) within(t *testing.T, d time.Duration, what string, runs ...holdfast.RunID) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	s.do(func() {
		for _, run := range runs {
			if _, ok := s.fenced[run]; !ok {
				t.Errorf("%s: run %s is not fenced within %s", what, run, d)
			}
			delete(s.fenced, run)
		}
		for run, at := range s.fenced {
			t.Errorf("%s: run %s is fenced at %s", what, run, at)
		}
		clear(s.fenced)
	})
}

func (s *square) Now(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.late {
		return time.Time{}, errFault
	}
	return time.Now(), nil
}

func (s *square) Fence(context.Context, time.Time, time.Duration, time.Duration) ([]holdfast.RunID, error) {
	return nil, nil
}

type plaza struct {
	presence.Store
	stage *square
}

func (p plaza) Watch(ctx context.Context) (<-chan struct{}, func(), error) {
	select {
	case <-p.stage.place:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	if p.stage.down {
		return nil, nil, errFault
	}
	p.stage.watch = make(chan struct{})
	return p.stage.watch, func() {}, nil
}

func (p plaza) Absent(context.Context) ([]presence.Absence, error) {
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	if p.stage.down {
		return nil, errFault
	}
	var list []presence.Absence
	for run := range holdfast.RunID(10) {
		if at, ok := p.stage.absent[run]; ok {
			list = append(list, presence.Absence{Run: run, RenewedAt: at})
		}
	}
	return list, nil
}

func (p plaza) FenceAbsent(_ context.Context, a presence.Absence, asked time.Time, settle time.Duration) (bool, error) {
	s := p.stage
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.absent[a.Run]; !ok || !at.Equal(a.RenewedAt) || s.refuse {
		return false, nil
	}
	s.fenced[a.Run], s.asked, s.settle = time.Since(s.began), asked, settle
	delete(s.absent, a.Run)
	return true, nil
}

type hall struct {
	presence.Broker
	stage *square
}

func (h hall) Show(_ context.Context, name string) (<-chan struct{}, func(), error) {
	h.stage.mu.Lock()
	defer h.stage.mu.Unlock()
	if !strings.HasPrefix(name, "test.witness.") {
		return nil, nil, fmt.Errorf("this is no witness: %s", name)
	}
	if h.stage.blind {
		return nil, nil, errFault
	}
	h.stage.witness = make(chan struct{})
	return h.stage.witness, func() {}, nil
}

func (h hall) Shown(ctx context.Context, name string) (bool, error) {
	h.stage.mu.Lock()
	shown := h.stage.shown
	h.stage.mu.Unlock()
	if shown == nil {
		return false, nil
	}
	return shown(ctx, strings.TrimPrefix(name, "test.alive."))
}

// A run that is absent without a renewal is fenced, but not before it had the time to contradict.
func TestAProcessThatIsGoneIsFencedEarly(t *testing.T) {
	stroll(t, true, func(s *square) {
		s.within(t, 10*time.Second, "nobody is absent")
		s.leave(1)
		s.within(t, 150*time.Millisecond, "too soon")
		s.within(t, 200*time.Millisecond, "gone", 1)
		if age := time.Since(s.asked); age > 200*time.Millisecond || s.settle != warmTime {
			t.Errorf("asked %s ago, of a server that is up for %s", age, s.settle)
		}
	})
}

// A renewal that comes within the waiting time begins that time again. A worker that says that it has lost a sign is not absent.
func TestAContradictionIsHeard(t *testing.T) {
	stroll(t, true, func(s *square) {
		time.Sleep(10 * time.Second)
		s.leave(1)
		s.within(t, 100*time.Millisecond, "it is about to renew")
		s.do(func() { s.absent[1] = time.Now() })
		s.within(t, 100*time.Millisecond, "it has just renewed")
		s.comeBack(1)
		s.within(t, time.Minute, "it has said so")
		s.do(func() { s.refuse = true })
		s.leave(1)
		s.within(t, time.Minute, "the store refuses")
		s.do(func() { s.refuse = false })
		s.within(t, 200*time.Millisecond, "the store agrees", 1)
	})
}

// The broker must not see it either, and must say so when the time is over.
func TestTheBrokerHasToAgree(t *testing.T) {
	stroll(t, true, func(s *square) {
		time.Sleep(10 * time.Second)
		var shown bool
		probes := 0
		s.do(func() {
			s.shown = func(context.Context, string) (bool, error) { probes++; return shown, nil }
			shown = true
		})
		s.leave(1)
		s.within(t, 10*time.Second, "the broker sees it")
		s.do(func() { shown = false })
		s.within(t, 300*time.Millisecond, "nor does the broker", 1)
		s.do(func() {
			probes = 0
			s.shown = func(context.Context, string) (bool, error) { probes++; return probes > 1, nil } // it has come back
		})
		time.Sleep(2 * time.Second)
		s.leave(2)
		s.within(t, time.Minute, "the broker sees it again")
		s.do(func() { s.shown = func(context.Context, string) (bool, error) { probes++; return probes%2 == 0, nil } })
		s.within(t, time.Minute, "the broker does not see it for a moment, again and again")
		s.comeBack(2)
	})
}

// A broker that does not answer is in trouble: what it says next is not believed either. A hanging one holds nothing up.
func TestABrokerThatDoesNotAnswerIsNotBelieved(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		t.Run(fmt.Sprint("hangs ", hangs), func(t *testing.T) {
			stroll(t, true, func(s *square) {
				time.Sleep(10 * time.Second)
				probes := 0
				s.do(func() {
					s.shown = func(ctx context.Context, _ string) (bool, error) {
						if probes++; probes > 1 {
							return false, nil
						}
						if hangs {
							<-ctx.Done()
						}
						return false, errFault
					}
				})
				s.leave(1)
				s.within(t, warmTime, "a moment ago it did not answer")
				s.within(t, time.Second, "it is well again", 1)
			})
		})
	}
}

// Those whose absences begin together are left to their leases until they are there again, or gone.
func TestACrowdIsLeftToItsLeases(t *testing.T) {
	stroll(t, true, func(s *square) {
		time.Sleep(10 * time.Second)
		s.leave(1, 2)
		s.within(t, time.Minute, "two at once")
		s.comeBack(1)
		s.within(t, time.Minute, "one of them is there again")
		s.comeBack(2)
		time.Sleep(2 * time.Second)
		s.leave(3)
		s.within(t, 400*time.Millisecond, "alone", 3)
		s.leave(4)
		s.within(t, time.Minute, "half a second after another one")
		s.comeBack(4)
		time.Sleep(2 * time.Second)
		s.leave(1)
		s.within(t, 140*time.Millisecond, "not yet")
		s.leave(5)
		s.within(t, time.Minute, "one more before the first was fenced")
		s.comeBack(1, 5)
		time.Sleep(time.Second)
		s.leave(4)
		s.within(t, 400*time.Millisecond, "alone at last", 4)
	})
}

// What may have ended the signs of the living too is trouble, and for a lease and its grace nobody is fenced early.
func TestNobodyIsFencedEarlyAfterTrouble(t *testing.T) {
	for name, trouble := range map[string]func(*square){
		"the witness is lost": func(s *square) { close(s.witness) },
		"the watcher's session is lost": func(s *square) {
			close(s.watch)
			s.place <- struct{}{}
		},
		"the store fails once": func(s *square) {
			s.do(func() { s.down = true })
			time.Sleep(110 * time.Millisecond)
			s.do(func() { s.down = false })
		},
		"the store does not tell its time": func(s *square) {
			s.do(func() { s.late = true })
			time.Sleep(time.Second)
			s.leave(1)
			time.Sleep(time.Second)
			s.do(func() { s.late = false })
		},
		"it has just started": nil,
	} {
		t.Run(name, func(t *testing.T) {
			stroll(t, true, func(s *square) {
				if trouble != nil {
					s.within(t, 10*time.Second, "nobody is absent")
					trouble(s)
				}
				s.leave(1)
				s.within(t, warmTime-time.Millisecond, "trouble a moment ago")
				s.within(t, time.Second, "calm again", 1)
			})
		})
	}
}

// A janitor without a witness does not know what happens at the broker.
func TestNobodyIsFencedEarlyWithoutAWitness(t *testing.T) {
	stroll(t, true, func(s *square) {
		time.Sleep(10 * time.Second)
		s.do(func() { s.blind = true })
		close(s.witness)
		s.leave(1)
		s.within(t, time.Minute, "no witness")
		s.do(func() { s.blind = false })
		s.within(t, warmTime, "the witness is new")
		s.within(t, 8*time.Second, "long enough", 1) // with the pause until it was shown
	})
}

// A janitor that has waited for the place is warm when it gets it, unless its wait failed.
func TestTheNextWatcherIsWarm(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("the wait fails ", fails), func(t *testing.T) {
			stroll(t, false, func(s *square) {
				s.leave(1)
				s.within(t, time.Hour, "another one watches")
				if fails {
					s.do(func() { s.down = true })
					s.place <- struct{}{}
					synctest.Wait()
					s.do(func() { s.down = false })
				}
				s.place <- struct{}{}
				if fails {
					s.within(t, warmTime, "its wait failed")
				}
				s.within(t, 700*time.Millisecond, "its turn", 1)
			})
		})
	}
}
