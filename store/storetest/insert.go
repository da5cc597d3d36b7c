package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var insertTests = []test{
	{"answers in the order of the tasks", testInsertOrder},
	{"keeps every field", testInsertFields},
	{"gives a receipt per lane for what is due at once", testInsertReceipts},
	{"refuses a taken unique key", testInsertUnique},
	{"stores thousands", testInsertMany},
	{"agrees on keys among concurrent callers", testInsertConcurrentKeys},
	{"frees the key with the row", testInsertKeyAfterPrune},
	{"takes an empty list", testInsertNothing},
	{"refuses what it cannot hold", testInsertInvalid},
	{"keeps the last moment that JSON can name", testInsertLastMoment},
}

func testInsertOrder(s *suite) {
	var tasks []holdfast.NewTask
	for i := range 40 {
		task := newTask()
		task.Payload = fmt.Appendf(nil, "%d", i)
		task.Lane = []string{defaultLane, "slow", "fast"}[i%3]
		if i%4 == 0 {
			task.Delay = time.Hour
		}
		if i%5 == 0 {
			task.Unique = fmt.Sprint("key ", 40-i)
		}
		tasks = append(tasks, task)
	}
	for i, ticket := range s.insert(tasks...) {
		if got := s.task(ticket.Task); string(got.Payload) != fmt.Sprint(i) || got.Lane != tasks[i].Lane || got.Unique != tasks[i].Unique {
			s.Errorf("task %d is answered with the id of %+v", i, got)
		}
	}
}

func testInsertFields(s *suite) {
	payload := `{ "b" : 1,  "a":[1.50, "\u00e9\"\\ {NULL,}" ] , "b":2}`
	plain := newTask()
	delayed := holdfast.NewTask{Type: "a/b:c.d-e_f", Lane: "lane-1", Payload: json.RawMessage(payload), Delay: time.Hour, MaxAttempts: 7, Unique: `k "{\,}`}
	past, future := newTask(), newTask()
	past.At, future.At = time.Now().Add(-time.Hour), time.Now().Add(time.Hour).Truncate(time.Microsecond)
	ancient := newTask()
	ancient.MaxAttempts = 0 // the settings of its worker decide
	ancient.At = time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)
	tickets := s.insert(plain, delayed, past, future, ancient)

	got := s.task(tickets[0].Task)
	if got.State != holdfast.Ready || got.Attempt != 1 || got.MaxAttempts != 3 || string(got.Payload) != "null" || got.CreatedAt.IsZero() ||
		!got.NextRunAt.Equal(got.CreatedAt) || !got.StartedAt.IsZero() || !got.FinishedAt.IsZero() || got.Unique != "" || got.Run != 0 {
		s.Errorf("a plain task became %+v", got)
	}
	if got.CreatedAt.Location() != time.UTC {
		s.Errorf("times are in %v", got.CreatedAt.Location())
	}
	got = s.task(tickets[1].Task)
	if got.Type != delayed.Type || got.Lane != delayed.Lane || string(got.Payload) != payload || got.MaxAttempts != 7 || got.Unique != delayed.Unique {
		s.Errorf("stored %+v", got)
	}
	if wait := got.NextRunAt.Sub(got.CreatedAt); wait != time.Hour {
		s.Errorf("a delay of an hour became %s", wait)
	}
	for _, i := range []int{2, 4} {
		if got = s.task(tickets[i].Task); !got.NextRunAt.Equal(got.CreatedAt) || !s.position(tickets[i]).Ticketed {
			s.Errorf("a moment in the past does not mean now: %+v", got)
		}
	}
	if got = s.task(tickets[3].Task); !got.NextRunAt.Equal(future.At) || s.position(tickets[3]).Ticketed {
		s.Errorf("due at %s, want %s", got.NextRunAt, future.At)
	}
}

func testInsertReceipts(s *suite) {
	fast, slow, later := newTask(), newTask(), newTask()
	fast.Lane, slow.Lane, later.Lane, later.Delay = "fast", "slow", "never", time.Hour
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{fast, slow, later, fast}, time.Hour)
	s.must(err)
	got := map[string][]message.Ticket{}
	for _, receipt := range inserted.Receipts {
		if receipt.ID == 0 || got[receipt.Lane] != nil {
			s.Errorf("receipt %+v", receipt)
		}
		got[receipt.Lane] = receipt.Tickets
	}
	want := map[string][]message.Ticket{
		"fast": {{Task: inserted.Tasks[0].ID, Attempt: 1}, {Task: inserted.Tasks[3].ID, Attempt: 1}},
		"slow": {{Task: inserted.Tasks[1].ID, Attempt: 1}},
	}
	if len(got) != len(want) || !slices.Equal(got["fast"], want["fast"]) || !slices.Equal(got["slow"], want["slow"]) {
		s.Errorf("the receipts are %v, want %v", got, want)
	}
	names, err := s.LaneNames(s.ctx)
	s.must(err)
	if want := []string{defaultLane, "fast", "never", "slow"}; !slices.Equal(names, want) {
		s.Errorf("the lanes are %v, want %v", names, want)
	}
}

