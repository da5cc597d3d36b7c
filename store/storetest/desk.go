package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var deskTests = []test{
	{"lists by filter, newest first", testList},
	{"pages", testListPages},
	{"counts by state", testCount},
	{"reads one task", testTask},
	{"describes lanes", testLanes},
}

func testList(s *suite) {
	foreign := newTask()
	foreign.Type, foreign.Lane = other, "elsewhere"
	tickets := s.insert(newTask(), foreign, newTask(), newTask(), newTask())
	run := s.openRun()
	s.move(s.claimed(run, tickets[2])[0], holdfast.Returned(holdfast.Permanent(errors.New(`no: Connection refused 100% by "host_1"`))))
	s.move(s.claimed(run, tickets[3])[0], holdfast.Returned(errors.New("timeout")))
	s.move(s.claimed(run, tickets[4])[0], holdfast.Returned(nil))

	newest, err := s.Task(s.ctx, tickets[4].Task)
	s.must(err)
	created, ended := newest.CreatedAt, newest.FinishedAt
	for _, c := range []struct {
		name   string
		filter store.Filter
		want   []int
	}{
		{"until before the first", store.Filter{Until: created}, nil},
		{"until after the last", store.Filter{Until: ended.Add(time.Microsecond)}, []int{4, 3, 2, 1, 0}},
		{"until the last has ended", store.Filter{Until: ended}, []int{3, 2, 1, 0}},
		{"since the last has ended", store.Filter{Since: ended}, []int{4}},
		{"since after the last", store.Filter{Since: ended.Add(time.Microsecond)}, nil},
		{"dead since", store.Filter{Since: created.Add(time.Microsecond), States: []holdfast.State{holdfast.Dead}}, []int{2}},
		{"everything", store.Filter{}, []int{4, 3, 2, 1, 0}},
		{"a state", store.Filter{States: []holdfast.State{holdfast.Ready}}, []int{3, 1, 0}},
		{"two states", store.Filter{States: []holdfast.State{holdfast.Dead, holdfast.Done}}, []int{4, 2}},
		{"dead letters", store.Filter{States: []holdfast.State{holdfast.Dead}}, []int{2}},
		{"a type", store.Filter{Type: other}, []int{1}},
		{"a lane", store.Filter{Lane: "elsewhere"}, []int{1}},
		{"another lane", store.Filter{Lane: "nowhere"}, nil},
		{"part of an error", store.Filter{Error: "connection REFUSED"}, []int{2}},
		{"no pattern", store.Filter{Error: "100%"}, []int{2}},
		{"no wildcard", store.Filter{Error: "host?1"}, nil},
		{"an underscore", store.Filter{Error: "HOST_1"}, []int{2}},
		{"a limit", store.Filter{Limit: 2}, []int{4, 3}},
		{"before an id", store.Filter{Before: tickets[2].Task}, []int{1, 0}},
		{"all of it", store.Filter{States: []holdfast.State{holdfast.Ready}, Type: kind, Lane: defaultLane, Error: "time", Limit: 9}, []int{3}},
	} {
		got, err := s.List(s.ctx, c.filter)
		s.must(err)
		counts, err := s.Count(s.ctx, c.filter)
		s.must(err)
		n := int64(0)
		for _, count := range counts {
			n += count
		}
		if c.filter.Limit == 0 && n != int64(len(c.want)) {
			s.Errorf("%s: counted %d, want %d", c.name, n, len(c.want))
		}
		want := []holdfast.TaskID{}
		for _, i := range c.want {
			want = append(want, tickets[i].Task)
		}
		if !slices.Equal(idsOf(got), want) {
			s.Errorf("%s: %v, want %v", c.name, idsOf(got), want)
		}
	}
}

func testListPages(s *suite) {
	tickets := s.inserts(120)
	got, err := s.List(s.ctx, store.Filter{})
	s.must(err)
	if len(got) != 50 {
		s.Errorf("a page without a limit has %d tasks", len(got))
	}
	var seen []holdfast.TaskID
	for before := holdfast.TaskID(0); ; before = seen[len(seen)-1] {
		page, err := s.List(s.ctx, store.Filter{Before: before, Limit: 50})
		s.must(err)
		if len(page) == 0 {
			break
		}
		seen = append(seen, idsOf(page)...)
	}
	slices.Reverse(seen)
	if !slices.Equal(seen, ids(tickets)) {
		s.Errorf("the pages hold %d tasks", len(seen))
	}
}

func testCount(s *suite) {
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if len(counts) != len(holdfast.States()) {
		s.Errorf("of nothing, %v", counts)
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
		if counts[holdfast.Ready] != c.ready || counts[holdfast.Dead] != c.dead || len(counts) != len(holdfast.States()) {
			s.Errorf("%+v: %v", c.filter, counts)
		}
	}
}

func testTask(s *suite) {
	if _, err := s.Task(s.ctx, 1<<60); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("a task that does not exist: %v", err)
	}
	task := newTask()
	task.Payload = []byte(`[1, 2]`)
	ticket := s.insert(task)[0]
	if got := s.task(ticket.Task); string(got.Payload) != `[1, 2]` {
		s.Errorf("read %+v", got)
	}
	listed, err := s.List(s.ctx, store.Filter{})
	s.must(err)
	if len(listed) != 1 || len(listed[0].Payload) > 0 {
		s.Errorf("listed %+v", listed)
	}
}

func testLanes(s *suite) {
	later, elsewhere := newTask(), newTask()
	later.Delay, elsewhere.Lane = time.Hour, "elsewhere"
	past := newTask()
	tickets := s.insert(newTask(), later, past, elsewhere)
	s.claimed(s.openRun(), tickets[0])
	lanes, err := s.Lanes(s.ctx)
	s.must(err)
	if len(lanes) != 2 {
		s.Fatalf("the lanes are %+v", lanes)
	}
	got := lanes[0]
	if got.Name != defaultLane || got.Ready != 2 || got.Due != 1 || got.Running != 1 || got.OldestDue <= 0 || got.OldestDue > patience || !got.DrainedAt.IsZero() {
		s.Errorf("the default lane is %+v", got)
	}
	if got = lanes[1]; got.Name != "elsewhere" || got.Ready != 1 || got.Due != 1 || got.Running != 0 {
		s.Errorf("the other lane is %+v", got)
	}
}
