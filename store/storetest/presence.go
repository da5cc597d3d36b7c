package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Present is a store that sees who is there.
type Present interface {
	store.Store
	presence.Store
}

// RunPresence tests the role Presence. open returns two clients of one store as for Run. disconnect ends all sessions of
// a client from outside, as a network or an operator would; the client can open new ones at once. Nil skips the tests that need it.
func RunPresence(t *testing.T, disconnect func(Present), open func(t *testing.T) (here, elsewhere Present)) {
	for _, test := range []struct {
		name string
		run  func(*presenceSuite)
	}{
		{"a sign is there until it is released", testSign},
		{"only who was shown at the newest renewal is absent", testAbsentShown},
		{"only who lives is absent", testAbsentLive},
		{"who renews over a session of its own is not absent", testOwnSession},
		{"neighbors are the shown runs of one machine", testNeighbors},
		{"a sign outlives the context it was shown with", testSignContext},
		{"a sign waits for an earlier session", testSignWaits},
		{"a sign ends with its session", testSignDisconnected},
		{"signs end with their store", testSignClosed},
		{"one watches at a time", testWatch},
		{"who is absent is fenced", testFenceAbsent},
		{"who came back is not fenced", testFenceAbsentBack},
		{"nobody is fenced for an old question or by a young server", testFenceAbsentDoubts},
		{"one of many fences", testFenceAbsentConcurrently},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here, elsewhere := open(t)
			test.run(&presenceSuite{&suite{T: t, Store: here, ctx: t.Context()}, here, elsewhere, disconnect})
		})
	}
}

// presenceSuite is one test with two clients of its store.
type presenceSuite struct {
	*suite
	here, elsewhere Present
	disconnect      func(Present)
}

// show shows a sign that is released when the test ends.
func (s *presenceSuite) show(from Present, run holdfast.RunID) (gone <-chan struct{}, release func()) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	gone, release, err := from.Show(ctx, run)
	s.must(err)
	s.Cleanup(release)
	return gone, release
}

// renew says whether the run's signs are shown.
func (s *presenceSuite) renew(run holdfast.RunID, shown bool) {
	s.Helper()
	_, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour, Shown: shown})
	s.must(err)
}

// openShown opens a run whose newest renewal said that it is shown.
func (s *presenceSuite) openShown() holdfast.RunID {
	s.Helper()
	run := s.openRun()
	s.renew(run, true)
	return run
}

// absent lists the runs that are absent.
func (s *presenceSuite) absent() []presence.Absence {
	s.Helper()
	absences, err := s.here.Absent(s.ctx)
	s.must(err)
	return absences
}

// onlyAbsent is the one absence that there is.
func (s *presenceSuite) onlyAbsent() presence.Absence {
	s.Helper()
	absences := s.absent()
	if len(absences) != 1 {
		s.Fatalf("absent are %+v, want one", absences)
	}
	return absences[0]
}

// absentAre checks which runs are absent. They are so as soon as their sessions have ended.
func (s *presenceSuite) absentAre(when string, want ...holdfast.RunID) {
	s.Helper()
	for _, there := range []Present{s.here, s.elsewhere} {
		var got []holdfast.RunID
		absences, err := there.Absent(s.ctx)
		s.must(err)
		for _, a := range absences {
			got = append(got, a.Run)
		}
		if !slices.Equal(got, want) {
			s.Errorf("%s: absent are %v, want %v", when, got, want)
		}
	}
}

// becomesAbsent waits until the run is the only one that is absent.
func (s *presenceSuite) becomesAbsent(run holdfast.RunID) {
	s.Helper()
	s.eventually("absent", func() bool {
		absences, err := s.elsewhere.Absent(s.ctx)
		s.must(err)
		return len(absences) == 1 && absences[0].Run == run
	})
}

// ends waits until the session has ended.
func (s *presenceSuite) ends(gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
	case <-time.After(patience):
		s.Fatal("nobody says that the session has ended")
	}
}

func (s *presenceSuite) isThere(when string, gone <-chan struct{}) {
	s.Helper()
	select {
	case <-gone:
		s.Errorf("%s: the sign is gone", when)
	default:
	}
}

