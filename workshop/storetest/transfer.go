package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/ordered"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

// Transferable is a store that can export and import tasks.
type Transferable interface {
	desk.Store
	store.Transfer
}

// RunTransfer tests the role store.Transfer. open returns two clients of one store, which is empty and migrated, as for
// Run.
func RunTransfer(t *testing.T, open func(t *testing.T) (here, elsewhere Transferable)) {
	for _, test := range []struct {
		name string
		run  func(s *suite, here, elsewhere Transferable)
	}{
		{"export imported tasks unchanged", testImportAndExport},
		{"import each task once", testImportAgain},
		{"name the task that conflicts", testImportClash},
		{"assign no id twice", testImportIDs},
		{"export no running task", testExportRunning},
		{"return the error of the caller", testExportEnds},
		{"export one point in time", testExportPointInTime},
		{"make ready tasks due", testImportDue},
		{"import blocked tasks as due", testImportBlocked},
		{"keep the places of ordered tasks", testImportOrdered},
		{"continue to lengthen the parks of an imported task", testImportParks},
		{"export no batches", testExportMembers},
		{"keep unique keys for their time", testImportKeys},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here, elsewhere := open(t)
			test.run(&suite{T: t, Store: here, ctx: t.Context()}, here, elsewhere)
			for _, s := range []Transferable{here, elsewhere} {
				(&suite{T: t, Store: s, ctx: t.Context()}).checkCounters()
			}
		})
	}
}

// sampleRecords returns tasks in every state that can be exported. Together they use every field.
func sampleRecords(now time.Time) []store.Record {
	at := func(d time.Duration) time.Time { return now.Add(d).Truncate(time.Microsecond) }
	task := func(id holdfast.TaskID, state holdfast.State) holdfast.Task {
		return holdfast.Task{
			ID: id, Type: kind, Queue: defaultQueue, State: state, Attempt: 1, MaxAttempts: 3,
			Payload: json.RawMessage("null"), NextRunAt: at(-time.Hour), CreatedAt: at(-2 * time.Hour),
		}
	}
	ready, later, done, dead, cancelled, archived := task(2, holdfast.Ready), task(3, holdfast.Ready), task(5, holdfast.Done), task(7, holdfast.Dead), task(8, holdfast.Cancelled), task(40, holdfast.Archived)
	ready.Payload, ready.Queue, ready.Unique = json.RawMessage(`{ "b":1, "a":"é\u0000\ud800\"\\ {x,\"y\"}", "b":2e400 }`), "slow", "ключ \"1\""
	ready.Crashes, ready.Attempt, ready.StartedAt, ready.LastError = 1, 2, at(-time.Minute), "gone\n'quoted'"
	later.Parked, later.Deferrals = "no worker, \\ here", 4
	later.NextRunAt = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	later.ImportedKey, later.Key = "task_3_key", "tenant 3"
	later.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=b"
	later.Tags, dead.Tags = []string{"ada", "größe"}, []string{"<ada>&"}
	done.StartedAt, done.FinishedAt, done.Payload = at(-time.Minute), at(-time.Second), json.RawMessage(`"`+strings.Repeat("long ", 2000)+`"`)
	dead.Failures, dead.Attempt, dead.FinishedAt, dead.LastError = 3, 3, at(-time.Second), strings.Repeat("x", 8000)
	cancelled.FinishedAt, archived.FinishedAt = at(-time.Second), at(-time.Second)
	attempt := func(n int, event holdfast.Event) holdfast.Attempt {
		return holdfast.Attempt{
			Task: dead.ID, Attempt: n, Event: event, WorkerName: "host/1", StartedAt: at(-time.Minute), FinishedAt: at(time.Duration(n) * time.Second),
			Class: "http", Error: "503 \x01 é", Stack: "a\n\tb", Details: json.RawMessage(`{"status": 503, "nul": "\u0000"}`),
		}
	}
	bare := attempt(3, holdfast.EventGiveUp)
	bare.StartedAt, bare.Stack, bare.Details = time.Time{}, "", nil
	value := func(task holdfast.Task, name, value string) store.Datum {
		return store.Datum{Task: task.ID, Name: name, Attempt: 1, Value: json.RawMessage(value), At: at(-time.Hour)}
	}
	values := []store.Datum{value(ready, store.CheckpointData, `{ "b":1, "a":"é\u0000\ud800\"\\", "b":2e400 }`), value(ready, store.StepData("Charge"), "null"), value(ready, store.StepData("charge"), `7`)}
	return []store.Record{
		{Task: ready, Requeued: true, Data: values}, {Task: later, Parks: 3}, {Task: done, Data: []store.Datum{value(done, store.OutputData, `"done"`)}},
		{Task: dead, Attempts: []holdfast.Attempt{attempt(1, holdfast.EventRetry), attempt(2, holdfast.EventRetry), bare}},
		{Task: cancelled}, {Task: archived},
	}
}

