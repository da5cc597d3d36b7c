package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var inspectTests = []test{
	{"lists tasks by filter, highest id first", testList},
	{"lists tasks page by page", testListPages},
	{"finds a task behind thousands of others", testListFar},
	{"counts tasks by state", testCount},
	{"reads one task", testTask},
	{"describes queues", testQueues},
	{"knows the oldest due task", testOldestDue},
}

func testList(s *suite) {
	foreign := newTask()
	foreign.Type, foreign.Queue = other, "elsewhere"
	keyed := newTask()
	keyed.Unique, keyed.Key = "ada", "tenant 7"
	tickets := s.insert(keyed, foreign, newTask(), newTask(), newTask())
	worker := s.registerWorker()
	s.move(s.mustClaim(worker, tickets[2])[0], holdfast.Returned(holdfast.Permanent(errors.New(`no: Connection refused 100% by "host_1"`))))
	s.move(s.mustClaim(worker, tickets[3])[0], holdfast.Returned(errors.New("timeout")))
	s.move(s.mustClaim(worker, tickets[4])[0], holdfast.Returned(nil))

	newest, err := s.Task(s.ctx, tickets[4].Task)
	s.must(err)
	created, ended := newest.CreatedAt, newest.FinishedAt
	for _, c := range []struct {
		name   string
		filter store.Filter
		want   []int
	}{
		{"until the first was created", store.Filter{Until: created}, nil},
		{"until after the end of the last", store.Filter{Until: ended.Add(time.Microsecond)}, []int{4, 3, 2, 1, 0}},
		{"until the end of the last", store.Filter{Until: ended}, []int{3, 2, 1, 0}},
		{"since the end of the last", store.Filter{Since: ended}, []int{4}},
		{"since after the end of the last", store.Filter{Since: ended.Add(time.Microsecond)}, nil},
		{"dead, since a time", store.Filter{Since: created.Add(time.Microsecond), States: []holdfast.State{holdfast.Dead}}, []int{2}},
		{"everything", store.Filter{}, []int{4, 3, 2, 1, 0}},
		{"a state", store.Filter{States: []holdfast.State{holdfast.Ready}}, []int{3, 1, 0}},
		{"two states", store.Filter{States: []holdfast.State{holdfast.Dead, holdfast.Done}}, []int{4, 2}},
		{"dead letters", store.Filter{States: []holdfast.State{holdfast.Dead}}, []int{2}},
		{"a type", store.Filter{Type: other}, []int{1}},
		{"a queue", store.Filter{Queue: "elsewhere"}, []int{1}},
		{"another queue", store.Filter{Queue: "nowhere"}, nil},
		{"part of an error", store.Filter{Error: "connection REFUSED"}, []int{2}},
		{"a percent sign is not a pattern", store.Filter{Error: "100%"}, []int{2}},
		{"a question mark is not a wildcard", store.Filter{Error: "host?1"}, nil},
		{"an underscore", store.Filter{Error: "HOST_1"}, []int{2}},
		{"a limit", store.Filter{Limit: 2}, []int{4, 3}},
		{"a unique key", store.Filter{Unique: "ada"}, []int{0}},
		{"a key", store.Filter{Key: "tenant 7"}, []int{0}},
		{"an unknown key", store.Filter{Key: "ada"}, nil},
		{"an unknown unique key", store.Filter{Unique: "grace"}, nil},
		{"a unique key and another state", store.Filter{Unique: "ada", States: []holdfast.State{holdfast.Done}}, nil},
		{"the second attempt", store.Filter{MinAttempt: 2}, []int{3}},
		{"the first attempt", store.Filter{MaxAttempt: 1, States: []holdfast.State{holdfast.Ready, holdfast.Dead}}, []int{2, 1, 0}},
		{"before an id", store.Filter{Before: tickets[2].Task}, []int{1, 0}},
		{"all fields", store.Filter{States: []holdfast.State{holdfast.Ready}, Type: kind, Queue: defaultQueue, Error: "time", Limit: 9}, []int{3}},
	} {
		got, err := s.List(s.ctx, c.filter)
		s.must(err)
		counts, err := s.Count(s.ctx, c.filter)
		s.must(err)
		n := int64(0)
		for _, count := range counts.By {
			n += count
		}
		if c.filter.Limit == 0 && n != int64(len(c.want)) {
			s.Errorf("%s: Count returned %d, want %d", c.name, n, len(c.want))
		}
		want := []holdfast.TaskID{}
		for _, i := range c.want {
			want = append(want, tickets[i].Task)
		}
		if !slices.Equal(idsOf(got.Tasks), want) {
			s.Errorf("%s: List returned %v, want %v", c.name, idsOf(got.Tasks), want)
		}
		if (got.Next != 0) != (c.filter.Limit == 2) { // the other filters select all that match
			s.Errorf("%s: the next page begins before %d", c.name, got.Next)
		}
	}
}

