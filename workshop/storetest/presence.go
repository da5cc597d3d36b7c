package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// Present is a store with presence locks.
type Present interface {
	store.Store
	presence.Store
}

// WorkerPresence tests the role presence.Store. open returns two clients of one store, which is empty and migrated, as
// for Run. disconnect ends all sessions of a client, as a network fault or an operator would. The client can open new
// sessions at once. If disconnect is nil, the tests skip the parts that need it.
func WorkerPresence(t *testing.T, disconnect func(Present), open func(t *testing.T) (here, elsewhere Present)) {
	for _, test := range []struct {
		name string
		run  func(*presenceSuite)
	}{
		{"a worker is present until its lock is released", testLock},
		{"a worker is missing only if its latest renewal said that it was present", testMissingPresent},
		{"a worker is missing only if it is live", testMissingLive},
		{"a worker with a separate session for renewals is not missing", testOwnSession},
		{"neighbors are the present workers of one machine", testNeighbors},
		{"the context of Acquire does not affect an acquired lock", testLockContext},
		{"Acquire waits for an earlier session", testLockWaits},
		{"a lock ends with its session", testLockDisconnected},
		{"Close ends the locks of a store", testLockClosed},
		{"one process at a time is the watcher", testWatch},
		{"FenceMissing fences a missing worker", testFenceMissing},
		{"FenceMissing fences no worker that is present again", testFenceMissingReturned},
		{"FenceMissing does nothing if it is late or the server has just started", testFenceMissingUncertain},
		{"one of several callers fences a worker", testFenceMissingConcurrently},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here, elsewhere := open(t)
			test.run(&presenceSuite{&suite{T: t, Store: whole(here), ctx: t.Context()}, here, elsewhere, disconnect})
		})
	}
}

// presenceSuite is one test with two clients of its store.
type presenceSuite struct {
	*suite
	here, elsewhere Present
	disconnect      func(Present)
}

// acquire acquires the presence lock of a worker. The lock is released when the test ends.
func (s *presenceSuite) acquire(from Present, worker holdfast.WorkerID) (gone <-chan struct{}, release func()) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, slow.Patience())
	defer cancel()
	gone, release, err := from.Acquire(ctx, worker)
	s.must(err)
	s.Cleanup(release)
	return gone, release
}

// renew sends a renewal of a worker. present is its Renewal.Present.
func (s *presenceSuite) renew(worker holdfast.WorkerID, present bool) {
	s.Helper()
	_, err := s.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour, Present: present})
	s.must(err)
}

// registerPresent registers a worker whose latest renewal said that it is present. The worker has no presence lock.
func (s *presenceSuite) registerPresent() holdfast.WorkerID {
	s.Helper()
	worker := s.registerWorker()
	s.renew(worker, true)
	return worker
}

// missing returns the missing workers.
func (s *presenceSuite) missing() []presence.MissingWorker {
	s.Helper()
	missing, err := s.here.Missing(s.ctx)
	s.must(err)
	return missing
}

// onlyMissing returns the missing worker. The test fails if there is not exactly one.
func (s *presenceSuite) onlyMissing() presence.MissingWorker {
	s.Helper()
	missing := s.missing()
	if len(missing) != 1 {
		s.Fatalf("Missing returned %+v, want one worker", missing)
	}
	return missing[0]
}

// wantMissing checks which workers are missing. A worker is missing as soon as its session has ended.
func (s *presenceSuite) wantMissing(when string, want ...holdfast.WorkerID) {
	s.Helper()
	for _, client := range []Present{s.here, s.elsewhere} {
		var got []holdfast.WorkerID
		missing, err := client.Missing(s.ctx)
		s.must(err)
		for _, m := range missing {
			got = append(got, m.Worker)
		}
		if !slices.Equal(got, want) {
			s.Errorf("%s: Missing returned %v, want %v", when, got, want)
		}
	}
}

// eventuallyMissing waits until only this worker is missing.
func (s *presenceSuite) eventuallyMissing(worker holdfast.WorkerID) {
	s.Helper()
	s.eventually("the worker is missing", func() bool {
		missing, err := s.elsewhere.Missing(s.ctx)
		s.must(err)
		return len(missing) == 1 && missing[0].Worker == worker
	})
}

// awaitLoss waits until gone is closed.
func (s *presenceSuite) awaitLoss(gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
	case <-time.After(slow.Patience()):
		s.Fatal("the session has ended, but gone is not closed")
	}
}

// wantNotLost checks that gone is not closed.
func (s *presenceSuite) wantNotLost(when string, gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
		s.Errorf("%s: gone is closed", when)
	default:
	}
}

