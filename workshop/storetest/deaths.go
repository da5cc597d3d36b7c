package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var deathTests = []test{
	{"follow edits, retries that are undone, and purges", testGroupsFollowChanges},
	{"groups dead tasks by cause", testDeathGroups},
	{"filters the groups", testDeathGroupsFiltered},
	{"lists the tasks of a group", testListGroup},
	{"lists dead tasks by class, host and status", testListDeaths},
	{"a task leaves its group when it leaves the state dead", testLeaveGroup},
	{"a group keeps the time of its first death", testFirstDeathIsKept},
	{"a refused transition changes no group", testRefusedDeath},
	{"adds missing records", testRecordDeaths},
}

// die makes a task of the queue die of err and returns its id.
func (s *suite) die(queue string, err error) holdfast.TaskID {
	s.Helper()
	task := newTask()
	task.Queue = queue
	running := s.mustClaim(s.registerWorker(), s.insert(task)...)[0]
	s.move(running, holdfast.Returned(holdfast.Permanent(err)))
	return running.ID
}

// delivery returns the error of a delivery to a host.
func delivery(host string, status int) error {
	return holdfast.Detailed(fmt.Errorf("%s answers %d", host, status), fmt.Sprintf("http_%d", status),
		map[string]any{"url": "https://" + host + "/hook", "status": status})
}

func (s *suite) deathGroups(f store.DeathFilter) []store.DeathGroup {
	s.Helper()
	groups, err := s.DeathGroups(s.ctx, f)
	s.must(err)
	if f == (store.DeathFilter{}) {
		var want store.GroupCounts
		for _, g := range groups {
			if g.State == store.GroupOpen {
				want.Open++
			} else {
				want.Returned++
			}
		}
		counts, err := s.CountDeathGroups(s.ctx)
		s.must(err)
		if counts != want {
			s.Errorf("%+v groups were counted, and %+v are listed", counts, want)
		}
	}
	return groups
}

func testDeathGroups(s *suite) {
	s.taskIn(holdfast.Ready)
	s.taskIn(holdfast.Done)
	first := s.die(defaultQueue, errors.New("order 7 is unknown"))
	s.die("elsewhere", errors.New("order 12 is unknown"))
	last := s.die(defaultQueue, errors.New("order 4711 is unknown"))
	a := s.die(defaultQueue, delivery("a.example.com", 503))
	s.die(defaultQueue, delivery("b.example.com", 503))
	groups := s.deathGroups(store.DeathFilter{})
	if len(groups) != 3 {
		s.Fatalf("%d groups, want 3: %+v", len(groups), groups)
	}
	began, ended := s.task(first).FinishedAt, s.task(last).FinishedAt
	orders := groups[0]
	want := store.DeathGroup{
		Fingerprint: orders.Fingerprint, Type: kind, Class: "error", State: store.GroupOpen, Tasks: 3, LastHour: 3,
		FirstAt: began, LastAt: ended, Sample: last, Error: "order 4711 is unknown", Version: 1,
	}
	if orders != want || len(orders.Fingerprint) != 16 {
		s.Errorf("the largest group is\n%+v, want\n%+v", orders, want)
	}
	delivered := groups[slices.IndexFunc(groups, func(g store.DeathGroup) bool { return g.Sample == a })]
	if delivered.Host != "a.example.com" || delivered.Status != 503 || delivered.Class != "http_503" || delivered.Tasks != 1 {
		s.Errorf("a group of deliveries is %+v", delivered)
	}
}

