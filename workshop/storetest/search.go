package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// RunTagRows checks that the rows of tags are deleted with their tasks. rows returns the number of rows.
func RunTagRows(t *testing.T, open desk.Store, rows func() int) {
	s := &suite{T: t, Store: open, ctx: t.Context()}
	tagged := newTask()
	tagged.Tags = []string{"ada", "bob"}
	tickets := s.insert(tagged, tagged, newTask(), tagged)
	if n := rows(); n != 6 {
		t.Fatalf("%d rows for three tasks with two tags", n)
	}
	worker := s.registerWorker()
	s.move(s.mustClaim(worker, tickets[0])[0], holdfast.Returned(nil))
	s.prune(store.PruneAges{Done: time.Microsecond}, 1)
	if n := rows(); n != 4 {
		t.Errorf("%d rows after a task was pruned, want 4", n)
	}
	dead := s.move(s.mustClaim(worker, tickets[1])[0], holdfast.Returned(holdfast.Permanent(errors.New("no"))))
	s.mustChange(store.Change{Action: store.ActionPurge, Task: dead})
	if n := rows(); n != 2 {
		t.Errorf("%d rows after a task was purged, want 2", n)
	}
	page, err := s.List(s.ctx, store.Filter{Tags: []string{"ada"}})
	s.must(err)
	if got := idsOf(page.Tasks); !slices.Equal(got, []holdfast.TaskID{tickets[3].Task}) {
		t.Errorf("the tasks with the tag are %v", got)
	}
}

var searchTests = []test{
	{"stores tags, and finds tasks by them", testTags},
	{"finds tasks by id", testListIDs},
	{"finds tasks by values in the payload", testListPayload},
	{"payloads that are hard to read end no scan", testListOddPayloads},
	{"every filter selects what the same filter in Go selects", testRandomFilters},
}

func testTags(s *suite) {
	tagged := func(tags ...string) holdfast.NewTask {
		task := newTask()
		task.Tags = tags
		return task
	}
	later, unique, again := tagged("ada"), tagged("größe/<b>&", "ada"), tagged("never")
	later.Delay, unique.Unique, again.Unique = time.Hour, "k", "k"
	tickets := s.insert(tagged("ada", "order:7"), newTask(), later, unique)
	if got := s.insert(again)[0]; got.Task != tickets[3].Task {
		s.Errorf("the duplicate is task %s, want %s", got.Task, tickets[3].Task)
	}
	s.insert(newTask(), newTask()) // another statement stores tasks without tags
	for i, want := range [][]string{{"ada", "order:7"}, nil, {"ada"}, {"größe/<b>&", "ada"}} {
		if got := s.task(tickets[i].Task).Tags; !slices.Equal(got, want) {
			s.Errorf("the tags of task %d are %q, want %q", i, got, want)
		}
	}
	if got := s.mustClaim(s.registerWorker(), tickets[0])[0].Tags; !slices.Equal(got, []string{"ada", "order:7"}) {
		s.Errorf("the tags of the claimed task are %q", got)
	}
	for _, c := range []struct {
		filter store.Filter
		want   []int
	}{
		{store.Filter{Tags: []string{"ada"}}, []int{3, 2, 0}},
		{store.Filter{Tags: []string{"ada"}, Limit: 2}, []int{3, 2}},
		{store.Filter{Tags: []string{"ada"}, Before: tickets[3].Task}, []int{2, 0}},
		{store.Filter{Tags: []string{"ada", "order:7"}}, []int{0}},
		{store.Filter{Tags: []string{"order:7", "größe/<b>&"}}, nil},
		{store.Filter{Tags: []string{"größe/<b>&"}}, []int{3}},
		{store.Filter{Tags: []string{"ad"}}, nil},
		{store.Filter{Tags: []string{"never"}}, nil},
		{store.Filter{Tags: []string{`"' or true --`}}, nil},
		{store.Filter{Tags: []string{"ada"}, Unique: "k"}, []int{3}},
		{store.Filter{Tags: []string{"ada"}, States: []holdfast.State{holdfast.Running}}, []int{0}},
		{store.Filter{Tags: []string{"ada"}, States: []holdfast.State{holdfast.Dead}}, nil},
	} {
		page, err := s.List(s.ctx, c.filter)
		s.must(err)
		want := []holdfast.TaskID{}
		for _, i := range c.want {
			want = append(want, tickets[i].Task)
		}
		if got := idsOf(page.Tasks); !slices.Equal(got, want) {
			s.Errorf("%+v lists %v, want %v", c.filter, got, want)
		}
	}
}