// exported returns all records of a store and the highest id that it has assigned.
func (s *suite) exported(from store.Transfer) (records []store.Record, last holdfast.TaskID) {
	s.Helper()
	last, err := from.Export(s.ctx, func(r store.Record) error {
		records = append(records, r)
		return nil
	})
	s.must(err)
	return records, last
}

// testImportOrdered imports keys whose active task is dead, is ready, or dooms the others, and a key without an active
// task.
func testImportOrdered(s *suite, here, elsewhere Transferable) {
	now := s.now()
	task := func(id holdfast.TaskID, key string, state holdfast.State, mark ordered.Mark, leads bool) store.Record {
		r := store.Record{Order: mark, Leads: leads, Task: holdfast.Task{
			ID: id, Type: kind, Queue: defaultQueue, Key: key, Ordered: true, Doomed: mark == ordered.Doomed, State: state, Attempt: 1, MaxAttempts: 3,
			Payload: json.RawMessage("null"), NextRunAt: now.Add(-time.Hour), CreatedAt: now.Add(-time.Hour),
		}}
		if state.Final() {
			r.FinishedAt = now.Add(-time.Minute)
		}
		return r
	}
	records := []store.Record{
		task(10, "dead", holdfast.Dead, ordered.Ordered, true), task(11, "dead", holdfast.Ready, ordered.Ordered, false), task(12, "dead", holdfast.Ready, ordered.Ordered, false),
		task(20, "ready", holdfast.Ready, ordered.Ordered, true), task(21, "ready", holdfast.Ready, ordered.Ordered, false),
		task(30, "doomed", holdfast.Dead, ordered.Dooms, true), task(31, "doomed", holdfast.Ready, ordered.Doomed, false),
		task(40, "skipped", holdfast.Dead, ordered.LetGo, false), task(41, "skipped", holdfast.Done, ordered.Ordered, false),
	}
	if _, err := here.Import(s.ctx, records, 50); err != nil {
		s.Fatal(err)
	}
	if got, _ := s.exported(elsewhere); !reflect.DeepEqual(got, records) {
		for i := range got {
			s.Logf("%s", clipped(got[i]))
		}
		s.Error("the exported records differ from the imported ones")
	}
	s.wantDue("only the active tasks and doomed ones are due", 20, 31)
	s.retry(10)
	s.wantDue("the dead task is retried", 10)
	if place, err := s.OrderOf(s.ctx, 12); err != nil || place.Active != 10 || place.Ahead != 1 {
		s.Errorf("the place of task 12 is %+v, %v", place, err)
	}
	s.retry(40)
	s.wantDue("the task of an idle key is retried", 40)
	if list, _ := s.insertOrdered(orderedTask("doomed")); !s.task(list[0]).Doomed {
		s.Error("a task behind an imported task that dooms others is not doomed")
	}
}

