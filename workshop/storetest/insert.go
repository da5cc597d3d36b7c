package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

var insertTests = []test{
	{"returns results in the order of the tasks", testInsertOrder},
	{"stores every field", testInsertFields},
	{"stores traces in each kind of insert", testInsertTraces},
	{"stores an outbox entry per queue for tasks that are due at once", testInsertEntries},
	{"reports duplicates of unique keys", testInsertUnique},
	{"stores thousands of tasks", testInsertMany},
	{"stores each unique key once for concurrent callers", testInsertConcurrentKeys},
	{"frees the unique key of a deleted task", testInsertKeyAfterPrune},
	{"keeps the unique key of a deleted task for UniqueFor", testInsertKeyKept},
	{"keeps unique keys while their tasks are deleted", testInsertDuringPrune},
	{"frees the unique key of a task that has ended, if the new task asks for it", testInsertWhileOpen},
	{"frees the unique key of an old task, if the new task asks for it", testInsertUniqueFor},
	{"stores one task for concurrent callers that free a key", testInsertConcurrentReleases},
	{"accepts an empty list", testInsertNothing},
	{"refuses a time that JSON cannot represent", testInsertInvalid},
	{"stores the last time that JSON can represent", testInsertLastTime},
}

func testInsertOrder(s *suite) {
	var tasks []holdfast.NewTask
	for i := range 40 {
		task := newTask()
		task.Payload = fmt.Appendf(nil, "%d", i)
		task.Queue = []string{defaultQueue, "slow", "fast"}[i%3]
		if i%4 == 0 {
			task.Delay = time.Hour
		}
		if i%5 == 0 {
			task.Unique = fmt.Sprint("key ", 40-i)
		}
		tasks = append(tasks, task)
	}
	for i, ticket := range s.insert(tasks...) {
		if got := s.task(ticket.Task); string(got.Payload) != fmt.Sprint(i) || got.Queue != tasks[i].Queue || got.Unique != tasks[i].Unique {
			s.Errorf("result %d has the id of %+v", i, got)
		}
	}
}

func testInsertFields(s *suite) {
	payload := `{ "b" : 1,  "a":[1.50, "\u00e9\"\\ {NULL,}" ] , "b":2}`
	plain := newTask()
	delayed := holdfast.NewTask{Type: "a/b:c.d-e_f", Queue: "queue-1", Payload: json.RawMessage(payload), Delay: time.Hour, MaxAttempts: 7, Unique: `k "{\,}`}
	past, future := newTask(), newTask()
	past.At, future.At = time.Now().Add(-time.Hour), time.Now().Add(time.Hour).Truncate(time.Microsecond)
	ancient := newTask()
	ancient.MaxAttempts = 0 // the settings of the worker apply
	ancient.At = time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)
	tickets := s.insert(plain, delayed, past, future, ancient)

	got := s.task(tickets[0].Task)
	if got.State != holdfast.Ready || got.Attempt != 1 || got.MaxAttempts != 3 || string(got.Payload) != "null" || got.CreatedAt.IsZero() ||
		!got.NextRunAt.Equal(got.CreatedAt) || !got.StartedAt.IsZero() || !got.FinishedAt.IsZero() || got.Unique != "" || got.Worker != 0 {
		s.Errorf("a task without options is %+v", got)
	}
	if got.CreatedAt.Location() != time.UTC {
		s.Errorf("the location of a time is %v, want UTC", got.CreatedAt.Location())
	}
	got = s.task(tickets[1].Task)
	if got.Type != delayed.Type || got.Queue != delayed.Queue || string(got.Payload) != payload || got.MaxAttempts != 7 || got.Unique != delayed.Unique {
		s.Errorf("the task is %+v", got)
	}
	if wait := got.NextRunAt.Sub(got.CreatedAt); wait != time.Hour {
		s.Errorf("the task waits %s, want an hour", wait)
	}
	for _, i := range []int{2, 4} {
		if got = s.task(tickets[i].Task); !got.NextRunAt.Equal(got.CreatedAt) || !s.position(tickets[i]).Ticketed {
			s.Errorf("a task with a time in the past is not due now: %+v", got)
		}
	}
	if got = s.task(tickets[3].Task); !got.NextRunAt.Equal(future.At) || s.position(tickets[3]).Ticketed {
		s.Errorf("due at %s, want %s", got.NextRunAt, future.At)
	}
}