func testListIDs(s *suite) {
	tickets := s.insertN(6)
	id := func(i int) holdfast.TaskID { return tickets[i].Task }
	for _, c := range []struct {
		name   string
		filter store.Filter
		want   []int
	}{
		{"one", store.Filter{IDs: []holdfast.TaskID{id(2)}}, []int{2}},
		{"several, some twice or unknown", store.Filter{IDs: []holdfast.TaskID{id(1), id(4), id(1), 1 << 60}}, []int{4, 1}},
		{"a limit", store.Filter{IDs: []holdfast.TaskID{id(1), id(4), id(3)}, Limit: 2}, []int{4, 3}},
		{"the next page", store.Filter{IDs: []holdfast.TaskID{id(1), id(4), id(3)}, Before: id(3)}, []int{1}},
		{"of another state", store.Filter{IDs: []holdfast.TaskID{id(1)}, States: []holdfast.State{holdfast.Dead}}, nil},
		{"from", store.Filter{MinID: id(4)}, []int{5, 4}},
		{"through", store.Filter{MaxID: id(1)}, []int{1, 0}},
		{"a range", store.Filter{MinID: id(2), MaxID: id(3)}, []int{3, 2}},
		{"a range and a page", store.Filter{MinID: id(1), MaxID: id(4), Before: id(3)}, []int{2, 1}},
		{"an empty range", store.Filter{MinID: id(5) + 1}, nil},
		{"all but some, some twice or unknown", store.Filter{NotIDs: []holdfast.TaskID{id(1), id(4), id(1), 1 << 60}}, []int{5, 3, 2, 0}},
		{"some but one of them", store.Filter{IDs: []holdfast.TaskID{id(1), id(4)}, NotIDs: []holdfast.TaskID{id(4), id(2)}}, []int{1}},
		{"one but this one", store.Filter{IDs: []holdfast.TaskID{id(1)}, NotIDs: []holdfast.TaskID{id(1)}}, nil},
		{"a range but one, a limit", store.Filter{MinID: id(1), MaxID: id(4), NotIDs: []holdfast.TaskID{id(3)}, Limit: 2}, []int{4, 2}},
		{"the groups of states but one task", store.Filter{States: []holdfast.State{holdfast.Ready}, NotIDs: []holdfast.TaskID{id(0)}}, []int{5, 4, 3, 2, 1}},
		{"as many as a search may leave out", store.Filter{NotIDs: manyIDs(id(2))}, []int{5, 4, 3, 1, 0}},
	} {
		page, err := s.List(s.ctx, c.filter)
		s.must(err)
		counts, err := s.Count(s.ctx, c.filter)
		s.must(err)
		want := []holdfast.TaskID{}
		for _, i := range c.want {
			want = append(want, id(i))
		}
		if got := idsOf(page.Tasks); !slices.Equal(got, want) || c.filter.Limit == 0 && counts.By[holdfast.Ready] != int64(len(want)) {
			s.Errorf("%s: %v, %d counted; want %v", c.name, got, counts.By[holdfast.Ready], want)
		}
	}
}

// manyIDs returns 1,000 ids, the last of which is the given one. No task has any of the others.
func manyIDs(last holdfast.TaskID) []holdfast.TaskID {
	ids := make([]holdfast.TaskID, 1000)
	for i := range ids {
		ids[i] = 1<<60 + holdfast.TaskID(i)
	}
	ids[len(ids)-1] = last
	return ids
}