func testDeathGroupsFiltered(s *suite) {
	here := s.die(defaultQueue, errors.New("no order"))
	s.die("elsewhere", errors.New("no order"))
	bill := s.die(defaultQueue, errors.New("no bill"))
	at := s.task(bill).FinishedAt
	all := s.deathGroups(store.DeathFilter{})
	bills := all[slices.IndexFunc(all, func(g store.DeathGroup) bool { return g.Sample == bill })]
	for _, c := range []struct {
		name   string
		filter store.DeathFilter
		want   []holdfast.TaskID // the samples, the largest group first
	}{
		{"a queue", store.DeathFilter{Queue: "elsewhere"}, []holdfast.TaskID{here + 1}},
		{"a type", store.DeathFilter{Type: kind, Queue: defaultQueue}, []holdfast.TaskID{bill, here}},
		{"another type", store.DeathFilter{Type: other}, nil},
		{"a fingerprint", store.DeathFilter{Fingerprint: bills.Fingerprint}, []holdfast.TaskID{bill}},
		{"an unknown fingerprint", store.DeathFilter{Fingerprint: "'"}, nil},
		{"since", store.DeathFilter{Since: at}, []holdfast.TaskID{bill}},
		{"until", store.DeathFilter{Until: at}, []holdfast.TaskID{here + 1}},
		{"a limit", store.DeathFilter{Limit: 1}, []holdfast.TaskID{here + 1}},
	} {
		var got []holdfast.TaskID
		for _, g := range s.deathGroups(c.filter) {
			got = append(got, g.Sample)
		}
		if !slices.Equal(got, c.want) {
			s.Errorf("%s: samples %v, want %v", c.name, got, c.want)
		}
	}
	if groups := s.deathGroups(store.DeathFilter{Queue: "elsewhere"}); groups[0].Tasks != 1 || groups[0].LastHour != 1 {
		s.Errorf("%d tasks of the queue have died, %d of them in the last hour, want 1 and 1", groups[0].Tasks, groups[0].LastHour)
	}
}

func testListGroup(s *suite) {
	var orders []holdfast.TaskID
	for range 3 {
		orders = append(orders, s.die(defaultQueue, errors.New("no order")))
		s.die(defaultQueue, errors.New("no bill"))
	}
	f := store.Filter{Fingerprint: s.deathGroups(store.DeathFilter{})[1].Fingerprint}
	for _, c := range []struct {
		name   string
		filter store.Filter
		want   []holdfast.TaskID
	}{
		{"all", f, []holdfast.TaskID{orders[2], orders[1], orders[0]}},
		{"a limit", store.Filter{Fingerprint: f.Fingerprint, Limit: 2}, []holdfast.TaskID{orders[2], orders[1]}},
		{"a page", store.Filter{Fingerprint: f.Fingerprint, Before: orders[1]}, []holdfast.TaskID{orders[0]}},
		{"its class", store.Filter{Fingerprint: f.Fingerprint, Class: "error"}, []holdfast.TaskID{orders[2], orders[1], orders[0]}},
		{"another class", store.Filter{Fingerprint: f.Fingerprint, Class: "timeout"}, nil},
		{"another state", store.Filter{Fingerprint: f.Fingerprint, States: []holdfast.State{holdfast.Done}}, nil},
		{"the state", store.Filter{Fingerprint: f.Fingerprint, States: []holdfast.State{holdfast.Dead}, Error: "order"}, []holdfast.TaskID{orders[2], orders[1], orders[0]}},
	} {
		s.wantDead(c.name, c.filter, c.want)
	}
}

// wantDead checks that a filter lists exactly these dead tasks. If the filter has no limit, wantDead also checks the
// number that it counts.
func (s *suite) wantDead(name string, f store.Filter, want []holdfast.TaskID) {
	s.Helper()
	page, err := s.List(s.ctx, f)
	s.must(err)
	if got := idsOf(page.Tasks); !slices.Equal(got, append([]holdfast.TaskID{}, want...)) {
		s.Errorf("%s: tasks %v, want %v", name, got, want)
	}
	counts, err := s.Count(s.ctx, f)
	s.must(err)
	if f.Limit == 0 && counts.By[holdfast.Dead] != int64(len(want)) {
		s.Errorf("%s: %d tasks counted, want %d", name, counts.By[holdfast.Dead], len(want))
	}
}

