package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	{"finds groups by the first digits of their fingerprints", testFingerprints},
	{"records all changes of several people", testGroupRace},
	{"a change concerns one group", testOtherGroups},
	{"a group keeps what was seen of it when its task dies in another group", testDeathInAnotherGroup},
	{"a group keeps what was seen of its tasks, in whatever order they leave", testTasksLeaveGroup},
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

func testFingerprints(s *suite) {
	find := func(digits string, limit int) []string {
		s.Helper()
		found, err := s.Fingerprints(s.ctx, digits, limit)
		s.must(err)
		return found
	}
	// twins returns errors of groups whose fingerprints begin with the same 4 digits.
	twins := func() (texts, fingerprints []string) {
		seen := make(map[string]string)
		for i := 0; ; i++ {
			text := "no " + strings.Map(func(r rune) rune { return r - '0' + 'k' }, fmt.Sprint(i))
			fingerprint := holdfast.Fingerprint(kind, holdfast.Report{Class: "error", Error: text})
			if other, found := seen[fingerprint[:4]]; found {
				return []string{other, text}, []string{holdfast.Fingerprint(kind, holdfast.Report{Class: "error", Error: other}), fingerprint}
			}
			seen[fingerprint[:4]] = text
		}
	}
	texts, want := twins()
	slices.Sort(want)
	digits := want[0][:4]
	if got := find(digits, 5); len(got) > 0 {
		s.Errorf("without deaths, %s finds %q", digits, got)
	}
	ids := []holdfast.TaskID{s.die(defaultQueue, errors.New(texts[0])), s.die(defaultQueue, errors.New(texts[1]))}
	s.die(defaultQueue, delivery("a.example.com", 503))
	for _, one := range want {
		s.changeGroup(store.GroupChange{Fingerprint: one, Action: store.ActionNote, Text: "known twice"})
	}
	for range 2 {
		if got := find(digits, 5); !slices.Equal(got, want) {
			s.Errorf("%s finds %q, want %q", digits, got, want)
		}
		if got := find(digits, 1); !slices.Equal(got, want[:1]) {
			s.Errorf("%s finds %q, want only %q", digits, got, want[:1])
		}
		for _, one := range want {
			if got := find(one[:15], 5); !slices.Equal(got, []string{one}) {
				s.Errorf("%s finds %q, want %q", one[:15], got, one)
			}
		}
		for _, id := range ids { // then the groups are known without dead tasks
			s.retry(id)
		}
		ids = nil
	}
	if got := find("%", 5); len(got) > 0 {
		s.Errorf("%% finds %q", got)
	}
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
		{"resolved until", store.DeathFilter{Resolved: true, Until: group.FirstAt.Add(time.Hour)}, 0},
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
	refuseUnknown := func() {
		s.Helper()
		for _, unknown := range []string{"", "'", "0000000000000000"} {
			if _, err := s.DeathGroup(s.ctx, unknown); !errors.Is(err, holdfast.ErrNotFound) {
				s.Errorf("group %q: %v", unknown, err)
			}
			if _, err := s.ChangeDeathGroup(s.ctx, anna, store.GroupChange{Fingerprint: unknown, Action: store.ActionResolve}); !errors.Is(err, holdfast.ErrNotFound) {
				s.Errorf("a change of group %q: %v", unknown, err)
			}
		}
	}
	refuseUnknown()
	note := store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionNote, Text: "first", Version: group.Version}
	s.changeGroup(note)
	refuseUnknown() // also when there are groups that a person has changed
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

// testOtherGroups changes the second of three groups.
func testOtherGroups(s *suite) {
	s.die(defaultQueue, delivery("a.example.com", 503))
	before := s.deathGroups(store.DeathFilter{})[0]
	s.changeGroup(store.GroupChange{Fingerprint: before.Fingerprint, Action: store.ActionNote, Text: "first"})
	first := s.deathGroups(store.DeathFilter{})[0]
	dead := s.task(s.die(defaultQueue, delivery("b.example.com", 500)))
	groups := s.deathGroups(store.DeathFilter{})
	group := groups[slices.IndexFunc(groups, func(g store.DeathGroup) bool { return g.Sample == dead.ID })]
	s.die(defaultQueue, errors.New("no order"))
	s.changeGroup(store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionResolve})
	details, err := s.DeathGroup(s.ctx, first.Fingerprint)
	s.must(err)
	if details.DeathGroup != first {
		s.Errorf("the other group is %+v, want %+v", details.DeathGroup, first)
	}
	s.die(defaultQueue, errors.New("no order")) // the resolved group does not return by deaths in others
	if open := s.deathGroups(store.DeathFilter{}); len(open) != 2 {
		s.Errorf("%d groups, want the two others: %+v", len(open), open)
	}
	s.mustChange(s.changeOf(store.ActionArchive, dead, holdfast.Requested(holdfast.EventArchive)))
	s.wantKept(group)
	// The same for a group without changes by people.
	dead = s.task(s.die(defaultQueue, delivery("c.example.com", 501)))
	groups = s.deathGroups(store.DeathFilter{})
	group = groups[slices.IndexFunc(groups, func(g store.DeathGroup) bool { return g.Sample == dead.ID })]
	s.die(defaultQueue, errors.New("no order"))
	s.mustChange(s.changeOf(store.ActionArchive, dead, holdfast.Requested(holdfast.EventArchive)))
	s.wantKept(group)
}

// wantKept checks that a group without dead tasks is still known as it was.
func (s *suite) wantKept(group store.DeathGroup) {
	s.Helper()
	details, err := s.DeathGroup(s.ctx, group.Fingerprint)
	s.must(err)
	got := details.DeathGroup
	if got.Tasks != 0 || got.Host != group.Host || got.Class != group.Class || got.Status != group.Status || got.Error != group.Error || got.Sample != group.Sample ||
		!got.FirstAt.Equal(group.FirstAt) || !got.LastAt.Equal(group.LastAt) {
		s.Errorf("without tasks, the group is\n%+v, want\n%+v", got, group)
	}
}

func testTasksLeaveGroup(s *suite) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		var dead []holdfast.Task
		for i := range 2 {
			dead = append(dead, s.task(s.die(defaultQueue, fmt.Errorf("order %d%d is unknown in group %s", order[0], i, strings.Repeat("x", order[0]+1)))))
		}
		group := s.deathGroups(store.DeathFilter{})[0]
		if group.Tasks != 2 {
			s.Fatalf("the group is %+v", group)
		}
		for _, i := range order {
			s.mustChange(s.changeOf(store.ActionArchive, dead[i], holdfast.Requested(holdfast.EventArchive)))
		}
		s.wantKept(group)
	}
}

func testDeathInAnotherGroup(s *suite) {
	dead := s.task(s.die(defaultQueue, delivery("a.example.com", 503)))
	group := s.group()
	s.mustChange(s.changeOf(store.ActionRetry, dead, holdfast.Requested(holdfast.EventRequeue)))
	due, _ := s.dispatch(1)
	s.move(s.mustClaim(s.registerWorker(), due[0].Ticket)[0], holdfast.Returned(holdfast.Permanent(errors.New("no order"))))
	details, err := s.DeathGroup(s.ctx, group.Fingerprint)
	s.must(err)
	if got := details.DeathGroup; got.Tasks != 0 || got.Host != group.Host || got.Class != group.Class || got.Error != group.Error {
		s.Errorf("the group of the first death is %+v, want %+v without tasks", got, group)
	}
}