// payloadSamples are payloads with a number, by which the test finds them.
var payloadSamples = []string{
	`{"order":{"id":42,"paid":true},"items":[{"sku":"a b"},{"sku":"c"}],"none":null}`,
	`{"order":{"id":"42","paid":"true"},"items":{"0":{"sku":"a b"}},"none":"null"}`,
	`{"order":{"id":4.2e1}, "a.b":{"c \"d\"":"x"}, "":{"":"empty"}}`,
	`{"order":42}`, `{"order":[42]}`, `[{"order":"é"}]`, `null`, `"42"`, `{"order":{"id":"4\u0032"}}`,
	`{"order":{"id":{"x":42}},"big":1e4000,"long":` + strings.Repeat("1", 60) + `,"tiny":1e-300}`,
}

func testListPayload(s *suite) {
	var tasks []holdfast.NewTask
	for _, payload := range payloadSamples {
		task := newTask()
		task.Payload = json.RawMessage(payload)
		tasks = append(tasks, task)
	}
	padded := newTask() // a payload that the store keeps elsewhere
	padded.Payload = json.RawMessage(`{"pad":"` + strings.Repeat("x", 100_000) + `","order":{"id":7}}`)
	tickets := s.insert(append(tasks, padded)...)
	at := func(value string, path ...string) store.PayloadTerm {
		return store.PayloadTerm{Path: path, Value: value}
	}
	text := func(value string, path ...string) store.PayloadTerm {
		return store.PayloadTerm{Path: path, Value: value, Text: true}
	}
	for _, c := range []struct {
		term store.PayloadTerm
		want []int
	}{
		{at("42", "order", "id"), []int{8, 2, 1, 0}},
		{at("42.0", "order", "id"), []int{2, 0}},
		{at("420e-1", "order", "id"), []int{2, 0}},
		{text("42", "order", "id"), []int{8, 1}},
		{at("true", "order", "paid"), []int{1, 0}},
		{text("true", "order", "paid"), []int{1}},
		{at("null", "none"), []int{1, 0}},
		{text("null", "none"), []int{1}},
		{at("null", "missing"), nil},
		{text("a b", "items", "0", "sku"), []int{1, 0}},
		{at("c", "items", "1", "sku"), []int{0}},
		{at("c", "items", "-1", "sku"), []int{0}},
		{at("c", "items", "2", "sku"), nil},
		{at("x", "a.b", `c "d"`), []int{2}},
		{at("empty", "", ""), []int{2}},
		{at("42", "order"), []int{3}},
		{at("42", "order", "0"), []int{4}},
		{at("é", "0", "order"), []int{5}},
		{at("1e4000", "big"), []int{9}}, // compared as text
		{at("10e3999", "big"), nil},
		{at(strings.Repeat("1", 60), "long"), []int{9}},
		{at("0.1e-299", "tiny"), []int{9}},
		{at("' or true --", "order"), nil},
		{at("42", `order","id`), nil},
		{at("42", "$.order"), nil},
		{at("7", "order", "id"), []int{10}},
	} {
		page, err := s.List(s.ctx, store.Filter{Payload: []store.PayloadTerm{c.term}})
		s.must(err)
		want := []holdfast.TaskID{}
		for _, i := range c.want {
			want = append(want, tickets[i].Task)
		}
		if got := idsOf(page.Tasks); !slices.Equal(got, want) {
			s.Errorf("%+v lists %v, want %v", c.term, got, want)
		}
	}
	both := store.Filter{Payload: []store.PayloadTerm{at("42", "order", "id"), at("c", "items", "1", "sku")}}
	page, err := s.List(s.ctx, both)
	s.must(err)
	if got := idsOf(page.Tasks); !slices.Equal(got, []holdfast.TaskID{tickets[0].Task}) {
		s.Errorf("two values: %v", got)
	}
	if counts, err := s.Count(s.ctx, both); err != nil || counts.By[holdfast.Ready] != 1 {
		s.Errorf("two values: %v counted, %v", counts, err)
	}
}