func testListDeaths(s *suite) {
	a := s.die(defaultQueue, delivery("a.example.com", 503))
	b := s.die("elsewhere", delivery("b.example.com", 503))
	c := s.die(defaultQueue, delivery("a.example.com", 500))
	order := s.die(defaultQueue, errors.New("no order"))
	retried := s.die(defaultQueue, delivery("a.example.com", 503))
	s.move(s.task(retried), holdfast.Requested(holdfast.EventRequeue))
	for _, f := range []struct {
		name   string
		filter store.Filter
		want   []holdfast.TaskID
	}{
		{"a class", store.Filter{Class: "http_503"}, []holdfast.TaskID{b, a}},
		{"a host", store.Filter{Host: "a.example.com"}, []holdfast.TaskID{c, a}},
		{"a status", store.Filter{Status: 503}, []holdfast.TaskID{b, a}},
		{"a host and a status", store.Filter{Host: "a.example.com", Status: 503}, []holdfast.TaskID{a}},
		{"a class and a queue", store.Filter{Class: "http_503", Queue: "elsewhere"}, []holdfast.TaskID{b}},
		{"no delivery", store.Filter{Class: "error"}, []holdfast.TaskID{order}},
		{"a limit", store.Filter{Status: 503, Limit: 1}, []holdfast.TaskID{b}},
		{"nothing", store.Filter{Host: "c.example.com"}, nil},
	} {
		s.wantDead(f.name, f.filter, f.want)
	}
}

func testLeaveGroup(s *suite) {
	for _, event := range []holdfast.Event{holdfast.EventRequeue, holdfast.EventCancel, holdfast.EventArchive} {
		dead := s.taskIn(holdfast.Dead)
		if groups := s.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].Sample != dead.ID || groups[0].Tasks != 1 {
			s.Fatalf("before %s: %+v", event, groups)
		}
		s.move(dead, holdfast.Requested(event))
		if groups := s.deathGroups(store.DeathFilter{}); len(groups) > 0 {
			s.Errorf("after %s: %+v", event, groups)
		}
	}
}

// testFirstDeathIsKept removes the first task of a group in each way that a person can use.
func testFirstDeathIsKept(s *suite) {
	requeue := holdfast.Requested(holdfast.EventRequeue)
	for _, c := range []struct {
		name  string
		leave func(first holdfast.Task)
	}{
		{"retry", func(first holdfast.Task) { s.mustChange(s.changeOf(store.ActionRetry, first, requeue)) }},
		{"archive", func(first holdfast.Task) {
			s.mustChange(s.changeOf(store.ActionArchive, first, holdfast.Requested(holdfast.EventArchive)))
		}},
		{"cancel", func(first holdfast.Task) {
			s.mustChange(s.changeOf(store.ActionCancel, first, holdfast.Requested(holdfast.EventCancel)))
		}},
		{"purge", func(first holdfast.Task) { s.mustChange(store.Change{Action: store.ActionPurge, Task: first}) }},
		{"operation", func(first holdfast.Task) {
			_, err := s.StepOperation(s.ctx, s.retryStep(s.retryOperation(), first))
			s.must(err)
		}},
	} {
		err := delivery(c.name+".example.com", 503)
		first := s.task(s.die(defaultQueue, err))
		fingerprint := s.deathGroups(store.DeathFilter{})[0].Fingerprint
		c.leave(first)
		if groups := s.deathGroups(store.DeathFilter{}); len(groups) != 0 {
			s.Fatalf("%s: a group without dead tasks is listed: %+v", c.name, groups)
		}
		details, detailsErr := s.DeathGroup(s.ctx, fingerprint)
		s.must(detailsErr)
		if g := details.DeathGroup; g.Tasks != 0 || g.Sample != first.ID || !g.FirstAt.Equal(first.FinishedAt) || !g.LastAt.Equal(first.FinishedAt) || g.Version != 1 {
			s.Errorf("%s: without tasks: %+v", c.name, g)
		}
		second := s.task(s.die(defaultQueue, err))
		group := s.group()
		if !group.FirstAt.Equal(first.FinishedAt) || !group.LastAt.Equal(second.FinishedAt) || group.Tasks != 1 || group.Sample != second.ID || group.State != store.GroupOpen {
			s.Errorf("%s: %+v; want the first death at %s", c.name, group, first.FinishedAt)
		}
		s.mustChange(s.changeOf(store.ActionRetry, second, requeue))
	}
}

func testRefusedDeath(s *suite) {
	running := s.runningTask()
	death := s.settle(running, holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))))
	s.move(running, holdfast.Returned(nil))
	if s.apply(death)[0] || len(s.deathGroups(store.DeathFilter{})) > 0 {
		s.Error("a refused death is recorded")
	}
	dead := s.taskIn(holdfast.Dead)
	requeue := s.settle(dead, holdfast.Requested(holdfast.EventRequeue))
	requeue.Attempt++
	if s.apply(requeue)[0] || len(s.deathGroups(store.DeathFilter{})) != 1 {
		s.Error("a refused retry has deleted the record")
	}
}