func testImportAndExport(s *suite, here, elsewhere Transferable) {
	if none, last := s.exported(here); len(none) != 0 || last != 0 {
		s.Errorf("Export of an empty store returned %v, %s", none, last)
	}
	records := sampleRecords(s.now())
	if n, err := here.Import(s.ctx, records, 50); err != nil || n != len(records) {
		s.Fatalf("Import returned %d, %v; want %d", n, err, len(records))
	}
	got, last := s.exported(elsewhere)
	if last != 50 || len(got) != len(records) {
		s.Fatalf("exported %d records, the highest id is %s", len(got), last)
	}
	for i := range records {
		if !reflect.DeepEqual(got[i], records[i]) {
			s.Errorf("the record is\n%s, want\n%s", clipped(got[i]), clipped(records[i]))
		}
		task, err := s.Task(s.ctx, records[i].ID)
		s.must(err)
		values, err := s.TaskData(s.ctx, []holdfast.TaskID{records[i].ID})
		if err != nil || len(values)+len(records[i].Data) > 0 && !reflect.DeepEqual(values, records[i].Data) {
			s.Errorf("the values of task %s are %v, %v, want %v", records[i].ID, values, err, records[i].Data)
		}
		if !reflect.DeepEqual(task, records[i].Task) {
			s.Errorf("the task is\n%s, want\n%s", clipped(task), clipped(records[i].Task))
		}
	}
	if dead, err := s.List(s.ctx, store.Filter{States: []holdfast.State{holdfast.Dead}}); err != nil || len(dead.Tasks) != 1 {
		s.Errorf("the dead tasks are %v, %v", dead, err)
	}
	if tagged, err := s.List(s.ctx, store.Filter{Tags: []string{"größe"}}); err != nil || len(tagged.Tasks) != 1 {
		s.Errorf("the tasks with a tag are %v, %v", tagged, err)
	}
	if names, err := s.QueueNames(s.ctx); err != nil || !reflect.DeepEqual(names, []string{defaultQueue, "slow"}) {
		s.Errorf("the queues are %v, %v", names, err)
	}
}

// clipped formats a value in at most 3,000 bytes.
func clipped(value any) string { return fmt.Sprintf("%.3000s", fmt.Sprintf("%+v", value)) }

func testImportAgain(s *suite, here, elsewhere Transferable) {
	records := sampleRecords(s.now())
	for i, want := range []int{2, 4, 0} {
		part := records
		if i == 0 {
			part = records[:2]
		}
		if n, err := elsewhere.Import(s.ctx, part, 0); err != nil || n != want {
			s.Fatalf("Import returned %d, %v; want %d", n, err, want)
		}
	}
	// Import skips a task whose state has changed since the export.
	changed, err := s.Task(s.ctx, records[1].ID)
	s.must(err)
	cancel, err := holdfast.Settle(changed, holdfast.Requested(holdfast.EventCancel), s.now(), holdfast.DefaultPolicy())
	s.must(err)
	if ok, err := s.Apply(s.ctx, []holdfast.Transition{cancel}); err != nil || !ok[0] {
		s.Fatalf("Apply of the cancellation returned %v, %v", ok, err)
	}
	records[0].Data[0].Value = json.RawMessage("0")
	if n, err := here.Import(s.ctx, records, 0); err != nil || n != 0 {
		s.Errorf("Import of existing tasks returned %d, %v; want 0", n, err)
	}
	if values, err := s.TaskData(s.ctx, []holdfast.TaskID{records[0].ID}); err != nil || len(values) != 3 || string(values[0].Value) == "0" {
		s.Errorf("the values of a task that was skipped are %v, %v", values, err)
	}
	if task, err := s.Task(s.ctx, changed.ID); err != nil || task.State != holdfast.Cancelled {
		s.Errorf("the state of the task is %s, %v; want cancelled", task.State, err)
	}
}

