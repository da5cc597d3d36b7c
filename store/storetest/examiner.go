package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store"
)

// Examinable is a store that checks its own database.
type Examinable interface {
	store.Store
	doctor.StoreChecker
}

// RunExaminer tests the role doctor.StoreChecker. open returns a store as for Run.
func RunExaminer(t *testing.T, open func(t *testing.T) Examinable) {
	for _, test := range []struct {
		name string
		run  func(*suite, Examinable)
	}{
		{"settings are good in tests", testSettings},
		{"old outbox entries are counted", testOldOutboxEntries},
		{"the newest turn is known", testNewestTurn},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here := open(t)
			test.run(&suite{T: t, Store: here, ctx: t.Context()}, here)
		})
	}
}

func testSettings(s *suite, here Examinable) {
	checks, err := here.Settings(s.ctx)
	s.must(err)
	if len(checks) == 0 {
		s.Error("nothing was looked at")
	}
	for _, f := range checks {
		if f.Name == "" || f.Detail == "" || (f.Severity == doctor.OK) != (f.Remedy == holdfast.Hint{}) {
			s.Errorf("incomplete: %+v", f)
		}
		// make test starts a PostgreSQL that does not wait for its disk.
		if f.Severity == doctor.Failed && !strings.HasPrefix(f.Detail, "fsync = off") {
			s.Errorf("tests need a sound store: %+v", f)
		}
	}
}

func (s *suite) janitors(here Examinable, age time.Duration) doctor.Janitors {
	s.Helper()
	janitors, err := here.Janitors(s.ctx, age)
	s.must(err)
	return janitors
}

func testOldOutboxEntries(s *suite, here Examinable) {
	if found := s.janitors(here, 0); found.OutboxEntries != 0 || found.Oldest != 0 {
		s.Errorf("of an empty store: %+v", found)
	}
	first := s.insertReceipt(time.Hour)
	s.eventually("older than a few milliseconds", func() bool { return s.janitors(here, 5*time.Millisecond).OutboxEntries == 1 })
	s.insertReceipt(0)
	s.eventually("both older than nothing", func() bool { return s.janitors(here, 0).OutboxEntries == 2 })
	if found := s.janitors(here, 0); found.Oldest < 5*time.Millisecond || found.Oldest > time.Hour {
		s.Errorf("the first is older: %+v", found)
	}
	if found := s.janitors(here, time.Hour); found.OutboxEntries != 0 || found.Oldest != 0 {
		s.Errorf("none is an hour old: %+v", found)
	}
	s.must(s.Discharge(s.ctx, []int64{first.ID}))
	if found := s.janitors(here, 0); found.OutboxEntries != 1 {
		s.Errorf("one is gone: %+v", found)
	}
}

func testNewestTurn(s *suite, here Examinable) {
	if found := s.janitors(here, 0); found.LastTurn >= 0 {
		s.Errorf("nobody has taken a turn: %+v", found)
	}
	before := s.now()
	s.turn("duty", time.Hour)
	s.eventually("time passes", func() bool { return s.janitors(here, 0).LastTurn > 0 })
	if found := s.janitors(here, 0); found.LastTurn > s.now().Sub(before) {
		s.Errorf("longer ago than possible: %+v", found)
	}
	was := s.janitors(here, 0).LastTurn
	s.eventually("time passes", func() bool { return s.janitors(here, 0).LastTurn > was })
	s.turn("another", time.Hour)
	if found := s.janitors(here, 0); found.LastTurn > s.now().Sub(before) {
		s.Errorf("the newest turn counts: %+v", found)
	}
}
