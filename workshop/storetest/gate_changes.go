package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// gateChangeTests change pauses and limits that another person may have changed.
var gateChangeTests = []test{
	{"a second pause changes only what it names", testPauseKeeps},
	{"a second limit changes only what it names", testLimitKeeps},
	{"two persons who change different fields both succeed", testChangesMerge},
	{"resumes the gate with an id, and no later pause of its subject", testResumeGate},
	{"resumes one of the gates of a target by its id", testResumeGateOfTarget},
	{"removes the limit with an id, and no later limit of its scope", testUnsetLimitByID},
	{"changes nothing if a check refuses", testGateCheck},
	{"changes one of several pauses", testOneOfSeveralPauses},
	{"changes one of several limits", testOneOfSeveralLimits},
}

// ben changes what anna has set. His changes have no reason.
var ben = store.Actor{Name: "ben", Surface: store.API}

func (s *suite) changePause(by store.Actor, c store.PauseChange) store.Changed[store.Gate] {
	s.Helper()
	changed, err := s.Pause(s.ctx, by, c)
	s.must(err)
	return changed
}

func (s *suite) changeLimit(by store.Actor, c store.LimitChange) store.Changed[store.Limit] {
	s.Helper()
	changed, err := s.SetLimit(s.ctx, by, c)
	s.must(err)
	return changed
}

func because(reason string) store.Actor {
	return store.Actor{Name: "anna", Surface: store.CommandLine, Reason: reason}
}

func testPauseKeeps(s *suite) {
	subject, hour := store.Subject{Type: kind}, time.Hour
	first := s.changePause(because("the provider is down"), store.PauseChange{Subject: subject, For: &hour})
	if first.Before != nil || first.After.Until.Sub(first.After.ClosedAt) != hour || first.After.Reason != "the provider is down" {
		s.Fatalf("the first pause is %+v", first)
	}
	second := s.changePause(ben, store.PauseChange{Subject: subject})
	after := second.After
	if second.Before == nil || second.Before.Name != "anna" || after.ID != first.After.ID || after.Name != "ben" ||
		!after.Until.Equal(first.After.Until) || after.Reason != first.After.Reason || !after.ClosedAt.Equal(first.After.ClosedAt) {
		s.Errorf("a pause that names nothing makes %+v of %+v", after, first.After)
	}
	third := s.changePause(because("longer"), store.PauseFor(subject, 2*hour)).After
	if third.Reason != "longer" || !third.Until.After(first.After.Until) {
		s.Errorf("a pause with an end and a reason makes %+v", third)
	}
	fourth := s.changePause(ben, store.PauseChange{Subject: subject, NoReason: true}).After
	if fourth.Reason != "" || !fourth.Until.Equal(third.Until) {
		s.Errorf("removing the reason makes %+v of %+v", fourth, third)
	}
	fifth := s.changePause(because("again"), store.PauseFor(subject, 0))
	if fifth.After.Reason != "again" || !fifth.After.Until.IsZero() || !fifth.Before.Until.Equal(third.Until) {
		s.Errorf("removing the end makes %+v", fifth)
	}
	entry := s.auditLog(store.AuditFilter{Subject: subject.String()})[3] // the second pause
	if entry.Name != "ben" || entry.Reason != "" || !strings.Contains(string(entry.After), "the provider is down") || string(entry.Before) != string(entry.After) {
		s.Errorf("the audit log has %+v of a pause that names nothing", entry)
	}
}

func testLimitKeeps(s *suite) {
	rate, n := store.Rate{Count: 5, Per: time.Second}, 3
	first := s.changeLimit(because("a small server"), store.LimitChange{Scope: ofKind, Rate: &rate})
	if first.Before != nil || first.After.Rate != rate || first.After.Concurrency != 0 {
		s.Fatalf("the first limit is %+v", first)
	}
	second := s.changeLimit(ben, store.LimitChange{Scope: ofKind, Concurrency: &n})
	if second.Before == nil || second.Before.Concurrency != 0 || second.After.Rate != rate || second.After.Concurrency != n ||
		second.After.Reason != "a small server" || second.After.Name != "ben" || second.After.ID != first.After.ID {
		s.Errorf("a limit with a concurrency makes %+v", second)
	}
	third := s.changeLimit(ben, store.LimitChange{Scope: ofKind, Rate: new(store.Rate), NoReason: true}).After
	if third.Rate != (store.Rate{}) || third.Concurrency != n || third.Reason != "" {
		s.Errorf("removing the rate and the reason makes %+v", third)
	}
	_, err := s.SetLimit(s.ctx, ben, store.LimitChange{Scope: ofKind, Concurrency: new(int)})
	if !errors.Is(err, holdfast.ErrInvalid) || holdfast.HintOf(err).Kind != holdfast.HintUnsetLimit {
		s.Errorf("removing the rate and the concurrency: %v", err)
	}
	limits, err := s.Limits(s.ctx)
	s.must(err)
	if len(limits) != 1 || limits[0].Concurrency != n || !limits[0].SetAt.Equal(third.SetAt) {
		s.Errorf("after a refused change, the limits are %+v", limits)
	}
	entry := s.auditLog(store.AuditFilter{Subject: ofKind.String()})[1] // the second limit
	if !strings.Contains(string(entry.After), `"5/s"`) || strings.Contains(string(entry.Before), "concurrency") {
		s.Errorf("the audit log has %+v of a limit with a concurrency", entry)
	}
}