func testInsertUnique(s *suite) {
	unique := newTask()
	unique.Unique = "once"
	first := s.insert(unique)[0]
	second := newTask()
	second.Unique, second.Lane = "twice", "elsewhere"
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{unique, second, newTask(), second, unique}, time.Hour)
	s.must(err)
	tasks := inserted.Tasks
	want := []store.InsertedTask{{ID: first.Task, Duplicate: true}, {ID: tasks[1].ID}, {ID: tasks[2].ID}, {ID: tasks[1].ID, Duplicate: true}, {ID: first.Task, Duplicate: true}}
	if !slices.Equal(tasks, want) {
		s.Errorf("inserted %v, want %v", tasks, want)
	}
	tickets := 0
	for _, receipt := range inserted.Receipts {
		tickets += len(receipt.Tickets)
	}
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if tickets != 2 || counts[holdfast.Ready] != 3 {
		s.Errorf("%d tickets and %d tasks, want 2 and 3", tickets, counts[holdfast.Ready])
	}
}

func testInsertMany(s *suite) {
	tasks := make([]holdfast.NewTask, 3000)
	for i := range tasks {
		tasks[i] = newTask()
		tasks[i].Payload = fmt.Appendf(nil, `{"n":%d,"pad":"%s"}`, i, strings.Repeat("x", i%50))
	}
	tasks[7].Payload = json.RawMessage(`"` + strings.Repeat("large", 100_000) + `"`)
	tickets := s.insert(tasks...)
	run := s.openRun()
	for i, task := range s.claimed(run, tickets...) {
		if string(task.Payload) != string(tasks[i].Payload) {
			s.Fatalf("task %d has the payload %.80s", i, task.Payload)
		}
	}
}

func testInsertConcurrentKeys(s *suite) {
	const callers, keys = 8, 60
	answers := make([]map[string]store.InsertedTask, callers)
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			tasks := make([]holdfast.NewTask, keys)
			for i, k := range rand.Perm(keys) {
				tasks[i] = newTask()
				tasks[i].Unique = fmt.Sprint("key ", k)
			}
			inserted, err := s.Insert(s.ctx, tasks, 0)
			if err != nil {
				s.Error(err)
				return
			}
			answers[c] = map[string]store.InsertedTask{}
			for i, task := range inserted.Tasks {
				answers[c][tasks[i].Unique] = task
			}
		})
	}
	group.Wait()
	for k := range keys {
		key, stored := fmt.Sprint("key ", k), 0
		for _, answer := range answers {
			if answer[key].ID != answers[0][key].ID {
				s.Errorf("callers disagree about who holds %q", key)
			}
			if !answer[key].Duplicate {
				stored++
			}
		}
		if stored != 1 {
			s.Errorf("%q was stored %d times", key, stored)
		}
	}
}

func testInsertKeyAfterPrune(s *suite) {
	unique := newTask()
	unique.Unique = "again"
	first := s.insert(unique)[0]
	s.move(s.claimed(s.openRun(), first)[0], holdfast.Returned(nil))
	if inserted, err := s.Insert(s.ctx, []holdfast.NewTask{unique}, 0); err != nil || !inserted.Tasks[0].Duplicate {
		s.Errorf("the key of a kept row is free: %+v, %v", inserted, err)
	}
	s.prune(store.PruneAges{Done: time.Microsecond}, 1)
	if inserted, err := s.Insert(s.ctx, []holdfast.NewTask{unique}, 0); err != nil || inserted.Tasks[0].Duplicate || inserted.Tasks[0].ID == first.Task {
		s.Errorf("the key of a pruned row is not free: %+v, %v", inserted, err)
	}
}

func testInsertNothing(s *suite) {
	inserted, err := s.Insert(s.ctx, nil, 0)
	if err != nil || len(inserted.Tasks) > 0 || len(inserted.Receipts) > 0 {
		s.Errorf("got %+v, %v", inserted, err)
	}
}

func testInsertInvalid(s *suite) {
	tooLate := newTask()
	tooLate.At = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := s.Insert(s.ctx, []holdfast.NewTask{newTask(), tooLate}, 0); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a year that JSON cannot hold: %v, want an ErrInvalid", err)
	}
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if counts[holdfast.Ready] != 0 {
		s.Errorf("an insert that failed left %d tasks", counts[holdfast.Ready])
	}
}

// A moment that a store rounds up into the year 10000 makes a task that JSON cannot write.
func testInsertLastMoment(s *suite) {
	last := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	for _, unique := range []string{"", "k"} {
		task := newTask()
		task.At, task.Unique = last, unique
		kept := s.task(s.insert(task)[0].Task)
		if _, err := json.Marshal(kept); err != nil || !kept.NextRunAt.Equal(last) {
			s.Errorf("unique key %q: the task is due at %s, want %s; as JSON: %v", unique, kept.NextRunAt, last, err)
		}
	}
}