func testGroupsFollowChanges(s *suite) {
	dead := s.task(s.die(defaultQueue, errors.New("no order")))
	group := s.deathGroups(store.DeathFilter{})[0]
	want := func(when string, f store.DeathFilter, wanted ...store.DeathGroup) {
		s.Helper()
		if groups := s.deathGroups(f); !slices.Equal(groups, wanted) {
			s.Errorf("%s: groups %+v, want %+v", when, groups, wanted)
		}
	}
	s.mustChange(editOf(dead, store.Edit{Queue: "elsewhere"}))
	want("after an edit", store.DeathFilter{Queue: "elsewhere"}, group)
	for _, by := range longActors() {
		_, err := s.ChangeDeathGroup(s.ctx, by, store.GroupChange{Fingerprint: group.Fingerprint, Action: store.ActionAssign, Text: "ben"})
		if !errors.Is(err, holdfast.ErrInvalid) {
			s.Errorf("assign with a name of %d and a reason of %d bytes: %v", len(by.Name), len(by.Reason), err)
		}
	}
	s.mustChange(s.changeOf(store.ActionRetry, s.task(dead.ID), holdfast.Requested(holdfast.EventRequeue)))
	want("after a retry", store.DeathFilter{})
	s.mustChange(s.changeOf(store.ActionUndo, s.task(dead.ID), holdfast.Undone(dead.Failures, dead.Crashes, dead.Deferrals)))
	s.recordDeaths(10)
	if groups := s.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].Sample != dead.ID {
		s.Errorf("after the retry is undone: groups %+v", groups)
	}
	s.mustChange(store.Change{Action: store.ActionPurge, Task: s.task(dead.ID)})
	want("after a purge", store.DeathFilter{})
}

func testRecordDeaths(s *suite) {
	// A result without a fingerprint gets no record.
	for _, err := range []error{errors.New("order 1 is unknown"), errors.New("order 2 is unknown"), delivery("a.example.com", 503)} {
		death := s.settle(s.runningTask(), holdfast.Returned(holdfast.Permanent(err)))
		death.Fingerprint = ""
		s.apply(death)
	}
	s.die(defaultQueue, errors.New("order 3 is unknown"))
	restored := s.taskIn(holdfast.Archived)
	s.move(restored, holdfast.Requested(holdfast.EventRestore))
	s.recordDeaths(2)
	groups := s.deathGroups(store.DeathFilter{})
	if len(groups) != 3 || groups[0].Tasks != 3 {
		s.Errorf("groups %+v; want three tasks in the first and three groups", groups)
	}
	at := slices.IndexFunc(groups, func(g store.DeathGroup) bool { return g.Status == 503 })
	if at < 0 || groups[at].Host != "a.example.com" || groups[at].Class != "http_503" || groups[at].LastAt != s.task(groups[at].Sample).FinishedAt {
		s.Errorf("groups %+v; want one of a delivery", groups)
	}
}

// recordDeaths calls RecordDeaths until every record is right. Each call adds or deletes at most limit records.
func (s *suite) recordDeaths(limit int) {
	s.Helper()
	for {
		n, err := s.RecordDeaths(s.ctx, limit)
		s.must(err)
		if n > 2*limit {
			s.Errorf("RecordDeaths changed %d records; the limit is %d of each kind", n, limit)
		}
		if n == 0 {
			return
		}
	}
}