func testInsertTraces(s *suite) {
	trace := func(span int) string {
		return fmt.Sprintf("00-4bf92f3577b34da6a3ce929d0e0e4736-%016x-01 vendor=\"a,b\"", span)
	}
	traced := func(span int, change func(*holdfast.NewTask)) holdfast.NewTask {
		task := newTask()
		task.Trace = trace(span)
		change(&task)
		return task
	}
	same := func(*holdfast.NewTask) {}
	for name, tasks := range map[string][]holdfast.NewTask{
		"one":             {traced(1, same)},
		"uniform":         {traced(1, same), traced(2, same)},
		"some":            {newTask(), traced(2, same), newTask()},
		"several queues":  {traced(1, same), traced(2, func(t *holdfast.NewTask) { t.Queue = "slow" })},
		"unique":          {traced(1, func(t *holdfast.NewTask) { t.Unique = "u" }), newTask()},
		"delayed":         {traced(1, func(t *holdfast.NewTask) { t.Delay = time.Hour }), traced(2, same)},
		"ordered":         {traced(1, func(t *holdfast.NewTask) { t.Key, t.Ordered = "k", true }), traced(2, func(t *holdfast.NewTask) { t.Key, t.Ordered = "k", true })},
		"without a trace": {newTask(), newTask()},
	} {
		tickets := s.insert(tasks...)
		for i, ticket := range tickets {
			if got := s.task(ticket.Task); got.Trace != tasks[i].Trace {
				s.Errorf("%s: the trace of task %d is %q, want %q", name, i, got.Trace, tasks[i].Trace)
			}
		}
		if tasks[0].Delay == 0 && !tasks[0].Ordered {
			if got := s.mustClaim(s.registerWorker(), tickets[0])[0]; got.Trace != tasks[0].Trace {
				s.Errorf("%s: the trace of the claimed task is %q", name, got.Trace)
			}
		}
	}
	p := s.batch("traced")
	_, inserted := s.members(p, traced(1, same), traced(2, same))
	for i, member := range inserted.Tasks {
		if got := s.task(member.ID); got.Trace != trace(i+1) || got.Batch != holdfast.BatchID(p.ID) {
			s.Errorf("task %d of a batch is %+v", i, got)
		}
	}
	task := s.runningTask()
	if _, err := s.Apply(s.ctx, []holdfast.Transition{s.success(task, &holdfast.Effects{Next: []holdfast.NewTask{traced(7, same)}})}); err != nil {
		s.Fatal(err)
	}
	page, err := s.List(s.ctx, store.Filter{Limit: 1})
	s.must(err)
	if page.Tasks[0].Trace != trace(7) {
		s.Errorf("the trace of a next task is %q", page.Tasks[0].Trace)
	}
}

func testInsertEntries(s *suite) {
	fast, slow, later := newTask(), newTask(), newTask()
	fast.Queue, slow.Queue, later.Queue, later.Delay = "fast", "slow", "never", time.Hour
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{fast, slow, later, fast}, time.Hour)
	s.must(err)
	got := map[string][]message.Ticket{}
	for _, entry := range inserted.Entries {
		if entry.ID == 0 || got[entry.Queue] != nil {
			s.Errorf("the outbox entry is %+v", entry)
		}
		got[entry.Queue] = entry.Tickets
	}
	want := map[string][]message.Ticket{
		"fast": {{Task: inserted.Tasks[0].ID, Attempt: 1}, {Task: inserted.Tasks[3].ID, Attempt: 1}},
		"slow": {{Task: inserted.Tasks[1].ID, Attempt: 1}},
	}
	if len(got) != len(want) || !slices.Equal(got["fast"], want["fast"]) || !slices.Equal(got["slow"], want["slow"]) {
		s.Errorf("the outbox entries are %v, want %v", got, want)
	}
	names, err := s.QueueNames(s.ctx)
	s.must(err)
	if want := []string{defaultQueue, "fast", "never", "slow"}; !slices.Equal(names, want) {
		s.Errorf("the queues are %v, want %v", names, want)
	}
}