// testChangesMerge lets pairs of persons change different fields of one limit and of one pause at the same time.
func testChangesMerge(s *suite) {
	subject := store.Subject{Type: other}
	s.changeLimit(because("start"), store.Limit{Scope: ofKind, Concurrency: 1}.Change())
	s.changePause(because("start"), store.PauseFor(subject, 0))
	for round := range 10 {
		rate, n, wait := store.Rate{Count: 1 + round, Per: time.Second}, 1+round, time.Hour
		changes := []func() error{
			func() error {
				_, err := s.SetLimit(s.ctx, ben, store.LimitChange{Scope: ofKind, Rate: &rate})
				return err
			},
			func() error {
				_, err := s.SetLimit(s.ctx, ben, store.LimitChange{Scope: ofKind, Concurrency: &n})
				return err
			},
			func() error {
				_, err := s.Pause(s.ctx, ben, store.PauseChange{Subject: subject, For: &wait})
				return err
			},
			func() error {
				_, err := s.Pause(s.ctx, because(fmt.Sprint("round ", round)), store.PauseChange{Subject: subject})
				return err
			},
		}
		errs := make([]error, len(changes))
		var changing sync.WaitGroup
		for i, change := range changes {
			changing.Go(func() { errs[i] = change() })
		}
		changing.Wait()
		s.must(errors.Join(errs...))
		limits, err := s.Limits(s.ctx)
		s.must(err)
		if l := limits[0].Limit; l.Rate != rate || l.Concurrency != n || l.Reason != "start" {
			s.Fatalf("round %d: the limit is %+v", round, l)
		}
		if g := s.gates()[0]; g.Until.IsZero() || g.Reason != fmt.Sprint("round ", round) {
			s.Fatalf("round %d: the pause is %+v", round, g)
		}
		s.changePause(because("next"), store.PauseFor(subject, 0))
	}
}

func testResumeGate(s *suite) {
	subject := store.Subject{Type: kind}
	seen := s.pause(subject, 0)
	s.resume(subject)
	later := s.changePause(ben, store.PauseFor(subject, 0)).After
	if _, err := s.ResumeGate(s.ctx, anna, seen.ID, nil); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("ResumeGate of a pause that was resumed and set again returns %v", err)
	}
	if gates := s.gates(); len(gates) != 1 || gates[0].ID != later.ID || gates[0].Name != "ben" {
		s.Errorf("the gates are %+v, want the later pause", gates)
	}
	opened, err := s.ResumeGate(s.ctx, because("done"), later.ID, nil)
	s.must(err)
	if opened.ID != later.ID || opened.Subject != subject || len(s.gates()) > 0 {
		s.Errorf("ResumeGate opens %+v; the gates are %+v", opened, s.gates())
	}
	if entries := s.auditLog(store.AuditFilter{Action: store.ActionResume, Limit: 1}); entries[0].Reason != "done" || entries[0].Subject != subject.String() {
		s.Errorf("the audit log has %+v", entries)
	}

	// If a pause has ended by itself, the next one has another id and none of its fields.
	short := s.pause(subject, time.Millisecond)
	s.eventually("the pause ends", func() bool { return len(s.gates()) == 0 })
	later = s.changePause(ben, store.PauseChange{Subject: subject}).After
	if later.ID == short.ID || later.Reason != "" || !later.Until.IsZero() {
		s.Errorf("after the pause %+v has ended, the next one is %+v", short, later)
	}
	if _, err := s.ResumeGate(s.ctx, anna, short.ID, nil); !errors.Is(err, holdfast.ErrNotFound) || len(s.gates()) != 1 {
		s.Errorf("ResumeGate of a pause that has ended returns %v; the gates are %+v", err, s.gates())
	}
	limit := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	if _, err := s.ResumeGate(s.ctx, anna, limit.ID, nil); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("ResumeGate of a limit returns %v", err)
	}
	if _, err := s.UnsetLimitByID(s.ctx, anna, later.ID, nil); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("UnsetLimitByID of a pause returns %v", err)
	}
}

