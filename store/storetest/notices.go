package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var noticeTests = []test{
	{"announces a group once when it appears, and once when it returns", testNotices},
	{"announces no group of the past", testNoticesOfThePast},
	{"leaves out kinds, small groups and a queue", testNoticesFiltered},
	{"announces many groups in several tasks", testManyNotices},
	{"remembers nothing if no task was stored", testNoticesRefused},
	{"several processes announce each group once", testNoticesRace},
}

const noticeQueue = "notices"

var allNotices = store.NoticeFilter{Kinds: store.NoticeKinds(), ExceptQueue: noticeQueue, Limit: 100}

// composeNotice returns a task with the fingerprints of the groups.
func composeNotice(notices []store.Notice) (holdfast.NewTask, error) {
	var groups []string
	for _, n := range notices {
		groups = append(groups, n.Group.Fingerprint)
	}
	payload, err := json.Marshal(groups)
	return holdfast.NewTask{Type: other, Queue: noticeQueue, Payload: payload}, err
}

func (s *suite) announce(f store.NoticeFilter) store.Announced {
	s.Helper()
	announced, err := s.Announce(s.ctx, f, composeNotice)
	s.must(err)
	return announced
}

func testNotices(s *suite) {
	s.announce(allNotices)
	if got := s.announce(allNotices); len(got.Notices) != 0 || got.Task != 0 || got.Next != "" {
		s.Fatalf("without deaths: %+v", got)
	}
	s.die(defaultQueue, errors.New("no order"))
	s.die(defaultQueue, errors.New("no order"))
	s.die(defaultQueue, delivery("a.example.com", 503))
	got := s.announce(allNotices)
	if len(got.Notices) != 2 || got.Next != "" {
		s.Fatalf("announced: %+v", got)
	}
	groups := s.deathGroups(store.DeathFilter{})
	for i, n := range got.Notices {
		want := groups[i]
		want.LastHour = 0
		if n.Kind != store.NoticeGroupAppeared || n.Group != want || n.At != want.LastAt {
			s.Errorf("notice %d is\n%+v, want\n%+v", i, n, want)
		}
	}
	task := s.task(got.Task)
	if want := fmt.Sprintf(`["%s","%s"]`, groups[0].Fingerprint, groups[1].Fingerprint); string(task.Payload) != want || task.Queue != noticeQueue {
		s.Errorf("the task is %+v with %s, want %s", task, task.Payload, want)
	}
	s.die(defaultQueue, errors.New("no order"))
	if again := s.announce(allNotices); len(again.Notices) != 0 || again.Task != 0 {
		s.Errorf("announced twice: %+v", again)
	}

	orders := groups[0].Fingerprint
	s.changeGroup(store.GroupChange{Fingerprint: orders, Action: store.ActionResolve})
	if again := s.announce(allNotices); len(again.Notices) != 0 {
		s.Errorf("announced without a new death: %+v", again)
	}
	s.die(defaultQueue, errors.New("no order"))
	got = s.announce(allNotices)
	if len(got.Notices) != 1 || got.Notices[0].Kind != store.NoticeGroupReturned || got.Notices[0].Group.Fingerprint != orders ||
		got.Notices[0].Group.Tasks != 1 || got.Notices[0].Group.State != store.GroupReturned {
		s.Errorf("after the return: %+v", got)
	}
	s.changeGroup(store.GroupChange{Fingerprint: orders, Action: store.ActionReopen})
	s.die(defaultQueue, errors.New("no order"))
	if again := s.announce(allNotices); len(again.Notices) != 0 {
		s.Errorf("a group that a person has opened was announced: %+v", again)
	}
	if got := s.deathGroups(store.DeathFilter{})[0]; got.Version != 3 || got.Tasks != 5 {
		s.Errorf("the announced group is %+v", got)
	}
}

