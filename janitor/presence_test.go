package janitor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
)

// presenceFake is a store and a broker in which workers are present or missing. It records which workers are fenced,
// and when.
type presenceFake struct {
	Store
	began time.Time

	mu            sync.Mutex
	missing       map[holdfast.WorkerID]time.Time                        // by worker: time of the newest renewal
	present       func(ctx context.Context, worker string) (bool, error) // answer of the broker; nil means missing
	down          bool                                                   // the store returns errors
	clockDown     bool                                                   // only Now returns errors
	noOwnPresence bool                                                   // the janitor cannot acquire its own presence
	fenced        map[holdfast.WorkerID]time.Duration
	refuse        bool // FenceMissing fences no worker
	asked         time.Time
	settle        time.Duration

	watchTurn   chan struct{} // has a value if no other janitor watches
	watch       chan struct{} // closed when the watcher's session ends
	ownPresence chan struct{}
}

// runWatcher runs the fencing duties in a synctest bubble, and body at the same time. If free, no other janitor
// watches.
func runWatcher(t *testing.T, free bool, body func(s *presenceFake)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &presenceFake{
			began: time.Now(), missing: make(map[holdfast.WorkerID]time.Time), fenced: make(map[holdfast.WorkerID]time.Duration), watchTurn: make(chan struct{}, 1),
		}
		if free {
			s.watchTurn <- struct{}{}
		}
		j, ctx, end := offlineJanitor(t, s)
		j.o.Present = presence.Servers{Store: fakePresenceStore{fake: s}, Broker: fakePresenceBroker{fake: s}}
		j.watcher = j.newWatcher()
		var duties sync.WaitGroup
		duties.Go(func() { j.fenceLoop(ctx) })
		duties.Go(func() { j.watcher.Run(ctx) })
		body(s)
		end()
		duties.Wait()
	})
}

// warmTime is the time after which a janitor may fence, if nothing has disturbed it.
const warmTime = 5100 * time.Millisecond

func (s *presenceFake) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// setMissing makes workers missing right after a renewal.
func (s *presenceFake) setMissing(workers ...holdfast.WorkerID) {
	s.locked(func() {
		for _, worker := range workers {
			s.missing[worker] = time.Now()
		}
	})
}

func (s *presenceFake) setPresent(workers ...holdfast.WorkerID) {
	s.locked(func() {
		for _, worker := range workers {
			delete(s.missing, worker)
		}
	})
}

// expectFenced waits for d. It fails the test unless exactly these workers were fenced.
func (s *presenceFake) expectFenced(t *testing.T, d time.Duration, what string, workers ...holdfast.WorkerID) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	s.locked(func() {
		for _, worker := range workers {
			if _, ok := s.fenced[worker]; !ok {
				t.Errorf("%s: worker %s was not fenced within %s", what, worker, d)
			}
			delete(s.fenced, worker)
		}
		for worker, at := range s.fenced {
			t.Errorf("%s: worker %s was fenced at %s", what, worker, at)
		}
		clear(s.fenced)
	})
}

func (s *presenceFake) Now(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down || s.clockDown {
		return time.Time{}, errFault
	}
	return time.Now(), nil
}

func (s *presenceFake) Fence(context.Context, time.Time, time.Duration, time.Duration) ([]holdfast.WorkerID, error) {
	return nil, nil
}

type fakePresenceStore struct {
	presence.Store
	fake *presenceFake
}