// RunOutdatedDeaths checks that RecordDeaths deletes the records that changes by hand leave behind. s is empty
// and migrated. exec executes a statement in the schema of s.
func RunOutdatedDeaths(t *testing.T, s desk.Store, exec func(statement string)) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	stays, retried := w.taskIn(holdfast.Dead), w.taskIn(holdfast.Dead)
	exec("create table kept as select * from deaths")
	w.move(retried, holdfast.Requested(holdfast.EventRequeue))
	exec("delete from deaths")
	exec("insert into deaths select * from kept")
	if groups := w.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].Tasks != 2 {
		t.Fatalf("groups %+v; want one with an outdated record", groups)
	}
	f := store.Filter{Fingerprint: w.deathGroups(store.DeathFilter{})[0].Fingerprint}
	if page, err := s.List(t.Context(), f); err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != stays.ID {
		t.Errorf("the list of the group is %v, %v", page.Tasks, err)
	}
	w.recordDeaths(10)
	if groups := w.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].Tasks != 1 || groups[0].Sample != stays.ID {
		t.Errorf("groups %+v; want only the dead task", groups)
	}
	// The task dies again, and its old record is still there.
	exec("update kept set died_at = (select min(created_at) from tasks)")
	exec("delete from deaths")
	exec("insert into deaths select * from kept")
	w.recordDeaths(1)
	if groups := w.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].FirstAt != w.task(stays.ID).FinishedAt || groups[0].LastHour != 1 {
		t.Errorf("groups %+v; want the time of the last death", groups)
	}
}

// RunDeathsAtOneTime checks that deaths at the same time are recorded for the right tasks. exec is as in
// RunOutdatedDeaths.
func RunDeathsAtOneTime(t *testing.T, s desk.Store, exec func(statement string)) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	record := func(limit, want int) {
		t.Helper()
		if n, err := s.RecordDeaths(t.Context(), limit); n != want || err != nil {
			t.Errorf("RecordDeaths changed %d records: %v, want %d", n, err, want)
		}
	}
	first, second := w.die(defaultQueue, delivery("a.example.com", 503)), w.die(defaultQueue, delivery("b.example.com", 500))
	exec("create table died as select min(dead_at) as at from tasks")
	exec("update tasks set dead_at = (select at from died) where dead_at is not null")
	exec("delete from deaths")
	record(10, 2)
	for _, f := range []store.Filter{{Host: "a.example.com"}, {Host: "b.example.com"}} {
		if page, err := s.List(t.Context(), f); err != nil || len(page.Tasks) != 1 || (page.Tasks[0].ID == first) != (f.Host == "a.example.com") {
			t.Errorf("the dead tasks of the host %s are %v, %v", f.Host, page.Tasks, err)
		}
	}
	// Two of three records with the same time are outdated, and a call deletes one of them.
	w.die(defaultQueue, errors.New("no order"))
	exec("update tasks set dead_at = (select at from died) where dead_at is not null")
	exec("update deaths set died_at = (select at from died)")
	exec("create table recorded as select * from deaths")
	w.move(w.task(first), holdfast.Requested(holdfast.EventRequeue))
	w.move(w.task(second), holdfast.Requested(holdfast.EventRequeue))
	exec("delete from deaths")
	exec("insert into deaths select * from recorded")
	record(1, 1)
	record(1, 1)
	record(1, 0)
	if groups := w.deathGroups(store.DeathFilter{}); len(groups) != 1 || groups[0].Error != "no order" {
		t.Errorf("groups %+v, want one", groups)
	}
}

// RunUnknownGroups checks that the store remembers no more than the groups that lose tasks or that a person changes.
// exec is as in RunOutdatedDeaths.
func RunUnknownGroups(t *testing.T, s desk.Store, exec func(statement string)) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	w.die(defaultQueue, errors.New("no order"))
	unknown := w.group().Fingerprint
	leaves := w.task(w.die(defaultQueue, delivery("a.example.com", 503)))
	w.mustChange(w.changeOf(store.ActionArchive, leaves, holdfast.Requested(holdfast.EventArchive)))
	w.die(defaultQueue, delivery("b.example.com", 500))
	groups := w.deathGroups(store.DeathFilter{})
	changed := groups[slices.IndexFunc(groups, func(g store.DeathGroup) bool { return g.Status == 500 })]
	w.changeGroup(store.GroupChange{Fingerprint: changed.Fingerprint, Action: store.ActionNote, Text: "a note"})
	exec("delete from deaths")
	if _, err := s.DeathGroup(t.Context(), changed.Fingerprint); err != nil {
		t.Errorf("the changed group: %v", err)
	}
	if _, err := s.DeathGroup(t.Context(), unknown); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("a group without records that no person has changed: %v, want ErrNotFound", err)
	}
}