// testResumeGateOfTarget resumes a pause of a target by its id. The breaker of the target stays, until the test resumes
// the breaker.
func testResumeGateOfTarget(s *suite) {
	s.must(s.ReportTargets(s.ctx, []store.TargetReport{{Target: slowTarget, Trip: true, Cause: "refused"}}))
	tripped := s.gates()[0]
	pause := s.pause(store.Subject{Target: slowTarget}, 0)
	for _, gate := range []store.Gate{pause, tripped} {
		opened, err := s.ResumeGate(s.ctx, anna, gate.ID, nil)
		s.must(err)
		if opened.Kind != gate.Kind {
			s.Errorf("ResumeGate of the %s opens the %s", gate.Kind, opened.Kind)
		}
		for _, left := range s.gates() {
			if left.ID == gate.ID || gate.ID == tripped.ID {
				s.Errorf("after ResumeGate of the %s, the gate %+v is closed", gate.Kind, left)
			}
		}
	}
}

func testUnsetLimitByID(s *suite) {
	seen := s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	_, err := s.UnsetLimit(s.ctx, anna, ofKind)
	s.must(err)
	later := s.changeLimit(ben, store.Limit{Scope: ofKind, Concurrency: 2}.Change()).After
	if _, err := s.UnsetLimitByID(s.ctx, anna, seen.ID, nil); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("UnsetLimitByID of a limit that was removed and set again returns %v", err)
	}
	unset, err := s.UnsetLimitByID(s.ctx, because("done"), later.ID, nil)
	s.must(err)
	limits, err := s.Limits(s.ctx)
	s.must(err)
	if unset.ID != later.ID || unset.Concurrency != 2 || len(limits) > 0 {
		s.Errorf("UnsetLimitByID removes %+v; the limits are %+v", unset, limits)
	}
	if entries := s.auditLog(store.AuditFilter{Action: store.ActionUnset, Limit: 1}); entries[0].Reason != "done" || entries[0].Subject != ofKind.String() {
		s.Errorf("the audit log has %+v", entries)
	}
}

// testGateCheck lets one person change a pause and a limit that another person has read. The checks of the other person
// then refuse every change.
func testGateCheck(s *suite) {
	subject := store.Subject{Type: kind}
	pause, limit := s.pause(subject, 0), s.setLimit(store.Limit{Scope: ofKind, Concurrency: 1})
	s.changePause(ben, store.PauseFor(subject, time.Hour))
	s.changeLimit(ben, store.LimitChange{Scope: ofKind, Rate: &store.Rate{Count: 1, Per: time.Second}})
	refused := errors.New("it has changed")
	samePause := func(g *store.Gate) error {
		if g == nil || g.Name != pause.Name || !g.Until.Equal(pause.Until) {
			return refused
		}
		return nil
	}
	sameLimit := func(l *store.Limit) error {
		if l == nil || !l.SetAt.Equal(limit.SetAt) {
			return refused
		}
		return nil
	}
	errs := make([]error, 6)
	entries := len(s.auditLog(store.AuditFilter{}))
	_, errs[0] = s.ResumeGate(s.ctx, anna, pause.ID, func(g store.Gate) error { return samePause(&g) })
	_, errs[1] = s.UnsetLimitByID(s.ctx, anna, limit.ID, func(l store.Limit) error { return sameLimit(&l) })
	_, errs[2] = s.Pause(s.ctx, anna, store.PauseChange{Subject: subject, Check: samePause})
	_, errs[3] = s.SetLimit(s.ctx, anna, store.LimitChange{Scope: ofKind, Rate: new(store.Rate), Check: sameLimit})
	_, errs[4] = s.Pause(s.ctx, anna, store.PauseChange{Subject: store.Subject{Type: other}, Check: samePause})
	_, errs[5] = s.SetLimit(s.ctx, anna, store.LimitChange{Scope: perKey, Concurrency: new(int), Check: sameLimit})
	for i, err := range errs {
		if !errors.Is(err, refused) {
			s.Errorf("change %d returns %v, want the error of its check", i, err)
		}
	}
	limits, err := s.Limits(s.ctx)
	s.must(err)
	if gates := s.gates(); len(gates) != 1 || gates[0].Name != "ben" || len(limits) != 1 || limits[0].Name != "ben" || limits[0].Rate.Count != 1 {
		s.Errorf("after refused changes, the gates are %+v and the limits are %+v", gates, limits)
	}
	if n := len(s.auditLog(store.AuditFilter{})); n != entries {
		s.Errorf("refused changes add %d entries to the audit log", n-entries)
	}
}