func (p fakePresenceStore) Watch(ctx context.Context) (<-chan struct{}, func(), error) {
	select {
	case <-p.fake.watchTurn:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	if p.fake.down {
		return nil, nil, errFault
	}
	p.fake.watch = make(chan struct{})
	return p.fake.watch, func() {}, nil
}

func (p fakePresenceStore) Missing(context.Context) ([]presence.MissingWorker, error) {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	if p.fake.down {
		return nil, errFault
	}
	var list []presence.MissingWorker
	for worker := range holdfast.WorkerID(10) {
		if at, ok := p.fake.missing[worker]; ok {
			list = append(list, presence.MissingWorker{Worker: worker, RenewedAt: at})
		}
	}
	return list, nil
}

func (p fakePresenceStore) FenceMissing(_ context.Context, a presence.MissingWorker, asked time.Time, settle time.Duration) (bool, error) {
	s := p.fake
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.missing[a.Worker]; !ok || !at.Equal(a.RenewedAt) || s.refuse {
		return false, nil
	}
	s.fenced[a.Worker], s.asked, s.settle = time.Since(s.began), asked, settle
	delete(s.missing, a.Worker)
	return true, nil
}

type fakePresenceBroker struct {
	presence.Broker
	fake *presenceFake
}

func (h fakePresenceBroker) Acquire(_ context.Context, name string) (<-chan struct{}, func(), error) {
	h.fake.mu.Lock()
	defer h.fake.mu.Unlock()
	if !strings.HasPrefix(name, "test.presence.janitor.") {
		return nil, nil, fmt.Errorf("%s is not the presence of a janitor", name)
	}
	if h.fake.noOwnPresence {
		return nil, nil, errFault
	}
	h.fake.ownPresence = make(chan struct{})
	return h.fake.ownPresence, func() {}, nil
}

func (h fakePresenceBroker) Present(ctx context.Context, name string) (bool, error) {
	h.fake.mu.Lock()
	shown := h.fake.present
	h.fake.mu.Unlock()
	if shown == nil {
		return false, nil
	}
	return shown(ctx, strings.TrimPrefix(name, "test.presence.worker."))
}

// A missing worker is fenced if it does not renew, but not before it had time to renew.
func TestAMissingWorkerIsFencedBeforeItsLeaseExpires(t *testing.T) {
	runWatcher(t, true, func(s *presenceFake) {
		s.expectFenced(t, 10*time.Second, "no worker is missing")
		s.setMissing(1)
		s.expectFenced(t, 150*time.Millisecond, "too soon")
		s.expectFenced(t, 200*time.Millisecond, "missing", 1)
		if age := time.Since(s.asked); age > 200*time.Millisecond || s.settle != warmTime {
			t.Errorf("FenceMissing was called with a time %s ago and settle time %s", age, s.settle)
		}
	})
}

// A renewal during the waiting time restarts that time. A worker that reports the loss of its presence is not missing.
func TestARenewalPreventsAnEarlyFence(t *testing.T) {
	runWatcher(t, true, func(s *presenceFake) {
		time.Sleep(10 * time.Second)
		s.setMissing(1)
		s.expectFenced(t, 100*time.Millisecond, "the worker is about to renew")
		s.locked(func() { s.missing[1] = time.Now() })
		s.expectFenced(t, 100*time.Millisecond, "the worker has just renewed")
		s.setPresent(1)
		s.expectFenced(t, time.Minute, "the worker has reported its loss")
		s.locked(func() { s.refuse = true })
		s.setMissing(1)
		s.expectFenced(t, time.Minute, "the store refuses")
		s.locked(func() { s.refuse = false })
		s.expectFenced(t, 200*time.Millisecond, "the store agrees", 1)
	})
}

// A worker is fenced only if its presence is also missing in the broker at the end of the waiting time.
func TestTheBrokerMustConfirmThatAWorkerIsMissing(t *testing.T) {
	runWatcher(t, true, func(s *presenceFake) {
		time.Sleep(10 * time.Second)
		var inBroker bool
		probes := 0
		s.locked(func() {
			s.present = func(context.Context, string) (bool, error) { probes++; return inBroker, nil }
			inBroker = true
		})
		s.setMissing(1)
		s.expectFenced(t, 10*time.Second, "present in the broker")
		s.locked(func() { inBroker = false })
		s.expectFenced(t, 300*time.Millisecond, "missing in the broker", 1)
		s.locked(func() {
			probes = 0
			s.present = func(context.Context, string) (bool, error) { probes++; return probes > 1, nil } // only the first answer is missing
		})
		time.Sleep(2 * time.Second)
		s.setMissing(2)
		s.expectFenced(t, time.Minute, "present in the broker again")
		s.locked(func() {
			s.present = func(context.Context, string) (bool, error) { probes++; return probes%2 == 0, nil }
		})
		s.expectFenced(t, time.Minute, "every other answer of the broker is missing")
		s.setPresent(2)
	})
}

// If the broker does not answer, the janitor does not trust its next answers either. A broker that hangs does not block
// the janitor.
func TestABrokerThatDoesNotAnswerIsNotTrusted(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		t.Run(fmt.Sprintf("hangs: %t", hangs), func(t *testing.T) {
			runWatcher(t, true, func(s *presenceFake) {
				time.Sleep(10 * time.Second)
				probes := 0
				s.locked(func() {
					s.present = func(ctx context.Context, _ string) (bool, error) {
						if probes++; probes > 1 {
							return false, nil
						}
						if hangs {
							<-ctx.Done()
						}
						return false, errFault
					}
				})
				s.setMissing(1)
				s.expectFenced(t, warmTime, "the broker has just failed to answer")
				s.expectFenced(t, time.Second, "the broker answers again", 1)
			})
		})
	}
}

