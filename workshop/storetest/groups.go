package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var groupTests = []test{
	{"keeps the note and the owner of a group", testGroupNote},
	{"a resolved group is hidden and returns with the next death", testGroupReturns},
	{"a resolved group stays known when its tasks are gone", testGroupWithoutTasks},
	{"the filter does not change the state of a group", testGroupStateFiltered},
	{"shows the queues and the hours of a group", testGroupDetails},
	{"refuses changes of unknown groups and of other versions", testGroupRefused},
	{"a change that makes no difference is not recorded", testGroupNoDifference},
	{"keeps any text of a note as it is", testGroupText},
	{"records all changes of several people", testGroupRace},
}

func (s *suite) changeGroup(change store.GroupChange) store.DeathGroup {
	s.Helper()
	group, err := s.ChangeDeathGroup(s.ctx, anna, change)
	s.must(err)
	return group
}

// group returns the only group, which may be resolved.
func (s *suite) group() store.DeathGroup {
	s.Helper()
	groups := append(s.deathGroups(store.DeathFilter{}), s.deathGroups(store.DeathFilter{Resolved: true})...)
	if len(groups) != 1 {
		s.Fatalf("%d groups, want 1: %+v", len(groups), groups)
	}
	return groups[0]
}

func valuesOf(t testing.TB, document json.RawMessage) store.GroupValues {
	t.Helper()
	var v store.GroupValues
	if err := json.Unmarshal(document, &v); err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	return v
}

func testGroupNote(s *suite) {
	s.die(defaultQueue, errors.New("no order"))
	before := s.group()
	if before.State != store.GroupOpen || before.Version != 1 || before.Note != "" || before.Owner != "" || !before.ResolvedAt.IsZero() {
		s.Errorf("an untouched group is %+v", before)
	}
	s.changeGroup(store.GroupChange{Fingerprint: before.Fingerprint, Action: store.ActionNote, Text: "see the runbook"})
	changed := s.changeGroup(store.GroupChange{Fingerprint: before.Fingerprint, Action: store.ActionAssign, Text: "ben", Version: 2})
	want := before
	want.Note, want.Owner, want.Version = "see the runbook", "ben", 3
	if changed != want || s.group() != want {
		s.Errorf("the changed group is %+v, want %+v", changed, want)
	}
	s.changeGroup(store.GroupChange{Fingerprint: before.Fingerprint, Action: store.ActionAssign})
	if got := s.group(); got.Owner != "" || got.Note != "see the runbook" {
		s.Errorf("the group without owner is %+v", got)
	}
	entries := s.auditLog(store.AuditFilter{Subject: store.GroupSubject(before.Fingerprint)})
	if len(entries) != 3 {
		s.Fatalf("entries: %+v", entries)
	}
	last := entries[0]
	was, is := valuesOf(s.T, last.Before), valuesOf(s.T, last.After)
	if last.Action != store.ActionAssign || last.Actor != anna || last.Task != 0 || last.Subject != "group "+before.Fingerprint ||
		*was.Owner != "ben" || *is.Owner != "" || was.Note != nil || is.State != "" {
		s.Errorf("the last entry is %+v with %s and %s", last, last.Before, last.After)
	}
	if noted := entries[2]; noted.Action != store.ActionNote || *valuesOf(s.T, noted.After).Note != "see the runbook" {
		s.Errorf("the first entry is %+v with %s", noted, noted.After)
	}
	if entries := s.auditLog(store.AuditFilter{Subject: "group 0"}); len(entries) != 0 {
		s.Errorf("entries of an unknown group: %+v", entries)
	}
}

func testGroupReturns(s *suite) {
	first := s.die(defaultQueue, errors.New("no order"))
	bill := s.die(defaultQueue, errors.New("no bill"))
	fingerprint := s.deathGroups(store.DeathFilter{})[1].Fingerprint // the older of two groups with one task
	before := s.now()
	resolved := s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionResolve})
	if resolved.State != store.GroupResolved || resolved.ResolvedAt.Before(before) || resolved.Tasks != 1 || resolved.Sample != first {
		s.Fatalf("the resolved group is %+v", resolved)
	}
	if groups := s.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].Sample != bill {
		s.Errorf("groups: %+v; want only the group that is open", groups)
	}
	if groups := s.deathGroups(store.DeathFilter{Resolved: true}); len(groups) != 1 || groups[0] != resolved {
		s.Errorf("resolved groups: %+v, want %+v", groups, resolved)
	}

	again := s.die(defaultQueue, errors.New("no order"))
	groups := s.deathGroups(store.DeathFilter{})
	if len(groups) != 2 || groups[0].State != store.GroupReturned || groups[0].Tasks != 2 || groups[0].Sample != again ||
		groups[0].FirstAt != s.task(first).FinishedAt || groups[0].LastAt != s.task(again).FinishedAt {
		s.Fatalf("groups: %+v; want the group that has returned and the other one", groups)
	}
	if groups := s.deathGroups(store.DeathFilter{Resolved: true}); len(groups) != 0 {
		s.Errorf("resolved groups: %+v", groups)
	}
	s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionResolve})
	if got := s.deathGroups(store.DeathFilter{Resolved: true}); len(got) != 1 || got[0].Tasks != 2 || !got[0].ResolvedAt.After(resolved.ResolvedAt) {
		s.Errorf("resolved again: %+v", got)
	}
	opened := s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionReopen})
	if opened.State != store.GroupOpen || !opened.ResolvedAt.IsZero() || len(s.deathGroups(store.DeathFilter{})) != 2 {
		s.Errorf("the group that was opened again is %+v", opened)
	}
	entries := s.auditLog(store.AuditFilter{Subject: store.GroupSubject(fingerprint)})
	if len(entries) != 3 || valuesOf(s.T, entries[1].Before).State != store.GroupReturned || valuesOf(s.T, entries[1].After).State != store.GroupResolved ||
		valuesOf(s.T, entries[0].After).State != store.GroupOpen || valuesOf(s.T, entries[0].Before).ResolvedAt.IsZero() {
		s.Errorf("entries: %+v", entries)
	}
}