func testLock(s *presenceSuite) {
	worker := s.registerWorker()
	gone, release := s.acquire(s.here, worker)
	s.wantMissing("no renewal said that the worker is present")
	s.renew(worker, true)
	s.wantMissing("the worker has its lock")
	release()
	s.wantMissing("the lock was released", worker)
	release()
	s.wantNotLost("the lock was released twice", gone)
	workers, err := s.Workers(s.ctx, false)
	s.must(err)
	if got := s.onlyMissing().RenewedAt; !got.Equal(workers[0].RenewedAt) {
		s.Errorf("RenewedAt is %s, want %s", got, workers[0].RenewedAt)
	}
	_, release = s.acquire(s.elsewhere, worker)
	s.wantMissing("another process has the lock")
	release()
	s.wantMissing("the other process released the lock", worker)
}

func testMissingPresent(s *presenceSuite) {
	first, second, third := s.registerPresent(), s.registerPresent(), s.registerWorker()
	s.renew(third, false)
	s.wantMissing("the first two workers said that they are present", first, second)
	s.renew(first, false)
	s.wantMissing("the first worker said that it is not present", second)
	s.acquire(s.here, second)
	s.acquire(s.here, third)
	s.renew(third, true)
	s.renew(first, true)
	s.wantMissing("the others have their locks", first)
}

func testMissingLive(s *presenceSuite) {
	live, stopped, dead := s.registerPresent(), s.registerPresent(), s.registerPresent()
	s.wantMissing("all are live", live, stopped, dead)
	s.must(s.DeregisterWorker(s.ctx, stopped, false))
	_, err := s.Renew(s.ctx, store.Renewal{Worker: dead, Lease: time.Microsecond, Present: true})
	s.must(err)
	s.eventually("Fence fences a worker", func() bool {
		fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
		s.must(err)
		return len(fenced) == 1
	})
	s.wantMissing("two workers have ended", live)
}

// renewOverSession sends a renewal over a separate session of the worker. The renewal says that the worker is present.
func (s *presenceSuite) renewOverSession(from Present, worker holdfast.WorkerID) {
	s.Helper()
	_, err := from.Renew(s.ctx, store.Renewal{Worker: worker, Lease: time.Hour, Present: true, OwnSession: true})
	s.must(err)
}

func testOwnSession(s *presenceSuite) {
	worker, other := s.registerPresent(), s.registerPresent()
	before := s.missing()
	s.renewOverSession(s.here, worker)
	s.wantMissing("the other worker has no session", other)
	s.renewOverSession(s.here, worker)
	s.wantMissing("the worker renews again", other)
	workers, err := s.Workers(s.ctx, false)
	s.must(err)
	s.wantNotFenced("the session of the worker exists", presence.MissingWorker{Worker: worker, RenewedAt: workers[1].RenewedAt})
	s.must(s.DeregisterWorker(s.ctx, other, false))
	if s.disconnect != nil {
		s.disconnect(s.here)
		s.eventuallyMissing(worker)
		s.renewOverSession(s.here, worker)
		s.wantMissing("the worker renews over a new session")
	}
	s.must(s.DeregisterWorker(s.ctx, worker, false))
	s.wantMissing("both workers have ended")
	last := s.registerWorker()
	s.renewOverSession(s.elsewhere, last)
	s.wantMissing("the last worker renews")
	s.must(s.elsewhere.Close())
	s.eventually("a worker is missing", func() bool { return len(s.missing()) == 1 })
	if !s.fenceMissing(s.onlyMissing(), s.now(), 0) || len(before) != 2 {
		s.Errorf("the worker of the closed store was not fenced, or the test began with wrong missing workers: %v", before)
	}
}

func testNeighbors(s *presenceSuite) {
	const boot, namespace = "a boot", "pid:[1] time:[2]"
	register := func(pid int, process store.Process) holdfast.WorkerID {
		worker, err := s.RegisterWorker(s.ctx, store.WorkerInfo{Name: "worker", PID: pid, Process: process}, time.Hour)
		s.must(err)
		return worker
	}
	wantNeighbors := func(when, boot, namespace string, neighbors ...presence.Neighbor) {
		s.Helper()
		got, err := s.elsewhere.Neighbors(s.ctx, boot, namespace)
		s.must(err)
		for i := range got {
			if got[i].RenewedAt.IsZero() {
				s.Errorf("%s: worker %s has no time of renewal", when, got[i].Worker)
			}
			got[i].RenewedAt = time.Time{}
		}
		if !slices.Equal(got, neighbors) {
			s.Errorf("%s: Neighbors returned %+v, want %+v", when, got, neighbors)
		}
	}
	first := register(1, store.Process{Boot: boot, Namespace: namespace, Started: 7})
	second := register(2, store.Process{Boot: boot, Namespace: namespace, Started: 8})
	unknown := register(3, store.Process{})
	wantNeighbors("no worker is present", boot, namespace)
	for _, worker := range []holdfast.WorkerID{
		first, second, unknown,
		register(1, store.Process{Boot: "another", Namespace: namespace, Started: 7}),
		register(1, store.Process{Boot: boot, Namespace: "another", Started: 7}),
		register(1, store.Process{Boot: boot, Namespace: namespace}),
	} {
		s.renew(worker, true)
	}
	register(4, store.Process{Boot: boot, Namespace: namespace, Started: 9}) // never says that it is present
	wantNeighbors("two workers are present", boot, namespace, presence.Neighbor{Worker: first, PID: 1, Started: 7}, presence.Neighbor{Worker: second, PID: 2, Started: 8})
	wantNeighbors("the boot and the namespace are unknown", "", "")
	s.renew(second, false)
	wantNeighbors("the second worker is no longer present", boot, namespace, presence.Neighbor{Worker: first, PID: 1, Started: 7})
	s.must(s.DeregisterWorker(s.ctx, first, false))
	wantNeighbors("the first worker has ended", boot, namespace)
}