// If several workers go missing together, the janitor waits for their leases to expire, unless they become present
// again.
func TestACrowdIsLeftToItsLeases(t *testing.T) {
	runWatcher(t, true, func(s *presenceFake) {
		time.Sleep(10 * time.Second)
		s.setMissing(1, 2)
		s.expectFenced(t, time.Minute, "two workers go missing at once")
		s.setPresent(1)
		s.expectFenced(t, time.Minute, "one of them is present again")
		s.setPresent(2)
		time.Sleep(2 * time.Second)
		s.setMissing(3)
		s.expectFenced(t, 400*time.Millisecond, "a single worker is missing", 3)
		s.setMissing(4)
		s.expectFenced(t, time.Minute, "half a second after another worker")
		s.setPresent(4)
		time.Sleep(2 * time.Second)
		s.setMissing(1)
		s.expectFenced(t, 140*time.Millisecond, "too soon")
		s.setMissing(5)
		s.expectFenced(t, time.Minute, "another worker goes missing before the first is fenced")
		s.setPresent(1, 5)
		time.Sleep(time.Second)
		s.setMissing(4)
		s.expectFenced(t, 400*time.Millisecond, "a single worker is missing again", 4)
	})
}

// Trouble is an event that may also have ended the presence of live workers. After trouble, no worker is fenced early
// for a lease and its grace.
func TestNoWorkerIsFencedEarlyAfterTrouble(t *testing.T) {
	for name, trouble := range map[string]func(*presenceFake){
		"the janitor's own presence is lost": func(s *presenceFake) { close(s.ownPresence) },
		"the watcher's session is lost": func(s *presenceFake) {
			close(s.watch)
			s.watchTurn <- struct{}{}
		},
		"the store fails once": func(s *presenceFake) {
			s.locked(func() { s.down = true })
			time.Sleep(110 * time.Millisecond)
			s.locked(func() { s.down = false })
		},
		"the store does not return its time": func(s *presenceFake) {
			s.locked(func() { s.clockDown = true })
			time.Sleep(time.Second)
			s.setMissing(1)
			time.Sleep(time.Second)
			s.locked(func() { s.clockDown = false })
		},
		"the janitor has just started": nil,
	} {
		t.Run(name, func(t *testing.T) {
			runWatcher(t, true, func(s *presenceFake) {
				if trouble != nil {
					s.expectFenced(t, 10*time.Second, "no worker is missing")
					trouble(s)
				}
				s.setMissing(1)
				s.expectFenced(t, warmTime-time.Millisecond, "shortly after trouble")
				s.expectFenced(t, time.Second, "after a quiet period", 1)
			})
		})
	}
}

// Without its own presence in the broker, a janitor cannot detect trouble there.
func TestNoWorkerIsFencedEarlyWithoutTheJanitorsOwnPresence(t *testing.T) {
	runWatcher(t, true, func(s *presenceFake) {
		time.Sleep(10 * time.Second)
		s.locked(func() { s.noOwnPresence = true })
		close(s.ownPresence)
		s.setMissing(1)
		s.expectFenced(t, time.Minute, "no own presence")
		s.locked(func() { s.noOwnPresence = false })
		s.expectFenced(t, warmTime, "own presence just acquired")
		s.expectFenced(t, 8*time.Second, "own presence for long enough", 1) // includes the pause until the janitor acquires its presence
	})
}

// A janitor that becomes the watcher after a successful wait may fence at once. After a failed wait it may not.
func TestTheNextWatcherMayFenceAtOnce(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprintf("wait fails: %t", fails), func(t *testing.T) {
			runWatcher(t, false, func(s *presenceFake) {
				s.setMissing(1)
				s.expectFenced(t, time.Hour, "another janitor watches")
				if fails {
					s.locked(func() { s.down = true })
					s.watchTurn <- struct{}{}
					synctest.Wait()
					s.locked(func() { s.down = false })
				}
				s.watchTurn <- struct{}{}
				if fails {
					s.expectFenced(t, warmTime, "the wait has failed")
				}
				s.expectFenced(t, 700*time.Millisecond, "the janitor watches", 1)
			})
		})
	}
}