func testNoticesOfThePast(s *suite) {
	s.die(defaultQueue, errors.New("no order"))
	s.announce(allNotices)
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("announced: %+v", got)
	}
	s.die(defaultQueue, errors.New("no order"))
	if got := s.announce(allNotices); len(got.Notices) != 1 || got.Notices[0].Group.Tasks != 1 {
		s.Errorf("announced: %+v; want the group with its new death", got)
	}
}

func testNoticesFiltered(s *suite) {
	s.announce(allNotices)
	s.die(defaultQueue, errors.New("no order"))
	s.die(noticeQueue, errors.New("no bill"))
	s.die(noticeQueue, errors.New("no bill"))
	for _, f := range []store.NoticeFilter{
		{Kinds: store.NoticeKinds(), ExceptQueue: noticeQueue, Limit: 9, MinTasks: 2},
		{Kinds: []store.NoticeKind{store.NoticeGroupReturned}, Limit: 9},
		{Limit: 9},
	} {
		if got := s.announce(f); len(got.Notices) != 0 {
			s.Errorf("%+v announces %+v", f, got)
		}
	}
	if got := s.announce(allNotices); len(got.Notices) != 1 || got.Notices[0].Group.Error != "no order" {
		s.Errorf("announced: %+v; want the group outside of the queue", got)
	}
	s.die(defaultQueue, errors.New("no bill"))
	if got := s.announce(allNotices); len(got.Notices) != 1 || got.Notices[0].Group.Tasks != 1 {
		s.Errorf("announced: %+v; want one task of the group that died elsewhere", got)
	}
}

func testManyNotices(s *suite) {
	s.announce(allNotices)
	const groups = 7
	for i := range groups {
		s.die(defaultQueue, delivery(fmt.Sprintf("h%d.example.com", i), 503))
	}
	few := allNotices
	few.Limit = 3
	var seen []string
	for _, want := range []int{3, 3, 1, 0} {
		got := s.announce(few)
		if len(got.Notices) != want {
			s.Fatalf("%d notices, want %d", len(got.Notices), want)
		}
		for _, n := range got.Notices {
			seen = append(seen, n.Group.Fingerprint)
		}
		few.After = got.Next
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != groups {
		s.Errorf("announced %v", seen)
	}
}

func testNoticesRefused(s *suite) {
	s.announce(allNotices)
	s.die(defaultQueue, errors.New("no order"))
	refused := errors.New("no text")
	if _, err := s.Announce(s.ctx, allNotices, func([]store.Notice) (holdfast.NewTask, error) { return holdfast.NewTask{}, refused }); !errors.Is(err, refused) {
		s.Errorf("got %v", err)
	}
	if got := s.announce(allNotices); len(got.Notices) != 1 {
		s.Errorf("announced: %+v", got)
	}
}

func testNoticesRace(s *suite) {
	const processes, rounds = 4, 5
	s.announce(allNotices)
	for round := range rounds {
		for i := range 5 {
			s.die(defaultQueue, delivery(fmt.Sprintf("h%d-%d.example.com", round, i), 503))
		}
		var race sync.WaitGroup
		var found [processes][]store.Notice
		for p := range processes {
			race.Go(func() {
				announced, err := s.Announce(s.ctx, allNotices, composeNotice)
				if err != nil {
					s.Error(err)
				}
				found[p] = announced.Notices
			})
		}
		race.Wait()
		if n := len(slices.Concat(found[:]...)); n != 5 {
			s.Errorf("round %d: %d notices, want 5", round, n)
		}
	}
	counts, err := s.List(s.ctx, store.Filter{Queue: noticeQueue})
	s.must(err)
	groups := 0
	for _, task := range counts.Tasks {
		var fingerprints []string
		s.must(json.Unmarshal(s.task(task.ID).Payload, &fingerprints))
		groups += len(fingerprints)
	}
	if groups != 5*rounds {
		s.Errorf("the tasks announce %d groups, want %d", groups, 5*rounds)
	}
}