func testListPages(s *suite) {
	tickets := s.insertN(120)
	got, err := s.List(s.ctx, store.Filter{})
	s.must(err)
	if len(got.Tasks) != 50 {
		s.Errorf("List without a limit returned %d tasks, want 50", len(got.Tasks))
	}
	var seen []holdfast.TaskID
	for f := (store.Filter{Limit: 40}); ; {
		page, err := s.List(s.ctx, f)
		s.must(err)
		if len(page.Tasks) != 40 {
			s.Errorf("a page of %d tasks", len(page.Tasks))
		}
		seen = append(seen, idsOf(page.Tasks)...)
		if f.Before = page.Next; f.Before == 0 {
			break
		}
	}
	slices.Reverse(seen)
	if !slices.Equal(seen, ids(tickets)) {
		s.Errorf("the pages have %d tasks, want all tasks once", len(seen))
	}
}

func testListFar(s *suite) {
	far := newTask()
	far.Type = other
	want := s.insert(far, newTask(), far)
	s.insertN(5000)
	for limit, n := range map[int]int{1: 1, 2: 2, 3: 2} {
		page, err := s.List(s.ctx, store.Filter{Type: other, Limit: limit})
		s.must(err)
		if got := idsOf(page.Tasks); len(got) != n || got[0] != want[2].Task || (page.Next != 0) != (limit == 1) {
			s.Errorf("limit %d: tasks %v, next %d", limit, got, page.Next)
		}
	}
}

func testCount(s *suite) {
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if len(counts.By) != len(holdfast.States()) {
		s.Errorf("Count of an empty store returned %v", counts)
	}
	foreign := newTask()
	foreign.Type = other
	s.insert(newTask(), newTask(), foreign)
	s.taskIn(holdfast.Dead)
	for _, c := range []struct {
		filter      store.Filter
		ready, dead int64
	}{
		{store.Filter{}, 3, 1},
		{store.Filter{Limit: 1}, 3, 1},
		{store.Filter{Type: other}, 1, 0},
		{store.Filter{Error: "hope"}, 0, 1},
		{store.Filter{States: []holdfast.State{holdfast.Dead}}, 0, 1},
	} {
		counts, err := s.Count(s.ctx, c.filter)
		s.must(err)
		if counts.By[holdfast.Ready] != c.ready || counts.By[holdfast.Dead] != c.dead || len(counts.By) != len(holdfast.States()) {
			s.Errorf("Count with %+v returned %v", c.filter, counts)
		}
	}
}

func testTask(s *suite) {
	if _, err := s.Task(s.ctx, 1<<60); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("Task of a task that does not exist: %v, want ErrNotFound", err)
	}
	task := newTask()
	task.Payload = []byte(`[1, 2]`)
	ticket := s.insert(task)[0]
	if got := s.task(ticket.Task); string(got.Payload) != `[1, 2]` {
		s.Errorf("Task returned %+v", got)
	}
	listed, err := s.List(s.ctx, store.Filter{})
	s.must(err)
	if len(listed.Tasks) != 1 || len(listed.Tasks[0].Payload) > 0 {
		s.Errorf("List returned %+v, want one task without payload", listed)
	}
}

func testQueues(s *suite) {
	later, elsewhere := newTask(), newTask()
	later.Delay, elsewhere.Queue = time.Hour, "elsewhere"
	past := newTask()
	tickets := s.insert(newTask(), later, past, elsewhere)
	s.mustClaim(s.registerWorker(), tickets[0])
	unhandled, dead := newTask(), newTask()
	unhandled.Type, unhandled.Queue, dead.Queue = other, "elsewhere", "elsewhere"
	more := s.insert(unhandled, dead)
	s.must(s.Park(s.ctx, more[:1], time.Hour, "no handler"))
	s.move(s.mustClaim(s.registerWorker(), more[1])[0], holdfast.Returned(holdfast.Permanent(errors.New("never"))))
	queues, err := s.Queues(s.ctx)
	s.must(err)
	if len(queues) != 2 {
		s.Fatalf("the queues are %+v", queues)
	}
	got := queues[0]
	if got.Name != defaultQueue || got.Ready != 2 || got.Due != 1 || got.Running != 1 || got.OldestDue <= 0 || got.OldestDue > slow.Patience() || !got.DrainedAt.IsZero() {
		s.Errorf("the default queue is %+v", got)
	}
	if got = queues[1]; got.Name != "elsewhere" || got.Ready != 2 || got.Running != 0 || got.Dead != 1 || got.Parked != 1 ||
		!slices.Equal(got.ParkedTypes, []string{other}) {
		s.Errorf("the other queue is %+v", got)
	}
}

// testOldestDue checks OldestDue with two tasks. The first one became due earlier, but got its ticket later.
func testOldestDue(s *suite) {
	oldest := s.task(s.insertDue(1)[0].Task)
	s.insert(newTask())
	if _, result := s.dispatch(10); result.Marked != 1 {
		s.Fatalf("DispatchDue returned %+v, want one task", result)
	}
	now, err := s.Now(s.ctx)
	s.must(err)
	queues, err := s.Queues(s.ctx)
	s.must(err)
	if least := now.Sub(oldest.NextRunAt); len(queues) != 1 || queues[0].OldestDue < least {
		s.Errorf("the queues are %+v, want an OldestDue of at least %s", queues, least)
	}
}