func testGroupWithoutTasks(s *suite) {
	dead := s.task(s.die(defaultQueue, delivery("a.example.com", 503)))
	group := s.group()
	s.changeGroup(store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionNote, Text: "wait"})
	s.move(dead, holdfast.Requested(holdfast.EventArchive))
	if groups := s.deathGroups(store.DeathFilter{}); len(groups) != 0 {
		s.Errorf("groups: %+v; want none without dead tasks", groups)
	}
	details, err := s.DeathGroup(s.ctx, group.Fingerprint)
	s.must(err)
	want := group
	want.Tasks, want.LastHour, want.Note, want.Version = 0, 0, "wait", 2
	if details.DeathGroup != want || len(details.Queues) != 0 || details.Hours != ([24]int64{}) {
		s.Errorf("the group without tasks is\n%+v, want\n%+v", details, want)
	}
	s.changeGroup(store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionResolve})
	for _, c := range []struct {
		name   string
		filter store.DeathFilter
		want   int
	}{
		{"open", store.DeathFilter{}, 0},
		{"resolved", store.DeathFilter{Resolved: true}, 1},
		{"resolved with the type", store.DeathFilter{Resolved: true, Type: kind}, 1},
		{"resolved with another type", store.DeathFilter{Resolved: true, Type: other}, 0},
		{"resolved in a queue", store.DeathFilter{Resolved: true, Queue: defaultQueue}, 0},
		{"resolved since", store.DeathFilter{Resolved: true, Since: group.FirstAt}, 0},
	} {
		if got := s.deathGroups(c.filter); len(got) != c.want {
			s.Errorf("%s: %+v, want %d", c.name, got, c.want)
		}
	}
	again := s.die(defaultQueue, delivery("a.example.com", 503))
	got := s.group()
	if got.State != store.GroupReturned || got.Sample != again || got.Tasks != 1 || got.FirstAt != group.FirstAt || got.Note != "wait" {
		s.Errorf("the group that has returned is %+v", got)
	}
}

func testGroupStateFiltered(s *suite) {
	s.die(defaultQueue, errors.New("no order"))
	s.die("elsewhere", errors.New("no order"))
	group := s.group()
	s.changeGroup(store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionResolve})
	if got := s.deathGroups(store.DeathFilter{Resolved: true, Queue: "elsewhere"}); len(got) != 1 || got[0].Tasks != 1 {
		s.Errorf("resolved in a queue: %+v", got)
	}
	s.die(defaultQueue, errors.New("no order"))
	got := s.deathGroups(store.DeathFilter{Queue: "elsewhere"})
	if len(got) != 1 || got[0].State != store.GroupReturned || got[0].Tasks != 1 || got[0].FirstAt != group.FirstAt || !got[0].LastAt.After(group.LastAt) {
		s.Errorf("groups of a queue: %+v; want the group that returned by a death in another queue", got)
	}
}

func testGroupDetails(s *suite) {
	s.die("elsewhere", errors.New("no order"))
	s.die(defaultQueue, errors.New("no order"))
	s.die(defaultQueue, errors.New("no order"))
	s.die(defaultQueue, errors.New("no bill"))
	group := s.deathGroups(store.DeathFilter{})[0]
	details, err := s.DeathGroup(s.ctx, group.Fingerprint)
	s.must(err)
	hours := [24]int64{3}
	if details.DeathGroup != group || details.Hours != hours || !slices.Equal(details.Queues, []store.GroupQueue{{Queue: defaultQueue, Tasks: 2}, {Queue: "elsewhere", Tasks: 1}}) {
		s.Errorf("details: %+v", details)
	}
}