func testSign(s *presenceSuite) {
	run := s.openRun()
	gone, release := s.show(s.here, run)
	s.absentAre("nothing was said")
	s.renew(run, true)
	s.absentAre("its sign is there")
	release()
	s.absentAre("its sign was released", run)
	release()
	s.isThere("released", gone)
	runs, err := s.Runs(s.ctx, false)
	s.must(err)
	if got := s.onlyAbsent().RenewedAt; !got.Equal(runs[0].RenewedAt) {
		s.Errorf("it renewed at %s, want %s", got, runs[0].RenewedAt)
	}
	_, release = s.show(s.elsewhere, run)
	s.absentAre("another process shows it")
	release()
	s.absentAre("and not any more", run)
}

func testAbsentShown(s *presenceSuite) {
	first, second, third := s.openShown(), s.openShown(), s.openRun()
	s.renew(third, false)
	s.absentAre("the first two were shown", first, second)
	s.renew(first, false)
	s.absentAre("the first one took it back", second)
	s.show(s.here, second)
	s.show(s.here, third)
	s.renew(third, true)
	s.renew(first, true)
	s.absentAre("the others are there", first)
}

func testAbsentLive(s *presenceSuite) {
	live, closed, dead := s.openShown(), s.openShown(), s.openShown()
	s.absentAre("all live", live, closed, dead)
	s.must(s.CloseRun(s.ctx, closed, false))
	_, err := s.Renew(s.ctx, store.Renewal{Run: dead, Lease: time.Microsecond, Shown: true})
	s.must(err)
	s.eventually("fenced", func() bool {
		fenced, err := s.Fence(s.ctx, s.now(), 0, 0)
		s.must(err)
		return len(fenced) == 1
	})
	s.absentAre("two are over", live)
}

// renewOver renews over a session of the run's own, and says that its signs are shown.
func (s *presenceSuite) renewOver(from Present, run holdfast.RunID) {
	s.Helper()
	_, err := from.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour, Shown: true, OwnSession: true})
	s.must(err)
}

func testOwnSession(s *presenceSuite) {
	run, other := s.openShown(), s.openShown()
	seen := s.absent()
	s.renewOver(s.here, run)
	s.absentAre("the other one has no session", other)
	s.renewOver(s.here, run)
	s.absentAre("it renews again", other)
	runs, err := s.Runs(s.ctx, false)
	s.must(err)
	s.notFenced("its session is there", presence.Absence{Run: run, RenewedAt: runs[1].RenewedAt})
	s.must(s.CloseRun(s.ctx, other, false))
	if s.disconnect != nil {
		s.disconnect(s.here)
		s.becomesAbsent(run)
		s.renewOver(s.here, run)
		s.absentAre("it renews over a new session")
	}
	s.must(s.CloseRun(s.ctx, run, false))
	s.absentAre("both have ended")
	last := s.openRun()
	s.renewOver(s.elsewhere, last)
	s.absentAre("the last one renews")
	s.must(s.elsewhere.Close())
	s.eventually("absent", func() bool { return len(s.absent()) == 1 })
	if !s.fenceAbsent(s.onlyAbsent(), s.now(), 0) || len(seen) != 2 {
		s.Errorf("not fenced, although its process is gone; at first absent were %v", seen)
	}
}

func testNeighbors(s *presenceSuite) {
	const boot, place = "a boot", "pid:[1] time:[2]"
	open := func(pid int, process store.Process) holdfast.RunID {
		run, err := s.OpenRun(s.ctx, store.RunInfo{Name: "worker", PID: pid, Process: process}, time.Hour)
		s.must(err)
		return run
	}
	listed := func(when, boot, place string, want ...presence.Neighbor) {
		s.Helper()
		got, err := s.elsewhere.Neighbors(s.ctx, boot, place)
		s.must(err)
		for i := range got {
			if got[i].RenewedAt.IsZero() {
				s.Errorf("%s: run %s never renewed", when, got[i].Run)
			}
			got[i].RenewedAt = time.Time{}
		}
		if !slices.Equal(got, want) {
			s.Errorf("%s: neighbors are %+v, want %+v", when, got, want)
		}
	}
	first := open(1, store.Process{Boot: boot, Namespace: place, Started: 7})
	second := open(2, store.Process{Boot: boot, Namespace: place, Started: 8})
	unknown := open(3, store.Process{})
	listed("nobody is shown", boot, place)
	for _, run := range []holdfast.RunID{
		first, second, unknown,
		open(1, store.Process{Boot: "another", Namespace: place, Started: 7}),
		open(1, store.Process{Boot: boot, Namespace: "another", Started: 7}),
		open(1, store.Process{Boot: boot, Namespace: place}),
	} {
		s.renew(run, true)
	}
	open(4, store.Process{Boot: boot, Namespace: place, Started: 9}) // is not shown
	listed("two are shown", boot, place, presence.Neighbor{Run: first, PID: 1, Started: 7}, presence.Neighbor{Run: second, PID: 2, Started: 8})
	listed("of no machine", "", "")
	s.renew(second, false)
	listed("the second one is not shown any more", boot, place, presence.Neighbor{Run: first, PID: 1, Started: 7})
	s.must(s.CloseRun(s.ctx, first, false))
	listed("the first one has ended", boot, place)
}

