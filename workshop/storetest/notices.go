package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var noticeTests = []test{
	{"announces a group once when it appears, and once when it returns", testNotices},
	{"announces no group of the past", testNoticesOfThePast},
	{"leaves out kinds, small groups and a queue", testNoticesFiltered},
	{"announces many groups in several tasks", testManyNotices},
	{"remembers nothing if no task was stored", testNoticesRefused},
	{"several processes announce each event once", testNoticesRace},
	{"announces an operation each time it stops by itself", testNoticesOfOperations},
	{"announces a late queue once, until it is well again", testNoticesOfQueues},
	{"announces no group that a person has reopened", testReopenedGroup},
	{"continues behind announced events", testNoticesOneByOne},
	{"announces only the wanted kinds of groups", testNoticeKinds},
}

const noticeQueue = "notices"

var allNotices = store.NoticeFilter{Kinds: store.NoticeKinds(), ExceptQueue: noticeQueue, Limit: 100}

// composeNotice returns a task whose payload has the fingerprints of the groups, the operations and the queues.
func composeNotice(notices []store.Notice) (holdfast.NewTask, error) {
	var events []string
	for _, n := range notices {
		switch n.Kind {
		case store.NoticeOperationStopped:
			events = append(events, "operation "+n.Operation.ID.String())
		case store.NoticeQueueLate:
			events = append(events, "queue "+n.Queue.Name)
		default:
			events = append(events, n.Group.Fingerprint)
		}
	}
	payload, err := json.Marshal(events)
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

// stopStep returns the step with which an operation stops by itself.
func stopStep(o store.Operation) store.OperationStep {
	step := store.OperationStep{From: o, To: o, By: &store.Actor{Name: "holdfast", Surface: store.Janitor}}
	step.To.State, step.To.Note = store.OperationStopped, "too many"
	return step
}

func (s *suite) step(step store.OperationStep) store.Operation {
	s.Helper()
	o, err := s.StepOperation(s.ctx, step)
	s.must(err)
	return o
}

func testNoticesOfOperations(s *suite) {
	s.step(stopStep(s.retryOperation()))
	s.announce(allNotices)
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("an operation of the past: %+v", got)
	}
	o := s.retryOperation()
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("an operation that runs: %+v", got)
	}
	before := s.now()
	o = s.step(stopStep(o))
	other := allNotices
	other.Kinds = []store.NoticeKind{store.NoticeGroupAppeared}
	if got := s.announce(other); len(got.Notices) != 0 {
		s.Errorf("another kind: %+v", got)
	}
	got := s.announce(allNotices)
	if len(got.Notices) != 1 || got.Notices[0].Kind != store.NoticeOperationStopped || got.Notices[0].Operation.ID != o.ID ||
		got.Notices[0].Operation.State != store.OperationStopped || got.Notices[0].Operation.Note != "too many" ||
		got.Notices[0].At.Before(before) || got.Notices[0].At.After(s.now()) || got.Task == 0 {
		s.Errorf("announced: %+v", got)
	}
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("announced twice: %+v", got)
	}
	resume := store.OperationStep{From: s.operation(o.ID), To: o, By: &anna}
	resume.To.State = store.OperationRunning
	o = s.step(resume)
	step := store.OperationStep{From: o, To: o}
	step.To.Refused++
	o = s.step(step)
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("a resumed operation: %+v", got)
	}
	// A person who resumes the operation does not prevent the announcement of its stop.
	o = s.step(stopStep(o))
	resume = store.OperationStep{From: o, To: o, By: &anna}
	resume.To.State = store.OperationRunning
	s.step(resume)
	if got := s.announce(allNotices); len(got.Notices) != 1 || got.Notices[0].Operation.State != store.OperationRunning {
		s.Errorf("after the second stop: %+v", got)
	}
	own := s.createOperation(store.Operation{
		Action: store.ActionRetry, Query: "state:dead queue:notices", Filter: store.Filter{Queue: noticeQueue},
		State: store.OperationRunning, StopAbove: 1,
	})
	s.step(stopStep(own))
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("an operation on the tasks that announce events: %+v", got)
	}
	// A stopped operation may still judge the first attempts of its tasks.
	late := s.step(stopStep(s.retryOperation()))
	if got := s.announce(allNotices); len(got.Notices) != 1 || got.Notices[0].Operation.ID != late.ID {
		s.Errorf("announced: %+v, want operation %s", got, late.ID)
	}
	step = store.OperationStep{From: late, To: late}
	step.To.Failed++
	s.step(step)
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("a step of a stopped operation: %+v", got)
	}
	paused := s.retryOperation()
	pause := store.OperationStep{From: paused, To: paused, By: &anna}
	pause.To.State = store.OperationPaused
	s.step(pause)
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("an operation that a person has paused: %+v", got)
	}
}

func testNoticesOfQueues(s *suite) {
	s.insert(holdfast.NewTask{Type: other, Queue: "slow"})
	late := allNotices
	late.Late = []store.LateQueue{{Name: "slow", OldestDue: time.Hour}, {Name: defaultQueue, OldestDue: time.Minute}, {Name: "unknown", OldestDue: time.Minute}}
	s.announce(late)
	before := s.now()
	got := s.announce(late)
	if len(got.Notices) != 2 || got.Notices[0].Kind != store.NoticeQueueLate || got.Notices[0].Queue != late.Late[0] || got.Notices[1].Queue != late.Late[1] ||
		got.Notices[0].At.Before(before) || got.Notices[0].At.After(s.now()) {
		s.Fatalf("announced: %+v", got)
	}
	if payload := string(s.task(got.Task).Payload); payload != `["queue slow","queue `+defaultQueue+`"]` {
		s.Errorf("the task has %s", payload)
	}
	if got := s.announce(late); len(got.Notices) != 0 || got.Task != 0 {
		s.Errorf("announced twice: %+v", got)
	}
	s.announce(allNotices) // neither late nor well
	if got := s.announce(late); len(got.Notices) != 0 {
		s.Errorf("announced between the limits: %+v", got)
	}
	well := allNotices
	well.Well = []string{"slow"}
	if got := s.announce(well); len(got.Notices) != 0 {
		s.Errorf("announced that a queue is well: %+v", got)
	}
	if got := s.announce(late); len(got.Notices) != 1 || got.Notices[0].Queue.Name != "slow" {
		s.Errorf("after slow was well: %+v", got)
	}
}