func testGroupRefused(s *suite) {
	s.die(defaultQueue, errors.New("no order"))
	group := s.group()
	for _, unknown := range []string{"", "'", "0000000000000000"} {
		if _, err := s.DeathGroup(s.ctx, unknown); !errors.Is(err, holdfast.ErrNotFound) {
			s.Errorf("group %q: %v", unknown, err)
		}
		if _, err := s.ChangeDeathGroup(s.ctx, anna, store.GroupChange{Fingerprint: unknown, Action: store.ActionResolve}); !errors.Is(err, holdfast.ErrNotFound) {
			s.Errorf("a change of group %q: %v", unknown, err)
		}
	}
	note := store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionNote, Text: "first", Version: group.Version}
	s.changeGroup(note)
	note.Text = "second"
	if _, err := s.ChangeDeathGroup(s.ctx, anna, note); !errors.Is(err, holdfast.ErrConflict) {
		s.Errorf("a change of an older version: %v", err)
	}
	note.Version, note.Text = 0, strings.Repeat("x", store.MaxNote+1)
	if _, err := s.ChangeDeathGroup(s.ctx, anna, note); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a note that is too long: %v", err)
	}
	note.Action, note.Text = store.ActionPurge, ""
	if _, err := s.ChangeDeathGroup(s.ctx, anna, note); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("an action that is none on a group: %v", err)
	}
	if got := s.group(); got.Note != "first" || got.Version != 2 {
		s.Errorf("the group is %+v", got)
	}
	if entries := s.auditLog(store.AuditFilter{}); len(entries) != 1 {
		s.Errorf("%d entries, want 1", len(entries))
	}
}

func testGroupNoDifference(s *suite) {
	s.die(defaultQueue, errors.New("no order"))
	fingerprint := s.group().Fingerprint
	s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionReopen})
	s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionNote})
	first := s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionResolve})
	if again := s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionResolve}); again != first || again.Version != 2 {
		s.Errorf("resolved twice: %+v and %+v", first, again)
	}
	if entries := s.auditLog(store.AuditFilter{}); len(entries) != 1 || entries[0].Action != store.ActionResolve {
		s.Errorf("entries: %+v", entries)
	}
}

func testGroupText(s *suite) {
	s.die(defaultQueue, errors.New("no order"))
	fingerprint := s.group().Fingerprint
	for _, text := range []string{"'; drop table dead_groups; --", "\x1b[31mred\x07 <b>é</b>\n\t", strings.Repeat("long ", 3_000)} {
		s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionNote, Text: text})
		if got := s.group().Note; got != text {
			s.Errorf("note %.60q is %.60q", text, got)
		}
	}
	s.changeGroup(store.GroupChange{Fingerprint: fingerprint, Action: store.ActionNote, Text: "a\x00b\xff"})
	if got := s.group().Note; got != "a\uFFFDb\uFFFD" {
		s.Errorf("a note with bytes that no column stores is %q", got)
	}
}

// testGroupRace lets several people change the notes of groups with and without dead tasks at the same time. With a
// version, one of them wins. Without a version, the last one wins, and the audit log has all notes.
func testGroupRace(s *suite) {
	const people, rounds = 4, 10
	for round := range rounds {
		id := s.die(defaultQueue, fmt.Errorf("no order in %s", strings.Repeat("x", round+1)))
		groups := s.deathGroups(store.DeathFilter{Since: s.task(id).FinishedAt})
		group := s.changeGroup(store.GroupChange{Fingerprint: groups[0].Fingerprint, Action: store.ActionAssign, Text: "ben"})
		if round%2 == 0 {
			s.move(s.task(id), holdfast.Requested(holdfast.EventArchive))
		}
		var race sync.WaitGroup
		conflicts := make([]bool, people)
		for person := range people {
			race.Go(func() {
				change := store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionNote, Text: fmt.Sprint(person)}
				_, err := s.ChangeDeathGroup(s.ctx, anna, change)
				change.Action, change.Version = store.ActionResolve, group.Version
				if err == nil {
					_, err = s.ChangeDeathGroup(s.ctx, anna, change)
				}
				if conflicts[person] = errors.Is(err, holdfast.ErrConflict); !conflicts[person] {
					s.Errorf("round %d: a change of an older version: %v", round, err)
				}
			})
		}
		race.Wait()
		details, err := s.DeathGroup(s.ctx, group.Fingerprint)
		s.must(err)
		entries := s.auditLog(store.AuditFilter{Subject: store.GroupSubject(group.Fingerprint)})
		if details.Version != group.Version+people || len(entries) != people+1 || details.Note != *valuesOf(s.T, entries[0].After).Note {
			s.Errorf("round %d: version %d, note %q, %d entries", round, details.Version, details.Note, len(entries))
		}
		for i := range people - 1 { // each entry continues the previous one
			if *valuesOf(s.T, entries[i].Before).Note != *valuesOf(s.T, entries[i+1].After).Note {
				s.Errorf("round %d: the entries %s and %s do not follow each other", round, entries[i+1].After, entries[i].Before)
			}
		}
	}
}