func testLockContext(s *presenceSuite) {
	worker := s.registerPresent()
	ctx, cancel := context.WithCancel(s.ctx)
	gone, release, err := s.here.Acquire(ctx, worker)
	s.must(err)
	defer release()
	watched, stop, err := s.here.Watch(ctx)
	s.must(err)
	defer stop()
	cancel()
	s.wantMissing("the context is done")
	s.wantNotLost("the context is done", gone)
	s.wantNotLost("the context is done", watched)
}

// wantBusy checks that a call waits until its context is done and then returns ErrUnavailable.
func (s *presenceSuite) wantBusy(what string, call func(context.Context) (<-chan struct{}, func(), error)) {
	s.Helper()
	brief, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	gone, release, err := call(brief)
	if !errors.Is(err, holdfast.ErrUnavailable) || gone != nil || release != nil || brief.Err() == nil {
		s.Errorf("%s while another session has the lock: %v, want ErrUnavailable", what, err)
	}
	canceled, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, _, err := call(canceled); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("%s with a canceled context: %v, want ErrUnavailable", what, err)
	}
}

func testLockWaits(s *presenceSuite) {
	worker, other := s.registerPresent(), s.registerPresent()
	_, release := s.acquire(s.here, worker)
	acquire := func(ctx context.Context) (<-chan struct{}, func(), error) { return s.elsewhere.Acquire(ctx, worker) }
	s.wantBusy("Acquire", acquire)
	s.wantMissing("a call that timed out changed nothing", other)
	s.acquire(s.elsewhere, other)
	acquired := make(chan func(), 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, slow.Patience())
		defer cancel()
		_, release, err := acquire(ctx)
		if err != nil {
			s.Errorf("Acquire: %v", err)
		}
		acquired <- release
	}()
	release()
	if release = <-acquired; release != nil {
		s.wantMissing("the waiting call has the lock")
		release()
		s.wantMissing("both have released the lock", worker)
	}
}

func testLockDisconnected(s *presenceSuite) {
	if s.disconnect == nil {
		s.Skip("the sessions of this store cannot be ended from outside")
	}
	worker, other := s.registerPresent(), s.registerPresent()
	gone, release := s.acquire(s.here, worker)
	otherGone, _ := s.acquire(s.elsewhere, other)
	s.disconnect(s.here)
	s.awaitLoss(gone)
	s.eventuallyMissing(worker)
	s.wantNotLost("the lock is in a session of the other client", otherGone)
	s.renew(worker, false)
	s.wantMissing("the worker said that it is not present")
	release()
	goneAgain, _ := s.acquire(s.here, worker)
	s.renew(worker, true)
	s.wantMissing("the worker has its lock again")
	s.wantNotLost("the lock was acquired again", goneAgain)
}

func testLockClosed(s *presenceSuite) {
	worker := s.registerPresent()
	gone, release := s.acquire(s.elsewhere, worker)
	watched, stop, err := s.elsewhere.Watch(s.ctx)
	s.must(err)
	s.must(s.elsewhere.Close())
	s.awaitLoss(gone)
	s.awaitLoss(watched)
	release()
	stop()
	s.eventually("a worker is missing", func() bool { return len(s.missing()) == 1 })
	if _, _, err := s.elsewhere.Acquire(s.ctx, worker); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("Acquire of a closed store: %v, want ErrUnavailable", err)
	}
}

func testWatch(s *presenceSuite) {
	worker := s.registerPresent() // its presence lock is not the lock of the watcher
	s.acquire(s.elsewhere, worker)
	gone, release, err := s.here.Watch(s.ctx)
	s.must(err)
	s.wantMissing("a watcher exists")
	s.wantBusy("Watch", s.elsewhere.Watch)
	next := make(chan func(), 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, slow.Patience())
		defer cancel()
		_, release, err := s.elsewhere.Watch(ctx)
		if err != nil {
			s.Errorf("Watch: %v", err)
		}
		next <- release
	}()
	if s.disconnect == nil {
		release()
	} else {
		s.disconnect(s.here)
		s.awaitLoss(gone)
		release()
	}
	if release = <-next; release != nil {
		s.wantBusy("Watch again", s.here.Watch)
		release()
	}
	_, release, err = s.here.Watch(s.ctx)
	s.must(err)
	release()
}