func testInsertUnique(s *suite) {
	unique := newTask()
	unique.Unique = "once"
	first := s.insert(unique)[0]
	second := newTask()
	second.Unique, second.Queue = "twice", "elsewhere"
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{unique, second, newTask(), second, unique}, time.Hour)
	s.must(err)
	tasks := inserted.Tasks
	duplicate := func(id holdfast.TaskID) store.InsertedTask {
		return store.InsertedTask{ID: id, Duplicate: true, State: holdfast.Ready}
	}
	want := []store.InsertedTask{duplicate(first.Task), {ID: tasks[1].ID}, {ID: tasks[2].ID}, duplicate(tasks[1].ID), duplicate(first.Task)}
	if !slices.Equal(tasks, want) {
		s.Errorf("Insert returned %v, want %v", tasks, want)
	}
	tickets := 0
	for _, entry := range inserted.Entries {
		tickets += len(entry.Tickets)
	}
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if tickets != 2 || counts.By[holdfast.Ready] != 3 {
		s.Errorf("got %d tickets and %d tasks, want 2 and 3", tickets, counts.By[holdfast.Ready])
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
	worker := s.registerWorker()
	for i, task := range s.mustClaim(worker, tickets...) {
		if string(task.Payload) != string(tasks[i].Payload) {
			s.Fatalf("task %d has the payload %.80s", i, task.Payload)
		}
	}
}

func testInsertConcurrentKeys(s *suite) {
	const callers, keys = 8, 60
	results := make([]map[string]store.InsertedTask, callers)
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
			results[c] = map[string]store.InsertedTask{}
			for i, task := range inserted.Tasks {
				results[c][tasks[i].Unique] = task
			}
		})
	}
	group.Wait()
	for k := range keys {
		key, stored := fmt.Sprint("key ", k), 0
		for _, result := range results {
			if result[key].ID != results[0][key].ID {
				s.Errorf("callers got different tasks for the key %q", key)
			}
			if !result[key].Duplicate {
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
	unique.Unique = "key"
	first := s.insert(unique)[0]
	s.move(s.mustClaim(s.registerWorker(), first)[0], holdfast.Returned(nil))
	if inserted, err := s.Insert(s.ctx, []holdfast.NewTask{unique}, 0); err != nil || !inserted.Tasks[0].Duplicate {
		s.Errorf("Insert with the key of an existing task returned %+v, %v; want a duplicate", inserted, err)
	}
	s.prune(store.PruneAges{Done: time.Microsecond}, 1)
	if inserted, err := s.Insert(s.ctx, []holdfast.NewTask{unique}, 0); err != nil || inserted.Tasks[0].Duplicate || inserted.Tasks[0].ID == first.Task {
		s.Errorf("Insert with the key of a deleted task returned %+v, %v; want a new task", inserted, err)
	}
}

func testInsertKeyKept(s *suite) {
	kept := newTask()
	kept.Unique, kept.UniqueFor = "key", time.Hour
	plain, open, brief, both, bystander := kept, kept, kept, kept, kept
	plain.UniqueFor, brief.UniqueFor, bystander.Unique = 0, time.Microsecond, "another key"
	open.UniqueFor, open.UniqueWhileOpen, both.UniqueWhileOpen = 0, true, true
	worker := s.registerWorker()
	stored := func(task holdfast.NewTask) holdfast.Task {
		s.Helper()
		inserted := s.insertOne(task)
		if inserted.Duplicate {
			s.Fatalf("Insert returned %+v, want a new task", inserted)
		}
		return s.move(s.mustClaim(worker, message.Ticket{Task: inserted.ID, Attempt: 1})[0], holdfast.Returned(nil))
	}
	pruned := func(task holdfast.NewTask) holdfast.TaskID {
		s.Helper()
		id := stored(task).ID
		s.pruneTask(id)
		return id
	}
	refused := func(by holdfast.TaskID, tasks ...holdfast.NewTask) {
		s.Helper()
		for _, task := range tasks {
			if got, want := s.insertOne(task), (store.InsertedTask{ID: by, Duplicate: true}); got != want {
				s.Errorf("Insert returned %+v, want %+v", got, want)
			}
		}
	}
	other, first := pruned(bystander), pruned(kept)
	refused(first, kept, plain)
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{kept, newTask(), plain}, time.Hour)
	s.must(err)
	if got := inserted.Tasks; !got[0].Duplicate || got[0].ID != first || got[1].Duplicate || !got[2].Duplicate || got[2].ID != first {
		s.Errorf("Insert returned %+v, want two duplicates of task %s", got, first)
	}
	for _, next := range []holdfast.NewTask{
		brief, // the first task was stored long enough ago
		plain, // the time of the second task has passed
		open,  // the task before has no time
		both,  // nor has this one
		kept,
		open, // the task before has ended
		kept,
		both,
	} {
		pruned(next)
	}
	last := pruned(kept)
	refused(last, plain)
	refused(other, bystander)

	again := kept
	again.Unique = "third key"
	s.mustChange(store.Change{Action: store.ActionPurge, Task: stored(again)}) // a person frees the key
	pruned(again)
}

func testInsertDuringPrune(s *suite) {
	const callers, keys = 4, 200
	tasks := make([]holdfast.NewTask, keys)
	for i := range tasks {
		tasks[i] = newTask()
		tasks[i].Unique, tasks[i].UniqueFor = fmt.Sprint("key ", i), time.Hour
	}
	tickets := s.insert(tasks...)
	for _, task := range s.mustClaim(s.registerWorker(), tickets...) {
		s.move(task, holdfast.Returned(nil))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				inserted, err := s.Insert(s.ctx, tasks, 0)
				if err != nil {
					s.Error(err)
					return
				}
				for i, task := range inserted.Tasks {
					if !task.Duplicate || task.ID != tickets[i].Task {
						s.Errorf("Insert with the key of task %s returned %+v", tickets[i].Task, task)
					}
				}
			}
		})
	}
	s.prune(store.PruneAges{Done: time.Microsecond}, keys)
	cancel()
	group.Wait()
}

