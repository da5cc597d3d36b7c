package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// Transferable is a store that tasks can leave and come to.
type Transferable interface {
	store.Store
	store.Transfer
}

// RunTransfer tests the role Transfer. open returns a store as for Run, and another process's view of the same tasks.
func RunTransfer(t *testing.T, open func(t *testing.T) (here, elsewhere Transferable)) {
	for _, test := range []struct {
		name string
		run  func(s *suite, here, elsewhere Transferable)
	}{
		{"export what was imported", testImportAndExport},
		{"import each task once", testImportAgain},
		{"name the task whose place is taken", testImportClash},
		{"give out no id twice", testImportIDs},
		{"export no running task", testExportRunning},
		{"end with the caller's error", testExportEnds},
		{"export one moment", testExportOneMoment},
		{"make ready tasks due", testImportDue},
		{"park an imported task as long as before", testImportParks},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here, elsewhere := open(t)
			test.run(&suite{T: t, Store: here, ctx: t.Context()}, here, elsewhere)
		})
	}
}

// sampleRecords is one task in each state that can be exported, with every field in use.
func sampleRecords(now time.Time) []store.Record {
	at := func(d time.Duration) time.Time { return now.Add(d).Truncate(time.Microsecond) }
	task := func(id holdfast.TaskID, state holdfast.State) holdfast.Task {
		return holdfast.Task{
			ID: id, Type: kind, Lane: defaultLane, State: state, Attempt: 1, MaxAttempts: 3,
			Payload: json.RawMessage("null"), NextRunAt: at(-time.Hour), CreatedAt: at(-2 * time.Hour),
		}
	}
	ready, later, done, dead, cancelled, archived := task(2, holdfast.Ready), task(3, holdfast.Ready), task(5, holdfast.Done), task(7, holdfast.Dead), task(8, holdfast.Cancelled), task(40, holdfast.Archived)
	ready.Payload, ready.Lane, ready.Unique = json.RawMessage(`{ "b":1, "a":"é\u0000\ud800\"\\ {x,\"y\"}", "b":2e400 }`), "slow", "ключ \"1\""
	ready.Crashes, ready.Attempt, ready.StartedAt, ready.LastError = 1, 2, at(-time.Minute), "gone\n'quoted'"
	later.Parked, later.Deferrals = "no worker, \\ here", 4
	later.NextRunAt = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	later.Key = "task_3_key"
	done.StartedAt, done.FinishedAt, done.Payload = at(-time.Minute), at(-time.Second), json.RawMessage(`"`+strings.Repeat("long ", 2000)+`"`)
	dead.Failures, dead.Attempt, dead.FinishedAt, dead.LastError = 3, 3, at(-time.Second), strings.Repeat("x", 8000)
	cancelled.FinishedAt, archived.FinishedAt = at(-time.Second), at(-time.Second)
	attempt := func(n int, event holdfast.Event) holdfast.Attempt {
		return holdfast.Attempt{
			Task: dead.ID, Attempt: n, Event: event, Worker: "host/1", StartedAt: at(-time.Minute), FinishedAt: at(time.Duration(n) * time.Second),
			Class: "http", Error: "503 \x01 é", Stack: "a\n\tb", Details: json.RawMessage(`{"status": 503, "nul": "\u0000"}`),
		}
	}
	bare := attempt(3, holdfast.EventGiveUp)
	bare.StartedAt, bare.Stack, bare.Details = time.Time{}, "", nil
	return []store.Record{
		{Task: ready, Again: true}, {Task: later, Parks: 3}, {Task: done},
		{Task: dead, Attempts: []holdfast.Attempt{attempt(1, holdfast.EventRetry), attempt(2, holdfast.EventRetry), bare}},
		{Task: cancelled}, {Task: archived},
	}
}

// exported returns every record of a store.
func (s *suite) exported(from store.Transfer) (records []store.Record, last holdfast.TaskID) {
	s.Helper()
	last, err := from.Export(s.ctx, func(r store.Record) error {
		records = append(records, r)
		return nil
	})
	s.must(err)
	return records, last
}