func testListOddPayloads(s *suite) {
	var tasks []holdfast.NewTask
	for _, payload := range []string{
		`{"a":"\u0000","b":7}`, `{"a":"\ud800","b":7}`, `{"\u0000":1,"b":7}`, `{"a":1e99999999,"b":7}`,
		strings.Repeat("[", 1000) + strings.Repeat("]", 1000), `{"a":"` + strings.Repeat("y", 900_000) + `"}`, `{"b":7}`,
	} {
		task := newTask()
		task.Payload = json.RawMessage(payload)
		tasks = append(tasks, task)
	}
	tickets := s.insert(tasks...)
	for _, f := range []store.PayloadTerm{{Path: []string{"b"}, Value: "7"}, {Path: []string{"a"}, Value: "1"}, {Path: []string{"a\x00"}, Value: "\x00\xff"}} {
		page, err := s.List(s.ctx, store.Filter{Payload: []store.PayloadTerm{f}})
		s.must(err)
		found := slices.Contains(idsOf(page.Tasks), tickets[len(tickets)-1].Task)
		if found != (f.Value == "7") || page.Next != 0 {
			s.Errorf("%+v lists %v, next %s", f, idsOf(page.Tasks), page.Next)
		}
	}
}

// sample is a task with the properties that filters select.
type sample struct {
	holdfast.Task
	class, host, fingerprint string
	status                   int
}

// population stores tasks in all states with random properties.
func (s *suite) population(random *rand.Rand) []sample {
	s.Helper()
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	var tasks []holdfast.NewTask
	for i := range 150 {
		task := newTask()
		task.Queue, task.Payload = pick(defaultQueue, "slow"), json.RawMessage(payloadSamples[random.IntN(len(payloadSamples))])
		for _, tag := range []string{"common", "half", "rare"} {
			if random.IntN(map[string]int{"common": 1, "half": 2, "rare": 20}[tag]+1) == 0 {
				task.Tags = append(task.Tags, tag)
			}
		}
		if i%10 == 0 {
			task.Unique = fmt.Sprint("key", i)
			task.Key = "tenant"
		}
		if i%15 == 14 {
			task.Type, task.Topic = other, "site" // a task with a topic needs a slot before it can be claimed
		}
		tasks = append(tasks, task)
	}
	worker := s.registerWorker()
	var samples []sample
	tickets := s.insert(tasks[:100]...)
	_, members := s.members(s.batch("population"), tasks[100:]...)
	for _, ticket := range append(tickets, firstTickets(insertedIDs(members))...) {
		x := sample{Task: s.task(ticket.Task)}
		switch end := random.IntN(6); {
		case x.Type == other || end == 0: // the task stays ready
		case end == 1:
			s.mustClaim(worker, ticket)
		default:
			task := s.mustClaim(worker, ticket)[0]
			cause := []holdfast.Cause{
				holdfast.Returned(nil), holdfast.Returned(errors.New("timeout of the Database")),
				holdfast.Returned(holdfast.Permanent(delivery(pick("a.example.com", "b.example.com"), 500+random.IntN(3)))),
				holdfast.Returned(holdfast.Permanent(errors.New("no such order"))),
			}[end-2]
			move := s.settle(task, cause)
			s.apply(move)
			if move.To == holdfast.Dead {
				x.class = move.Report.Class
				x.host, x.status = move.Report.Target()
				x.fingerprint = holdfast.Fingerprint(task.Type, move.Report)
			}
		}
		x.Task = s.task(ticket.Task)
		samples = append(samples, x)
	}
	return samples
}

// selects reports whether a filter selects a task. It ignores Before and Limit.
func selects(f *store.Filter, x *sample) bool {
	at := x.FinishedAt
	if at.IsZero() {
		at = x.CreatedAt
	}
	for _, tag := range f.Tags {
		if !slices.Contains(x.Tags, tag) {
			return false
		}
	}
	return (len(f.States) == 0 || slices.Contains(f.States, x.State)) &&
		(f.Type == "" || x.Type == f.Type) && (f.Queue == "" || x.Queue == f.Queue) &&
		(f.Error == "" || strings.Contains(strings.ToLower(x.LastError), strings.ToLower(f.Error))) &&
		(f.Unique == "" || x.Unique == f.Unique) &&
		(f.Key == "" || x.Key == f.Key) && (f.Topic == "" || x.Topic == f.Topic) && (f.Batch == 0 || x.Batch == f.Batch) && (f.Worker == 0 || x.Worker == f.Worker) &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, x.ID)) && !slices.Contains(f.NotIDs, x.ID) &&
		x.ID >= f.MinID && (f.MaxID == 0 || x.ID <= f.MaxID) &&
		store.MatchPayload(f.Payload, x.Payload) &&
		x.Attempt >= f.MinAttempt && (f.MaxAttempt == 0 || x.Attempt <= f.MaxAttempt) &&
		(f.Fingerprint == "" || x.fingerprint == f.Fingerprint) && (f.Class == "" || x.class == f.Class) &&
		(f.Host == "" || x.host == f.Host) && (f.Status == 0 || x.status == f.Status) &&
		(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until))
}