// pruneTask waits until Prune has deleted a task that is done.
func (s *suite) pruneTask(id holdfast.TaskID) {
	s.Helper()
	s.eventually("the task is deleted", func() bool {
		_, err := s.Prune(s.ctx, store.PruneAges{Done: time.Microsecond}, 1000)
		s.must(err)
		_, err = s.Task(s.ctx, id)
		return errors.Is(err, holdfast.ErrNotFound)
	})
}

// insertOne inserts a task and returns the result.
func (s *suite) insertOne(task holdfast.NewTask) store.InsertedTask {
	s.Helper()
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{task}, time.Hour)
	s.must(err)
	return inserted.Tasks[0]
}

func testInsertWhileOpen(s *suite) {
	worker := s.registerWorker()
	open := newTask()
	open.Unique, open.UniqueWhileOpen = "key", true
	kept := newTask()
	kept.Unique = "key"
	other := kept
	other.Unique = "another key"
	bystander := s.move(s.mustClaim(worker, s.insert(other)...)[0], holdfast.Returned(nil)).ID
	holder := s.insertOne(open).ID
	refused := func(task holdfast.NewTask, state holdfast.State) {
		s.Helper()
		if got, want := s.insertOne(task), (store.InsertedTask{ID: holder, Duplicate: true, State: state}); got != want {
			s.Errorf("Insert returned %+v, want %+v", got, want)
		}
	}
	running := func() holdfast.Task {
		s.Helper()
		return s.mustClaim(worker, message.Ticket{Task: holder, Attempt: 1})[0]
	}
	for state, end := range map[holdfast.State]func(){
		holdfast.Done: func() { s.move(running(), holdfast.Returned(nil)) },
		holdfast.Dead: func() { s.move(running(), holdfast.Returned(holdfast.Permanent(errors.New("hopeless")))) },
		holdfast.Archived: func() {
			s.move(s.move(running(), holdfast.Returned(holdfast.Permanent(errors.New("hopeless")))), holdfast.Requested(holdfast.EventArchive))
		},
		holdfast.Cancelled: func() { s.move(s.task(holder), holdfast.Requested(holdfast.EventCancel)) },
	} {
		refused(open, holdfast.Ready)
		end()
		refused(kept, state) // it does not ask for the key
		next := s.insertOne(open)
		if next.Duplicate || next.ID == holder {
			s.Fatalf("Insert returned %+v after task %s became %s, want a new task", next, holder, state)
		}
		if before, after := s.task(holder), s.task(next.ID); before.Unique != "" || before.State != state || after.Unique != "key" {
			s.Errorf("the unique keys are %q and %q, want none and \"key\"; the state is %s", before.Unique, after.Unique, before.State)
		}
		holder = next.ID
	}
	running()
	refused(open, holdfast.Running)
	if s.task(bystander).Unique != other.Unique {
		s.Error("a task with another key has lost it")
	}
}