func testImportAndExport(s *suite, here, elsewhere Transferable) {
	if none, last := s.exported(here); len(none) != 0 || last != 0 {
		s.Errorf("of nothing: %v, %s", none, last)
	}
	records := sampleRecords(s.now())
	if n, err := here.Import(s.ctx, records, 50); err != nil || n != len(records) {
		s.Fatalf("imported %d, %v", n, err)
	}
	got, last := s.exported(elsewhere)
	if last != 50 || len(got) != len(records) {
		s.Fatalf("exported %d records, the last id is %s", len(got), last)
	}
	for i := range records {
		if !reflect.DeepEqual(got[i], records[i]) {
			s.Errorf("the record is\n%+.3000v, want\n%+.3000v", got[i], records[i])
		}
		task, err := s.Task(s.ctx, records[i].ID)
		s.must(err)
		if !reflect.DeepEqual(task, records[i].Task) {
			s.Errorf("the task is\n%+.3000v, want\n%+.3000v", task, records[i].Task)
		}
	}
	if dead, err := s.List(s.ctx, store.Filter{States: []holdfast.State{holdfast.Dead}}); err != nil || len(dead) != 1 {
		s.Errorf("the dead tasks are %v, %v", dead, err)
	}
	if names, err := s.LaneNames(s.ctx); err != nil || !reflect.DeepEqual(names, []string{defaultLane, "slow"}) {
		s.Errorf("the queues are %v, %v", names, err)
	}
}

func testImportAgain(s *suite, here, elsewhere Transferable) {
	records := sampleRecords(s.now())
	for i, want := range []int{2, 4, 0} {
		part := records
		if i == 0 {
			part = records[:2]
		}
		if n, err := elsewhere.Import(s.ctx, part, 0); err != nil || n != want {
			s.Fatalf("imported %d, %v, want %d", n, err, want)
		}
	}
	// A task that moved on is the same task, and is left as it is.
	moved, err := s.Task(s.ctx, records[1].ID)
	s.must(err)
	cancel, err := holdfast.Settle(moved, holdfast.Asked(holdfast.EventCancel), s.now(), holdfast.DefaultPolicy())
	s.must(err)
	if ok, err := s.Apply(s.ctx, []holdfast.Transition{cancel}); err != nil || !ok[0] {
		s.Fatalf("cancelled: %v, %v", ok, err)
	}
	if n, err := here.Import(s.ctx, records, 0); err != nil || n != 0 {
		s.Errorf("imported %d, %v", n, err)
	}
	if task, err := s.Task(s.ctx, moved.ID); err != nil || task.State != holdfast.Cancelled {
		s.Errorf("the task is %s, %v", task.State, err)
	}
}

func testImportClash(s *suite, here, _ Transferable) {
	records := sampleRecords(s.now())
	unique := newTask()
	unique.Unique = records[0].Unique
	s.insert(unique) // has the id 1 and the key of task 2
	if n, err := here.Import(s.ctx, records, 0); !errors.Is(err, holdfast.ErrConflict) || n != 0 || !strings.Contains(err.Error(), "task 2 has the unique key") || !strings.Contains(err.Error(), "which task 1 of the store has") {
		s.Errorf("a key that is taken: %d, %v", n, err)
	}
	s.inserts(4)
	for _, change := range []func(*store.Record){
		func(r *store.Record) { r.Type = other },
		func(r *store.Record) { r.Lane = "slow" },
		func(r *store.Record) { r.Payload = json.RawMessage("1") },
		func(r *store.Record) { r.CreatedAt = r.CreatedAt.Add(time.Microsecond) },
		func(r *store.Record) { r.Unique = "a key" },
	} {
		task, err := s.Task(s.ctx, 3)
		s.must(err)
		record := store.Record{Task: task}
		if n, err := here.Import(s.ctx, []store.Record{record}, 0); err != nil || n != 0 {
			s.Fatalf("imported %d, %v", n, err)
		}
		change(&record)
		if n, err := here.Import(s.ctx, []store.Record{record}, 0); !errors.Is(err, holdfast.ErrConflict) || n != 0 || !strings.Contains(err.Error(), "another task with the id 3") {
			s.Errorf("an id that is taken: %d, %v", n, err)
		}
	}
	if got, _ := s.exported(here); len(got) != 5 {
		s.Errorf("there are %d tasks, want 5", len(got))
	}
}

func testImportIDs(s *suite, here, elsewhere Transferable) {
	_, err := here.Import(s.ctx, nil, 17) // tasks were deleted, and no task has the id of one of them
	s.must(err)
	if _, last := s.exported(elsewhere); last != 17 {
		s.Errorf("the last id is %s, want 17", last)
	}
	if ticket := s.inserts(1)[0]; ticket.Task <= 17 {
		s.Errorf("task %s was inserted", ticket.Task)
	}
	_, err = elsewhere.Import(s.ctx, nil, 5)
	s.must(err)
	before := s.inserts(1)[0].Task
	records := sampleRecords(s.now())
	_, err = elsewhere.Import(s.ctx, records, records[len(records)-1].ID)
	s.must(err)
	if ticket := s.inserts(1)[0]; ticket.Task <= max(before, 40) {
		s.Errorf("task %s was inserted after %s and 40", ticket.Task, before)
	}
}

