package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Examinable is a store that can be asked how it is kept.
type Examinable interface {
	store.Store
	store.Examiner
}

// RunExaminer tests the role Examiner. open returns a store as for Run.
func RunExaminer(t *testing.T, open func(t *testing.T) Examinable) {
	for _, test := range []struct {
		name string
		run  func(*suite, Examinable)
	}{
		{"settings are good in tests", testSettings},
		{"old receipts are counted", testSignsOfReceipts},
		{"turns are signs of life", testSignsOfTurns},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here := open(t)
			test.run(&suite{T: t, Store: here, ctx: t.Context()}, here)
		})
	}
}

func testSettings(s *suite, here Examinable) {
	findings, err := here.Settings(s.ctx)
	s.must(err)
	if len(findings) == 0 {
		s.Error("nothing was looked at")
	}
	for _, f := range findings {
		if f.Check == "" || f.Detail == "" || (f.Grade == holdfast.GradeOK) != (f.Remedy == "") {
			s.Errorf("incomplete: %+v", f)
		}
		// make test starts a PostgreSQL that does not wait for its disk.
		if f.Grade == holdfast.GradeFailed && !strings.HasPrefix(f.Detail, "fsync = off") {
			s.Errorf("tests need a sound store: %+v", f)
		}
	}
}

func (s *suite) signs(here Examinable, old time.Duration) store.Signs {
	s.Helper()
	signs, err := here.Signs(s.ctx, old)
	s.must(err)
	return signs
}

func testSignsOfReceipts(s *suite, here Examinable) {
	if signs := s.signs(here, 0); signs.Receipts != 0 || signs.Oldest != 0 {
		s.Errorf("of an empty store: %+v", signs)
	}
	first := s.insertReceipt(time.Hour)
	s.eventually("older than a few milliseconds", func() bool { return s.signs(here, 5*time.Millisecond).Receipts == 1 })
	s.insertReceipt(0)
	s.eventually("both older than nothing", func() bool { return s.signs(here, 0).Receipts == 2 })
	if signs := s.signs(here, 0); signs.Oldest < 5*time.Millisecond || signs.Oldest > time.Hour {
		s.Errorf("the first is older: %+v", signs)
	}
	if signs := s.signs(here, time.Hour); signs.Receipts != 0 || signs.Oldest != 0 {
		s.Errorf("none is an hour old: %+v", signs)
	}
	s.must(s.Discharge(s.ctx, []int64{first.ID}))
	if signs := s.signs(here, 0); signs.Receipts != 1 {
		s.Errorf("one is gone: %+v", signs)
	}
}

func testSignsOfTurns(s *suite, here Examinable) {
	if signs := s.signs(here, 0); signs.Turned >= 0 {
		s.Errorf("nobody has taken a turn: %+v", signs)
	}
	before := s.now()
	s.turn("duty", time.Hour)
	s.eventually("time passes", func() bool { return s.signs(here, 0).Turned > 0 })
	if signs := s.signs(here, 0); signs.Turned > s.now().Sub(before) {
		s.Errorf("longer ago than possible: %+v", signs)
	}
	was := s.signs(here, 0).Turned
	s.eventually("time passes", func() bool { return s.signs(here, 0).Turned > was })
	s.turn("another", time.Hour)
	if signs := s.signs(here, 0); signs.Turned > s.now().Sub(before) {
		s.Errorf("the newest turn counts: %+v", signs)
	}
}
