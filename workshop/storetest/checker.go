package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// Checkable is a store that checks its own database.
type Checkable interface {
	desk.Store
	doctor.StoreChecker
}

// RunChecker tests the role doctor.StoreChecker. open returns a store, as for Run.
func RunChecker(t *testing.T, open func(t *testing.T) Checkable) {
	for _, test := range []struct {
		name string
		run  func(*suite, Checkable)
	}{
		{"the settings of a test store are good", testSettings},
		{"old outbox entries are counted", testOldOutboxEntries},
		{"the time since the newest turn is returned", testNewestTurn},
		{"failing duties are returned", testFailingDuties},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here := open(t)
			test.run(&suite{T: t, Store: here, ctx: t.Context()}, here)
		})
	}
}

func testSettings(s *suite, here Checkable) {
	checks, err := here.Settings(s.ctx)
	s.must(err)
	if len(checks) == 0 {
		s.Error("Settings returned no checks")
	}
	for _, c := range checks {
		if c.Name == "" || c.Detail == "" || (c.Severity == doctor.OK) != (c.Remedy == holdfast.Hint{}) {
			s.Errorf("incomplete check: %+v", c)
		}
		// make test starts a PostgreSQL with fsync = off.
		if c.Severity == doctor.Failed && !strings.HasPrefix(c.Detail, "fsync = off") {
			s.Errorf("failed check: %+v", c)
		}
	}
}

func (s *suite) janitors(here Checkable, age time.Duration) doctor.Janitors {
	s.Helper()
	janitors, err := here.Janitors(s.ctx, age)
	s.must(err)
	return janitors
}

func testOldOutboxEntries(s *suite, here Checkable) {
	if found := s.janitors(here, 0); found.OutboxEntries != 0 || found.Oldest != 0 {
		s.Errorf("empty store: got %+v", found)
	}
	first := s.insertEntry(time.Hour)
	s.eventually("the first entry is older than 5 ms", func() bool { return s.janitors(here, 5*time.Millisecond).OutboxEntries == 1 })
	s.insertEntry(0)
	s.eventually("both entries are counted", func() bool { return s.janitors(here, 0).OutboxEntries == 2 })
	if found := s.janitors(here, 0); found.Oldest < 5*time.Millisecond || found.Oldest > time.Hour {
		s.Errorf("the first entry is older than 5 ms: got %+v", found)
	}
	if found := s.janitors(here, time.Hour); found.OutboxEntries != 0 || found.Oldest != 0 {
		s.Errorf("no entry is an hour old: got %+v", found)
	}
	s.must(s.DeleteOutbox(s.ctx, []int64{first.ID}))
	if found := s.janitors(here, 0); found.OutboxEntries != 1 {
		s.Errorf("one entry was deleted: got %+v", found)
	}
}

func testNewestTurn(s *suite, here Checkable) {
	if found := s.janitors(here, 0); found.LastTurn >= 0 {
		s.Errorf("no turn was taken: got %+v, want a negative LastTurn", found)
	}
	before := s.now()
	s.turn("duty", time.Hour)
	s.eventually("the clock advances", func() bool { return s.janitors(here, 0).LastTurn > 0 })
	if found := s.janitors(here, 0); found.LastTurn > s.now().Sub(before) {
		s.Errorf("LastTurn is before the turn: got %+v", found)
	}
	earlier := s.janitors(here, 0).LastTurn
	s.eventually("the clock advances", func() bool { return s.janitors(here, 0).LastTurn > earlier })
	s.turn("another", time.Hour)
	if found := s.janitors(here, 0); found.LastTurn > s.now().Sub(before) {
		s.Errorf("LastTurn is not the newest turn: got %+v", found)
	}
}

func testFailingDuties(s *suite, here Checkable) {
	report := func(f store.DutyFailure) {
		s.Helper()
		s.must(s.ReportDuty(s.ctx, f))
	}
	fold := store.DutyFailure{Janitor: "ann", Duty: "fold", Error: "no\x00", For: time.Minute, Valid: time.Hour}
	report(fold)
	fold.Error, fold.For = "refused", time.Hour
	report(fold)
	report(store.DutyFailure{Janitor: "bob", Duty: "fold", Error: "no", Valid: time.Hour})
	report(store.DutyFailure{Janitor: "bob", Duty: "prune", Error: "no", Valid: time.Microsecond})
	s.eventually("the report of an ended process is no longer valid", func() bool { return len(s.janitors(here, 0).Failing) == 2 })
	found := s.janitors(here, 0).Failing
	if f := found[0]; f.Janitor != "ann" || f.Duty != "fold" || f.Error != "refused" || f.For < time.Hour || found[1].Janitor != "bob" {
		s.Errorf("got %+v", found)
	}
	report(store.DutyFailure{Janitor: "ann", Duty: "fold"})
	report(store.DutyFailure{Janitor: "ann", Duty: "unknown"})
	if found := s.janitors(here, 0).Failing; len(found) != 1 || found[0].Janitor != "bob" {
		s.Errorf("after one duty works again: got %+v", found)
	}
}