func testExportRunning(s *suite, here, elsewhere Transferable) {
	tickets := s.inserts(3)
	claims, err := s.Claim(s.ctx, s.openRun(), kinds, tickets[1:2], store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		s.Fatalf("%+v, %v", claims, err)
	}
	_, err = elsewhere.Export(s.ctx, func(store.Record) error { return nil })
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "task "+tickets[1].Task.String()+" is running") {
		s.Errorf("exported: %v", err)
	}
	s.inserts(1) // whoever waited goes on
}

func testExportEnds(s *suite, here, _ Transferable) {
	s.inserts(100)
	enough, calls := errors.New("enough"), 0
	_, err := here.Export(s.ctx, func(store.Record) error {
		if calls++; calls == 3 {
			return enough
		}
		return nil
	})
	if err != enough || calls != 3 { //nolint:errorlint // it is returned as it is
		s.Errorf("after %d calls: %v", calls, err)
	}
	s.inserts(1)
	if got, _ := s.exported(here); len(got) != 101 {
		s.Errorf("exported %d tasks", len(got))
	}
}

// Whoever stores a task while an export runs waits, and stores it afterwards.
func testExportOneMoment(s *suite, here, elsewhere Transferable) {
	s.inserts(3)
	inserted, seen := make(chan error, 1), 0
	last, err := here.Export(s.ctx, func(store.Record) error {
		if seen++; seen == 1 {
			go func() {
				inserted <- second(elsewhere.Insert(context.WithoutCancel(s.ctx), []holdfast.NewTask{newTask()}, 0))
			}()
		}
		select {
		case err := <-inserted:
			s.Errorf("a task was stored meanwhile: %v", err)
		case <-time.After(50 * time.Millisecond): // time enough to be wrong in
		}
		return nil
	})
	if err != nil || seen != 3 || last != 3 {
		s.Errorf("exported %d tasks, the last id is %s, %v", seen, last, err)
	}
	s.must(<-inserted)
	if got, _ := s.exported(here); len(got) != 4 {
		s.Errorf("afterwards there are %d tasks", len(got))
	}
}

// A ready task gets a ticket when it is due, and can be claimed.
func testImportDue(s *suite, here, _ Transferable) {
	records := sampleRecords(s.now())
	_, err := here.Import(s.ctx, records, 0)
	s.must(err)
	var given []store.Due
	_, err = s.DispatchDue(s.ctx, store.Lanes{}, 10, func(_ context.Context, due []store.Due) []bool {
		given = append(given, due...)
		return make([]bool, len(due))
	})
	s.must(err)
	if len(given) != 1 || given[0].Task != 2 || given[0].Attempt != 2 || given[0].Lane != "slow" || !given[0].Again {
		s.Errorf("due are %+v", given)
	}
	claims, err := s.Claim(s.ctx, s.openRun(), kinds, []message.Ticket{{Task: 2, Attempt: 2}, {Task: 3, Attempt: 1}}, store.IntoExecutors)
	s.must(err)
	if claims[0].Verdict != store.Claimed || claims[1].Verdict != store.Stale {
		s.Errorf("claimed: %+v", claims)
	}
}

// The wait of a parked task goes on growing where it comes to.
func testImportParks(s *suite, here, _ Transferable) {
	const first = 100 * time.Millisecond
	ticket := s.inserts(1)[0]
	park := func() (wait time.Duration) {
		s.eventually("due", func() bool { return !s.now().Before(s.task(ticket.Task).NextRunAt) })
		now := s.now()
		s.must(s.Park(s.ctx, []message.Ticket{ticket}, first, "no handler"))
		return s.task(ticket.Task).NextRunAt.Sub(now)
	}
	park()
	park()
	records, _ := s.exported(here)
	ticket.Task += 100
	records[0].ID = ticket.Task
	_, err := here.Import(s.ctx, records, 0)
	s.must(err)
	if wait := park(); wait < 4*first {
		s.Errorf("parked twice, moved and parked again, it waits for %s, want %s", wait, 4*first)
	}
}

func second[T any](_ T, err error) error { return err }