func testImportClash(s *suite, here, _ Transferable) {
	records := sampleRecords(s.now())
	unique := newTask()
	unique.Unique = records[0].Unique
	s.insert(unique) // this task has the id 1 and the key of task 2
	n, err := here.Import(s.ctx, records, 0)
	if !errors.Is(err, holdfast.ErrConflict) || n != 0 || !strings.Contains(err.Error(), "task 2 has the same unique key") ||
		!strings.Contains(err.Error(), "as task 1 of the store") {
		s.Errorf("the key belongs to another task: Import returned %d, %v", n, err)
	}
	s.insertN(4)
	for _, change := range []func(*store.Record){
		func(r *store.Record) { r.Type = other },
		func(r *store.Record) { r.Queue = "slow" },
		func(r *store.Record) { r.Payload = json.RawMessage("1") },
		func(r *store.Record) { r.CreatedAt = r.CreatedAt.Add(time.Microsecond) },
		func(r *store.Record) { r.Unique = "a key" },
	} {
		task, err := s.Task(s.ctx, 3)
		s.must(err)
		record := store.Record{Task: task}
		if n, err := here.Import(s.ctx, []store.Record{record}, 0); err != nil || n != 0 {
			s.Fatalf("Import of an existing task returned %d, %v; want 0", n, err)
		}
		change(&record)
		if n, err := here.Import(s.ctx, []store.Record{record}, 0); !errors.Is(err, holdfast.ErrConflict) || n != 0 || !strings.Contains(err.Error(), "another task with the id 3") {
			s.Errorf("the id belongs to another task: Import returned %d, %v", n, err)
		}
	}
	if got, _ := s.exported(here); len(got) != 5 {
		s.Errorf("exported %d tasks, want 5", len(got))
	}
}

// testImportKeys imports a unique key whose task was deleted, one whose task is imported, too, and one whose time has
// passed.
func testImportKeys(s *suite, here, elsewhere Transferable) {
	now := s.now()
	records := sampleRecords(now)
	held := records[0].Task
	keys := []store.KeptKey{
		{Key: "deleted", Task: 1, CreatedAt: now.Add(-2 * time.Hour), Until: now.Add(time.Hour)},
		{Key: "passed", Task: 4, CreatedAt: now.Add(-2 * time.Hour), Until: now.Add(-time.Hour)},
		{Key: held.Unique, Task: held.ID, CreatedAt: held.CreatedAt, Until: now.Add(time.Hour)},
	}
	for range 2 {
		if _, err := here.Import(s.ctx, records, 50); err != nil {
			s.Fatal(err)
		}
		s.must(here.ImportKeys(s.ctx, keys))
	}
	errCaller := errors.New("enough")
	var exported []store.KeptKey
	add := func(k store.KeptKey) error {
		exported = append(exported, k)
		return nil
	}
	s.must(elsewhere.ExportKeys(s.ctx, add))
	if want := []store.KeptKey{keys[0], keys[2]}; !reflect.DeepEqual(exported, want) {
		s.Errorf("exported %v, want %v", exported, want)
	}
	if err := elsewhere.ExportKeys(s.ctx, func(store.KeptKey) error { return errCaller }); !errors.Is(err, errCaller) {
		s.Errorf("ExportKeys returned %v, want the error of the caller", err)
	}
	task := newTask()
	for _, c := range []struct {
		key  string
		age  time.Duration
		want store.InsertedTask
	}{
		{"deleted", 0, store.InsertedTask{ID: 1, Duplicate: true}},
		{"deleted", 4 * time.Hour, store.InsertedTask{ID: 1, Duplicate: true}},
		{held.Unique, 0, store.InsertedTask{ID: held.ID, Duplicate: true, State: held.State}},
		{"deleted", 2 * time.Hour, store.InsertedTask{ID: 51}}, // task 1 is older
		{"passed", 0, store.InsertedTask{ID: 52}},
	} {
		task.Unique, task.UniqueFor = c.key, c.age
		if got := s.insertOne(task); got.Duplicate != c.want.Duplicate || got.State != c.want.State || got.Duplicate && got.ID != c.want.ID {
			s.Errorf("Insert of %q for %s returned %+v, want %+v", c.key, c.age, got, c.want)
		}
	}
	if err := here.ImportKeys(s.ctx, keys); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), `unique key "`) {
		s.Errorf("the keys belong to other tasks: ImportKeys returned %v", err)
	}
	other := store.Record{Task: held}
	other.ID, other.Unique = 60, "kept"
	s.must(here.ImportKeys(s.ctx, []store.KeptKey{{Key: "kept", Task: 1, CreatedAt: now, Until: now.Add(time.Hour)}}))
	if n, err := here.Import(s.ctx, []store.Record{other}, 0); !errors.Is(err, holdfast.ErrConflict) || n != 0 || !strings.Contains(err.Error(), "as task 1 of the store") {
		s.Errorf("the key is kept for another task: Import returned %d, %v", n, err)
	}
}