// randomFilter returns a filter whose conditions come from tasks of the population, so that many filters select some.
func randomFilter(random *rand.Rand, samples []sample) store.Filter {
	var f store.Filter
	x := func() *sample { return &samples[random.IntN(len(samples))] }
	one := x()
	for range 1 + random.IntN(3) {
		from := one
		if random.IntN(4) == 0 {
			from = x()
		}
		switch random.IntN(18) {
		case 0:
			f.States = []holdfast.State{from.State, x().State}[:1+random.IntN(2)]
		case 1:
			f.Type = from.Type
			if random.IntN(2) == 0 {
				f.Type, f.Topic = "", from.Topic
			}
		case 2:
			f.Queue = from.Queue
		case 3:
			f.Error = []string{"DATABASE", "order", "5"}[random.IntN(3)]
		case 4:
			f.Unique = from.Unique
			if random.IntN(2) == 0 {
				f.Unique, f.Key = "", from.Key
			}
		case 5:
			f.IDs = []holdfast.TaskID{from.ID, x().ID, x().ID}
		case 6:
			f.MinID = from.ID
		case 7:
			f.MaxID = from.ID
			if random.IntN(2) == 0 {
				f.MaxID, f.Batch = 0, from.Batch
			}
		case 8, 9, 10:
			f.Tags = []string{"common", "rare", "half", "none"}[random.IntN(3):][:1+random.IntN(2)]
		case 11:
			f.Payload = []store.PayloadTerm{{Path: []string{"order", "id"}, Value: "42", Text: random.IntN(2) == 0}}
		case 12:
			f.MinAttempt = 1 + random.IntN(2)
		case 13:
			f.Fingerprint, f.Class = from.fingerprint, from.class
		case 14:
			f.Host, f.Status = from.host, from.status
		case 15:
			f.Since, f.Until = from.CreatedAt, x().FinishedAt
		case 16:
			f.NotIDs = []holdfast.TaskID{from.ID, x().ID, x().ID}[:1+random.IntN(3)]
		case 17:
			f.Worker = from.Worker
		}
	}
	return f
}

func testRandomFilters(s *suite) {
	seed := rand.Uint64()
	s.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	samples := s.population(random)
	slices.Reverse(samples)
	useful := 0
	for range slow.Pick(80, 300) {
		f := randomFilter(random, samples)
		var want []holdfast.TaskID
		counts := make(map[holdfast.State]int64)
		for _, state := range holdfast.States() {
			counts[state] = 0
		}
		for i := range samples {
			if selects(&f, &samples[i]) {
				want = append(want, samples[i].ID)
				counts[samples[i].State]++
			}
		}
		if len(want) > 0 {
			useful++
		}
		if got, err := s.Count(s.ctx, f); err != nil || !reflect.DeepEqual(got.By, counts) || got.Next != 0 {
			s.Fatalf("Count of %+v returned %v, %v; want %v", f, got, err, counts)
		}
		var got []holdfast.TaskID
		f.Limit = 1 + random.IntN(60)
		for {
			page, err := s.List(s.ctx, f)
			s.must(err)
			got = append(got, idsOf(page.Tasks)...)
			if len(page.Tasks) > f.Limit {
				s.Fatalf("%+v lists %d tasks", f, len(page.Tasks))
			}
			if f.Before = page.Next; f.Before == 0 {
				break
			}
		}
		if !slices.Equal(got, want) {
			s.Fatalf("%+v lists %v, want %v", f, got, want)
		}
	}
	if useful < 50 {
		s.Errorf("only %d filters select a task", useful)
	}
}