func testInsertUniqueFor(s *suite) {
	hour, moment, open := newTask(), newTask(), newTask()
	hour.Unique, hour.UniqueFor = "key", time.Hour
	moment.Unique, moment.UniqueFor = "key", time.Microsecond
	open.Unique, open.UniqueFor, open.UniqueWhileOpen = "key", time.Hour, true
	first := s.insertOne(hour)
	for _, task := range []holdfast.NewTask{hour, open} {
		if got := s.insertOne(task); !got.Duplicate || got.ID != first.ID {
			s.Errorf("Insert returned %+v, want a duplicate of task %s", got, first.ID)
		}
	}
	// The tasks of a call are stored at the same time, so that the second one finds a new task.
	inserted, err := s.Insert(s.ctx, []holdfast.NewTask{moment, moment}, time.Hour)
	s.must(err)
	second := inserted.Tasks[0]
	if second.Duplicate || second.ID == first.ID || !inserted.Tasks[1].Duplicate || inserted.Tasks[1].ID != second.ID {
		s.Errorf("Insert returned %+v, want a new task and its duplicate", inserted.Tasks)
	}
	if s.task(first.ID).Unique != "" || s.task(second.ID).Unique != "key" {
		s.Error("the old task has the key")
	}
	s.move(s.mustClaim(s.registerWorker(), message.Ticket{Task: second.ID, Attempt: 1})[0], holdfast.Returned(nil))
	if got := s.insertOne(hour); !got.Duplicate || got.State != holdfast.Done {
		s.Errorf("Insert returned %+v, want a duplicate of a task that is done", got)
	}
	if got := s.insertOne(open); got.Duplicate {
		s.Errorf("Insert returned %+v, want a new task, because the one before has ended", got)
	}
}

func testInsertConcurrentReleases(s *suite) {
	const callers, keys = 8, 20
	tasks := make([]holdfast.NewTask, keys)
	for i := range tasks {
		tasks[i] = newTask()
		tasks[i].Unique, tasks[i].UniqueWhileOpen = fmt.Sprint("key ", i), true
	}
	for _, task := range s.mustClaim(s.registerWorker(), s.insert(tasks...)...) {
		s.move(task, holdfast.Returned(nil))
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	stored := map[string]int{}
	for range callers {
		group.Go(func() {
			mine := slices.Clone(tasks)
			rand.Shuffle(keys, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			inserted, err := s.Insert(s.ctx, mine, 0)
			if err != nil {
				s.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, task := range inserted.Tasks {
				if !task.Duplicate {
					stored[mine[i].Unique]++
				}
			}
		})
	}
	group.Wait()
	for _, task := range tasks {
		if stored[task.Unique] != 1 {
			s.Errorf("%q was stored %d times", task.Unique, stored[task.Unique])
		}
	}
}

func testInsertNothing(s *suite) {
	inserted, err := s.Insert(s.ctx, nil, 0)
	if err != nil || len(inserted.Tasks) > 0 || len(inserted.Entries) > 0 {
		s.Errorf("Insert returned %+v, %v", inserted, err)
	}
}

func testInsertInvalid(s *suite) {
	tooLate := newTask()
	tooLate.At = time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := s.Insert(s.ctx, []holdfast.NewTask{newTask(), tooLate}, 0); !errors.Is(err, holdfast.ErrInvalid) {
		s.Errorf("a year that JSON cannot represent: %v, want ErrInvalid", err)
	}
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if counts.By[holdfast.Ready] != 0 {
		s.Errorf("after a failed Insert the store has %d tasks, want 0", counts.By[holdfast.Ready])
	}
}

// testInsertLastTime stores the last time that JSON can represent. If a store rounded it up to the year 10000, the task
// could not be written as JSON.
func testInsertLastTime(s *suite) {
	last := time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	for _, unique := range []string{"", "k"} {
		task := newTask()
		task.At, task.Unique = last, unique
		stored := s.task(s.insert(task)[0].Task)
		if _, err := json.Marshal(stored); err != nil || !stored.NextRunAt.Equal(last) {
			s.Errorf("unique key %q: the task is due at %s, want %s; as JSON: %v", unique, stored.NextRunAt, last, err)
		}
	}
}