func testImportIDs(s *suite, here, elsewhere Transferable) {
	_, err := here.Import(s.ctx, nil, 17) // the other store has deleted its tasks up to 17; no new task gets such an id
	s.must(err)
	if _, last := s.exported(elsewhere); last != 17 {
		s.Errorf("the highest id is %s, want 17", last)
	}
	if ticket := s.insertN(1)[0]; ticket.Task <= 17 {
		s.Errorf("the new task has the id %s, want more than 17", ticket.Task)
	}
	_, err = elsewhere.Import(s.ctx, nil, 5)
	s.must(err)
	before := s.insertN(1)[0].Task
	records := sampleRecords(s.now())
	_, err = elsewhere.Import(s.ctx, records, records[len(records)-1].ID)
	s.must(err)
	if ticket := s.insertN(1)[0]; ticket.Task <= max(before, 40) {
		s.Errorf("the new task has the id %s, want more than %s and 40", ticket.Task, before)
	}
}

func testExportRunning(s *suite, here, elsewhere Transferable) {
	tickets := s.insertN(3)
	claims, err := s.Claim(s.ctx, s.registerWorker(), kinds, tickets[1:2], store.IntoExecutors)
	if err != nil || claims[0].Verdict != store.Claimed {
		s.Fatalf("Claim returned %+v, %v", claims, err)
	}
	_, err = elsewhere.Export(s.ctx, func(store.Record) error { return nil })
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "task "+tickets[1].Task.String()+": it is running") {
		s.Errorf("Export with a running task: %v", err)
	}
	s.insertN(1) // the failed export blocks no insert
}

func testExportEnds(s *suite, here, _ Transferable) {
	s.insertN(100)
	stop, calls := errors.New("stop"), 0
	_, err := here.Export(s.ctx, func(store.Record) error {
		if calls++; calls == 3 {
			return stop
		}
		return nil
	})
	if err != stop || calls != 3 { //nolint:errorlint // Export returns the error unwrapped
		s.Errorf("Export returned after %d calls: %v; want 3 calls and the error of the caller", calls, err)
	}
	s.insertN(1)
	if got, _ := s.exported(here); len(got) != 101 {
		s.Errorf("exported %d tasks, want 101", len(got))
	}
}

// testExportPointInTime stores a task while an export runs. The insert waits and succeeds after the export.
func testExportPointInTime(s *suite, here, elsewhere Transferable) {
	s.insertN(3)
	inserted, seen := make(chan error, 1), 0
	last, err := here.Export(s.ctx, func(store.Record) error {
		if seen++; seen == 1 {
			go func() {
				inserted <- second(elsewhere.Insert(context.WithoutCancel(s.ctx), []holdfast.NewTask{newTask()}, 0))
			}()
		}
		select {
		case err := <-inserted:
			s.Errorf("Insert returned during the export: %v", err)
		case <-time.After(50 * time.Millisecond): // long enough for an insert that does not wait
		}
		return nil
	})
	if err != nil || seen != 3 || last != 3 {
		s.Errorf("exported %d tasks, the highest id is %s, %v; want 3 and 3", seen, last, err)
	}
	s.must(<-inserted)
	if got, _ := s.exported(here); len(got) != 4 {
		s.Errorf("exported %d tasks after the insert, want 4", len(got))
	}
}