func testSignContext(s *presenceSuite) {
	run := s.openShown()
	ctx, cancel := context.WithCancel(s.ctx)
	gone, release, err := s.here.Show(ctx, run)
	s.must(err)
	defer release()
	watched, stop, err := s.here.Watch(ctx)
	s.must(err)
	defer stop()
	cancel()
	s.absentAre("the context is done")
	s.isThere("the context is done", gone)
	s.isThere("the context is done", watched)
}

// refusedUntil checks that a call waits until its context is done.
func (s *presenceSuite) refusedUntil(what string, call func(context.Context) (<-chan struct{}, func(), error)) {
	s.Helper()
	brief, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancel()
	gone, release, err := call(brief)
	if !errors.Is(err, holdfast.ErrUnavailable) || gone != nil || release != nil || brief.Err() == nil {
		s.Errorf("%s: %v, while it is another one's", what, err)
	}
	left, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, _, err := call(left); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("%s: %v, for a caller that left", what, err)
	}
}

func testSignWaits(s *presenceSuite) {
	run, other := s.openShown(), s.openShown()
	_, release := s.show(s.here, run)
	show := func(ctx context.Context) (<-chan struct{}, func(), error) { return s.elsewhere.Show(ctx, run) }
	s.refusedUntil("show", show)
	s.absentAre("who waited in vain has changed nothing", other)
	s.show(s.elsewhere, other)
	shown := make(chan func(), 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		defer cancel()
		_, release, err := show(ctx)
		if err != nil {
			s.Errorf("show: %v", err)
		}
		shown <- release
	}()
	release()
	if release = <-shown; release != nil {
		s.absentAre("who waited shows it")
		release()
		s.absentAre("both have released it", run)
	}
}

func testSignDisconnected(s *presenceSuite) {
	if s.disconnect == nil {
		s.Skip("nothing can end these sessions from outside")
	}
	run, other := s.openShown(), s.openShown()
	gone, release := s.show(s.here, run)
	stays, _ := s.show(s.elsewhere, other)
	s.disconnect(s.here)
	s.ends(gone)
	s.becomesAbsent(run)
	s.isThere("it is another client's", stays)
	s.renew(run, false)
	s.absentAre("it has said so")
	release()
	again, _ := s.show(s.here, run)
	s.renew(run, true)
	s.absentAre("it is there again")
	s.isThere("shown again", again)
}

func testSignClosed(s *presenceSuite) {
	run := s.openShown()
	gone, release := s.show(s.elsewhere, run)
	watched, stop, err := s.elsewhere.Watch(s.ctx)
	s.must(err)
	s.must(s.elsewhere.Close())
	s.ends(gone)
	s.ends(watched)
	release()
	stop()
	s.eventually("absent", func() bool { return len(s.absent()) == 1 })
	if _, _, err := s.elsewhere.Show(s.ctx, run); !errors.Is(err, holdfast.ErrUnavailable) {
		s.Errorf("a closed store shows a sign: %v", err)
	}
}

func testWatch(s *presenceSuite) {
	run := s.openShown() // whose sign is another thing
	s.show(s.elsewhere, run)
	gone, release, err := s.here.Watch(s.ctx)
	s.must(err)
	s.absentAre("somebody watches")
	s.refusedUntil("watch", s.elsewhere.Watch)
	next := make(chan func(), 1)
	go func() {
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		defer cancel()
		_, release, err := s.elsewhere.Watch(ctx)
		if err != nil {
			s.Errorf("watch: %v", err)
		}
		next <- release
	}()
	if s.disconnect == nil {
		release()
	} else {
		s.disconnect(s.here)
		s.ends(gone)
		release()
	}
	if release = <-next; release != nil {
		s.refusedUntil("watch again", s.here.Watch)
		release()
	}
	_, release, err = s.here.Watch(s.ctx)
	s.must(err)
	release()
}
