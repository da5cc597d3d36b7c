package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var leaseTests = []test{
	{"lead a run through its life", testRunLife},
	{"list runs, newest first", testRunList},
	{"move cursors forward only", testRenewCursors},
	{"bring word of cancelled tasks", testRenewNews},
	{"ask a run to drain", testDrain},
	{"end for a process that the run is not of", testRenewAnother},
	{"name one history", testHistory},
}

func testRunLife(s *suite) {
	info := store.RunInfo{Name: "host/7", Host: "host", PID: 7, Version: "v1", Concurrency: 4, Lanes: []string{"a", "b"}, Types: []string{"x", "y"}}
	run, err := s.OpenRun(s.ctx, info, time.Minute)
	s.must(err)
	news, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour, Taken: 5, Settled: 3, Running: 2})
	s.must(err)
	// The lanes a run names are known before the first task comes.
	if news.Draining || len(news.Cancelled) > 0 || !slices.Equal(news.Lanes, []string{"a", "b", defaultLane}) {
		s.Errorf("the news are %+v", news)
	}
	runs, err := s.Runs(s.ctx, false)
	s.must(err)
	if len(runs) != 1 {
		s.Fatalf("there are %d runs", len(runs))
	}
	got := runs[0]
	if got.ID != run || got.Name != info.Name || got.Host != info.Host || got.PID != 7 || got.Version != "v1" || got.Concurrency != 4 ||
		!slices.Equal(got.Lanes, info.Lanes) || !slices.Equal(got.Types, info.Types) || got.State != store.RunLive || got.Taken != 5 || got.Settled != 3 || got.Running != 2 || !got.EndedAt.IsZero() {
		s.Errorf("the run is %+v", got)
	}
	if lease := got.LeaseUntil.Sub(got.RenewedAt); lease != time.Hour || got.RenewedAt.Before(got.StartedAt) {
		s.Errorf("renewed for %s: %+v", lease, got)
	}

	s.must(s.CloseRun(s.ctx, run, true))
	s.must(s.CloseRun(s.ctx, run, true))
	if _, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("a closed run was renewed: %v", err)
	}
	if _, err := s.Renew(s.ctx, store.Renewal{Run: 1 << 60, Lease: time.Hour}); !errors.Is(err, store.ErrFenced) {
		s.Errorf("a run that never was has been renewed: %v", err)
	}
	again := s.openRun()
	if again <= run {
		s.Errorf("the next run is %s, after %s", again, run)
	}
	if runs, err = s.Runs(s.ctx, false); err != nil || len(runs) != 1 || runs[0].Types != nil {
		s.Errorf("a run that does not name its types is %+v, %v", runs, err)
	}
}

func (s *suite) fencedFor(r store.Renewal) {
	s.Helper()
	if _, err := s.Renew(s.ctx, r); !errors.Is(err, store.ErrFenced) {
		s.Errorf("renewed by %+v: %v", r.By, err)
	}
}

func testRunList(s *suite) {
	first, second, third := s.openRun(), s.openRun(), s.openRun()
	s.must(s.CloseRun(s.ctx, second, true))
	s.fence(third)
	list := func(all bool) (ids []holdfast.RunID, states []store.RunState) {
		runs, err := s.Runs(s.ctx, all)
		s.must(err)
		for _, run := range runs {
			ids, states = append(ids, run.ID), append(states, run.State)
			if (run.State == store.RunLive) != run.EndedAt.IsZero() {
				s.Errorf("run %s is %s and ended at %s", run.ID, run.State, run.EndedAt)
			}
		}
		return ids, states
	}
	if ids, _ := list(false); !slices.Equal(ids, []holdfast.RunID{first}) {
		s.Errorf("live are %v", ids)
	}
	ids, states := list(true)
	if !slices.Equal(ids, []holdfast.RunID{third, second, first}) || !slices.Equal(states, []store.RunState{store.RunDead, store.RunStopped, store.RunLive}) {
		s.Errorf("all are %v, %v", ids, states)
	}
	got, err := s.RunStates(s.ctx, []holdfast.RunID{first, third, 1 << 60})
	s.must(err)
	if len(got) != 2 || got[first].State != store.RunLive || got[third].State != store.RunDead {
		s.Errorf("the states are %v", got)
	}
}

func testRenewCursors(s *suite) {
	run := s.openRun()
	for _, r := range []store.Renewal{{Taken: 9, Settled: 7}, {Taken: 4, Settled: 2}} { // the second one came late
		r.Run, r.Lease = run, time.Hour
		_, err := s.Renew(s.ctx, r)
		s.must(err)
	}
	states, err := s.RunStates(s.ctx, []holdfast.RunID{run})
	s.must(err)
	if states[run].Settled != 7 {
		s.Errorf("settled through %d, want 7", states[run].Settled)
	}
}

func testRenewNews(s *suite) {
	mine, theirs := s.openRun(), s.openRun()
	tasks := s.claimed(mine, s.inserts(2)...)
	s.move(s.claimed(theirs, s.inserts(1)...)[0], holdfast.Asked(holdfast.EventCancel))
	s.move(tasks[0], holdfast.Asked(holdfast.EventCancel))
	renew := func() []message.Ticket {
		news, err := s.Renew(s.ctx, store.Renewal{Run: mine, Lease: time.Hour})
		s.must(err)
		return news.Cancelled
	}
	if got, want := renew(), []message.Ticket{{Task: tasks[0].ID, Attempt: 1}}; !slices.Equal(got, want) {
		s.Errorf("cancelled are %v, want %v", got, want)
	}
	if got := renew(); len(got) > 0 {
		s.Errorf("told twice: %v", got)
	}
	s.move(tasks[1], holdfast.Asked(holdfast.EventCancel))
	if got, want := renew(), []message.Ticket{{Task: tasks[1].ID, Attempt: 1}}; !slices.Equal(got, want) {
		s.Errorf("cancelled are %v, want %v", got, want)
	}
	s.move(s.task(s.inserts(1)[0].Task), holdfast.Asked(holdfast.EventCancel))
	if got := renew(); len(got) > 0 {
		s.Errorf("word of a task that nobody ran: %v", got)
	}
}

func testDrain(s *suite) {
	run := s.openRun()
	s.must(s.Drain(s.ctx, run))
	s.must(s.Drain(s.ctx, run))
	news, err := s.Renew(s.ctx, store.Renewal{Run: run, Lease: time.Hour})
	s.must(err)
	if !news.Draining {
		s.Error("the run was not told to drain")
	}
	if runs, err := s.Runs(s.ctx, false); err != nil || !runs[0].Draining {
		s.Errorf("the list does not show it: %+v, %v", runs, err)
	}
	s.must(s.CloseRun(s.ctx, run, true))
	if err := s.Drain(s.ctx, run); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("draining a closed run: %v", err)
	}
	if err := s.Drain(s.ctx, 1<<60); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("draining a run that never was: %v", err)
	}
}