// testImportDue imports ready tasks. A ready task gets a ticket when it is due, and can then be claimed.
func testImportDue(s *suite, here, _ Transferable) {
	records := sampleRecords(s.now())
	_, err := here.Import(s.ctx, records, 0)
	s.must(err)
	var given []store.Due
	_, err = s.DispatchDue(s.ctx, store.Queues{}, 10, func(_ context.Context, due []store.Due) []bool {
		given = append(given, due...)
		return make([]bool, len(due))
	})
	s.must(err)
	if len(given) != 1 || given[0].Task != 2 || given[0].Attempt != 2 || given[0].Queue != "slow" || !given[0].Requeued {
		s.Errorf("the due tasks are %+v", given)
	}
	claims, err := s.Claim(s.ctx, s.registerWorker(), kinds, []message.Ticket{{Task: 2, Attempt: 2}, {Task: 3, Attempt: 1}}, store.IntoExecutors)
	s.must(err)
	if claims[0].Verdict != store.Claimed || claims[1].Verdict != store.Stale {
		s.Errorf("Claim returned %+v", claims)
	}
}

// testImportBlocked exports a task that a gate blocks, and imports a copy of it. No gate blocks the copy, so it is due.
func testImportBlocked(s *suite, here, elsewhere Transferable) {
	worker, tickets := s.registerWorker(), s.insertN(1)
	gate := s.pause(store.Subject{Type: kind}, 0)
	s.block(worker, gate.ID, tickets...)
	s.must(s.DeregisterWorker(s.ctx, worker, true))
	records, _ := s.exported(here)
	if len(records) != 1 || records[0].Task.State != holdfast.Ready || records[0].Task.NextRunAt.After(s.now()) {
		s.Fatalf("exported %+v", records)
	}
	const imported = holdfast.TaskID(100)
	records[0].Task.ID, records[0].Task.ImportedKey = imported, "task_100_key"
	if _, err := elsewhere.Import(s.ctx, records, 0); err != nil {
		s.Fatal(err)
	}
	if due := s.due(); !slices.Equal(due, []holdfast.TaskID{imported}) {
		s.Errorf("due are %v, want the imported task", due)
	}
}

// testImportParks exports and imports a parked task. Its next park lasts longer than the ones before the export.
func testImportParks(s *suite, here, _ Transferable) {
	const first = 100 * time.Millisecond
	ticket := s.insertN(1)[0]
	park := func() (wait time.Duration) {
		s.eventually("the task is due", func() bool { return !s.now().Before(s.task(ticket.Task).NextRunAt) })
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
		s.Errorf("the third park, after an import, lasts %s, want at least %s", wait, 4*first)
	}
}

func second[T any](_ T, err error) error { return err }

// Plans are not exported, so neither an exported nor an imported task is a member of one.
func testExportMembers(s *suite, here, _ Transferable) {
	p, inserted := s.members(s.batch("a"), newTask())
	records, last := s.exported(here)
	if len(records) != 1 || records[0].ID != inserted.Tasks[0].ID || records[0].Batch != 0 {
		s.Fatalf("exported %+v", records)
	}
	other := records[0]
	other.ID, other.Batch = last+1, holdfast.BatchID(p.ID)
	if n, err := here.Import(s.ctx, []store.Record{other}, last+1); err != nil || n != 1 {
		s.Fatalf("imported %d tasks, %v", n, err)
	}
	if got := s.task(other.ID); got.Batch != 0 {
		s.Errorf("the imported task is %+v", got)
	}
}