func testNoticesRefused(s *suite) {
	s.announce(allNotices)
	s.die(defaultQueue, errors.New("no order"))
	s.step(stopStep(s.retryOperation()))
	refused := errors.New("no text")
	late := allNotices
	late.Late = []store.LateQueue{{Name: defaultQueue, OldestDue: time.Hour}}
	if _, err := s.Announce(s.ctx, late, func([]store.Notice) (holdfast.NewTask, error) { return holdfast.NewTask{}, refused }); !errors.Is(err, refused) {
		s.Errorf("got %v", err)
	}
	if got := s.announce(late); len(got.Notices) != 3 {
		s.Errorf("announced: %+v", got)
	}
}

func testNoticesRace(s *suite) {
	const processes, rounds = 4, 5
	s.announce(allNotices)
	late := allNotices
	late.Late = []store.LateQueue{{Name: defaultQueue, OldestDue: time.Hour}}
	for round := range rounds {
		for i := range 5 {
			s.die(defaultQueue, delivery(fmt.Sprintf("h%d-%d.example.com", round, i), 503))
		}
		s.step(stopStep(s.retryOperation()))
		want := 6
		if round == 0 {
			want++ // the queue
		}
		var race sync.WaitGroup
		var found [processes][]store.Notice
		for p := range processes {
			race.Go(func() {
				announced, err := s.Announce(s.ctx, late, composeNotice)
				if err != nil {
					s.Error(err)
				}
				found[p] = announced.Notices
			})
		}
		race.Wait()
		if n := len(slices.Concat(found[:]...)); n != want {
			s.Errorf("round %d: %d notices, want %d", round, n, want)
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
	if groups != 6*rounds+1 {
		s.Errorf("the tasks announce %d events, want %d", groups, 6*rounds+1)
	}
}

func testReopenedGroup(s *suite) {
	s.announce(allNotices)
	s.die(defaultQueue, errors.New("no order"))
	s.announce(allNotices)
	group := s.group().Fingerprint
	s.changeGroup(store.GroupChange{Fingerprint: group, Action: store.ActionResolve})
	s.changeGroup(store.GroupChange{Fingerprint: group, Action: store.ActionReopen})
	if got := s.announce(allNotices); len(got.Notices) != 0 {
		s.Errorf("without another death: %+v", got.Notices)
	}
}

// testNoticesOneByOne announces one event in each call, always from the beginning.
func testNoticesOneByOne(s *suite) {
	s.announce(allNotices)
	s.insert(holdfast.NewTask{Type: other, Queue: "slow"})
	for i := range 2 {
		s.die(defaultQueue, delivery(fmt.Sprintf("h%d.example.com", i), 503))
	}
	few := store.NoticeFilter{Kinds: []store.NoticeKind{store.NoticeGroupAppeared}, ExceptQueue: noticeQueue, Limit: 1}
	first, second := s.announce(few), s.announce(few)
	if len(first.Notices) != 1 || len(second.Notices) != 1 || first.Notices[0].Group.Fingerprint == second.Notices[0].Group.Fingerprint {
		s.Errorf("groups: %+v, then %+v", first, second)
	}
	few.Kinds = []store.NoticeKind{store.NoticeOperationStopped}
	s.step(stopStep(s.retryOperation()))
	s.step(stopStep(s.retryOperation()))
	first, second = s.announce(few), s.announce(few)
	if len(first.Notices) != 1 || len(second.Notices) != 1 || first.Notices[0].Operation.ID == second.Notices[0].Operation.ID {
		s.Errorf("operations: %+v, then %+v", first, second)
	}
	few.Kinds = []store.NoticeKind{store.NoticeQueueLate}
	for _, queue := range []string{"slow", defaultQueue} {
		few.Late = []store.LateQueue{{Name: queue, OldestDue: time.Hour}}
		if got := s.announce(few); len(got.Notices) != 1 || got.Notices[0].Queue.Name != queue {
			s.Errorf("queue %s: %+v", queue, got)
		}
	}
}

func testNoticeKinds(s *suite) {
	s.announce(allNotices)
	s.die(defaultQueue, errors.New("no order"))
	appeared, returned := allNotices, allNotices
	appeared.Kinds, returned.Kinds = []store.NoticeKind{store.NoticeGroupAppeared}, []store.NoticeKind{store.NoticeGroupReturned}
	if wrong, right := s.announce(returned), s.announce(appeared); len(wrong.Notices) != 0 || len(right.Notices) != 1 {
		s.Errorf("a new group: %+v, then %+v", wrong, right)
	}
	s.changeGroup(store.GroupChange{Fingerprint: s.group().Fingerprint, Action: store.ActionResolve})
	s.die(defaultQueue, errors.New("no order"))
	if wrong, right := s.announce(appeared), s.announce(returned); len(wrong.Notices) != 0 || len(right.Notices) != 1 {
		s.Errorf("a group that returned: %+v, then %+v", wrong, right)
	}
}