// subjects has two subjects of each kind.
var subjects = []store.Subject{
	{Queue: "mail"}, {Queue: "bills"}, {Type: kind}, {Type: other}, {Key: "a"}, {Key: "b"}, {Target: slowTarget}, {Target: "https://b.example.com:443"},
}

// testOneOfSeveralPauses changes and resumes one pause after the other. Each subject has a limit too.
func testOneOfSeveralPauses(s *suite) {
	paused := make(map[store.Subject]store.ID)
	for _, subject := range subjects {
		s.setLimit(store.Limit{Scope: store.Scope{Subject: subject}, Concurrency: 1})
		if _, err := s.Resume(s.ctx, anna, subject); !errors.Is(err, holdfast.ErrNotFound) {
			s.Errorf("Resume of a limit for %s returns %v", subject, err)
		}
		paused[subject] = s.pause(subject, time.Hour).ID
	}
	if gates := s.gates(); len(gates) != len(subjects) {
		s.Errorf("the gates are %+v, want %d", gates, len(subjects))
	}
	for _, subject := range subjects {
		changed := s.changePause(ben, store.PauseChange{Subject: subject})
		if id := paused[subject]; changed.Before == nil || changed.Before.ID != id || changed.After.ID != id {
			s.Errorf("a second pause of %s is %+v, want gate %s", subject, changed, id)
		}
	}
	for i, subject := range subjects {
		resume := func() (store.Gate, error) { return s.Resume(s.ctx, anna, subject) }
		if i%2 == 0 {
			resume = func() (store.Gate, error) { return s.ResumeGate(s.ctx, anna, paused[subject], nil) }
		}
		if opened, err := resume(); err != nil || opened.ID != paused[subject] || opened.Subject != subject {
			s.Errorf("resuming %s opens %+v, %v", subject, opened, err)
		}
		if gates := s.gates(); len(gates) != len(subjects)-i-1 {
			s.Errorf("after resuming %s, the gates are %+v", subject, gates)
		}
	}
	if limits, err := s.Limits(s.ctx); err != nil || len(limits) != len(subjects) {
		s.Errorf("the limits are %+v, %v; want %d", limits, err, len(subjects))
	}
}

// testOneOfSeveralLimits changes and removes one limit after the other. Each subject has a pause too.
func testOneOfSeveralLimits(s *suite) {
	scopes := []store.Scope{perKey, {Per: store.PerTarget}, {Subject: store.Subject{Type: kind}, Per: store.PerKey}}
	for _, subject := range subjects {
		scopes = append(scopes, store.Scope{Subject: subject})
		s.pause(subject, 0)
	}
	set := make(map[store.Scope]store.ID)
	for _, scope := range scopes {
		changed := s.changeLimit(anna, store.Limit{Scope: scope, Concurrency: 1}.Change())
		if set[scope] = changed.After.ID; changed.Before != nil {
			s.Errorf("the first %s replaces %+v", scope, changed.Before)
		}
	}
	for i, scope := range scopes {
		changed := s.changeLimit(ben, store.Limit{Scope: scope, Concurrency: 2}.Change())
		if id := set[scope]; changed.Before == nil || changed.Before.ID != id || changed.Before.Concurrency != 1 || changed.After.ID != id {
			s.Errorf("a second %s is %+v, want limit %s", scope, changed, id)
		}
		limits, err := s.Limits(s.ctx)
		s.must(err)
		changes := 0
		for _, limit := range limits {
			changes += limit.Concurrency - 1
		}
		if len(limits) != len(scopes) || changes != i+1 {
			s.Errorf("after a second %s, the limits are %+v", scope, limits)
		}
	}
	for i, scope := range scopes {
		unset := func() (store.Limit, error) { return s.UnsetLimit(s.ctx, anna, scope) }
		if i%2 == 0 {
			unset = func() (store.Limit, error) { return s.UnsetLimitByID(s.ctx, anna, set[scope], nil) }
		}
		if removed, err := unset(); err != nil || removed.ID != set[scope] || removed.Scope != scope {
			s.Errorf("removing the %s removes %+v, %v", scope, removed, err)
		}
		if limits, err := s.Limits(s.ctx); err != nil || len(limits) != len(scopes)-i-1 {
			s.Errorf("after removing the %s, the limits are %+v, %v", scope, limits, err)
		}
	}
	if gates := s.gates(); len(gates) != len(subjects) {
		s.Errorf("the gates are %+v, want %d", gates, len(subjects))
	}
}
