package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/transfer"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
	"github.com/holdfastq/holdfast/store/sqlite"
	"github.com/holdfastq/holdfast/workshop/backendtest"
)

func open(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: backendtest.NewFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// filledStore returns a store with n tasks. The last task is dead after one attempt, which has stored two values.
func filledStore(t testing.TB, n int) *sqlite.Store {
	t.Helper()
	s := open(t)
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "t", Queue: "q", MaxAttempts: (n - i) % 2, Payload: json.RawMessage(fmt.Sprintf(`{ "n": %d, "text": "<é> " }`, i))}
	}
	if _, err := s.Insert(t.Context(), tasks, 0); err != nil {
		t.Fatal(err)
	}
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "the worker"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), []message.Ticket{{Task: holdfast.TaskID(n), Attempt: 1}}, store.IntoExecutors)
	if err != nil {
		t.Fatal(err)
	}
	values := []store.Datum{{Name: store.CheckpointData, Value: json.RawMessage(`{ "line": 7, "text": "<é>" }`)}, {Name: store.StepData("charge"), Value: json.RawMessage("null")}}
	if err := s.SaveData(t.Context(), store.Fence{Task: holdfast.TaskID(n), Attempt: 1, Worker: worker}, values); err != nil {
		t.Fatal(err)
	}
	move, err := holdfast.Settle(*claims[0].Task, holdfast.Returned(errors.New("no")), claims[0].Now, holdfast.DefaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(t.Context(), []holdfast.Transition{move}); err != nil {
		t.Fatal(err)
	}
	if err := s.DeregisterWorker(t.Context(), worker, true); err != nil {
		t.Fatal(err)
	}
	return s
}

func export(t testing.TB, s transfer.Store) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := transfer.Export(t.Context(), s, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// tasksOf returns the lines of an export without the header, which contains the time.
func tasksOf(export []byte) string {
	_, tasks, _ := strings.Cut(string(export), "\n")
	return tasks
}

// After an import, the new store exports the same lines as the old store.
func TestImportedTasksAreEqual(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2500} {
		lines := export(t, filledStore(t, n))
		s := open(t)
		for i, stored := range []int64{int64(n), 0} {
			done, err := transfer.Import(t.Context(), s, bytes.NewReader(lines))
			if err != nil || done.Stored != stored || done.Store.Tasks() != int64(n) || done.Store.Attempts != 1 {
				t.Fatalf("import %d: %+v, %v", i+1, done, err)
			}
		}
		if got, want := tasksOf(export(t, s)), tasksOf(lines); got != want {
			t.Errorf("got export\n%.2000s, want\n%.2000s", got, want)
		}
	}
}

// The store keeps unique keys of deleted tasks after an import, too.
func TestUniqueKeysAreTransferred(t *testing.T) {
	t.Parallel()
	s := filledStore(t, 3)
	now := time.Now().UTC().Truncate(time.Microsecond)
	var keys []store.KeptKey
	for i := range 2500 {
		keys = append(keys, store.KeptKey{Key: fmt.Sprintf("key %04d", i), Task: 1, CreatedAt: now, Until: now.Add(time.Hour)})
	}
	keys = append(keys, store.KeptKey{Key: "late", Task: 4, CreatedAt: now, Until: now.Add(time.Hour)}) // not of an exported task
	if err := s.ImportKeys(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	lines := export(t, s)
	for range 2 {
		into := open(t)
		if _, err := transfer.Import(t.Context(), into, bytes.NewReader(lines)); err != nil {
			t.Fatal(err)
		}
		var got []store.KeptKey
		if err := into.ExportKeys(t.Context(), func(k store.KeptKey) error { got = append(got, k); return nil }); err != nil || !reflect.DeepEqual(got, keys[:2500]) {
			t.Errorf("the new store keeps %d keys, %v; want %d", len(got), err, 2500)
		}
	}
	for old, replacement := range map[string]string{`"key":"key 0007"`: `"key":"key 8000"`, `"key":"key 0009"`: `"key":""`, `"kept_key":{"key":"key 0005","task":"1"`: `"kept_key":{"key":"key 0005"`} {
		if err := transfer.Check(t.Context(), bytes.NewReader(edit(t, lines, old, replacement))); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("an export with %s instead of %s: %v", replacement, old, err)
		}
	}
}

// The line of a parked task contains its park count. A line of an earlier release has no park count; it means 0.
func TestParkCountsAreTransferred(t *testing.T) {
	t.Parallel()
	s := filledStore(t, 3)
	if err := s.Park(t.Context(), []message.Ticket{{Task: 1, Attempt: 1}}, time.Hour, "no handler"); err != nil {
		t.Fatal(err)
	}
	lines := export(t, s)
	for want, lines := range map[int][]byte{1: lines, 0: seal(t, edit(t, lines, `,"parks":1`, ``))} {
		other := open(t)
		if _, err := transfer.Import(t.Context(), other, bytes.NewReader(lines)); err != nil {
			t.Fatal(err)
		}
		records, err := read(export(t, other))
		if err != nil || len(records) != 3 || records[0].Parks != want || records[1].Parks != 0 {
			t.Errorf("read %+v, %v, want a park count of %d", records, err, want)
		}
	}
}

// The values of a task arrive with it. A line of an earlier release has none.
func TestValuesAreTransferred(t *testing.T) {
	t.Parallel()
	lines := export(t, filledStore(t, 2))
	start := bytes.Index(lines, []byte(`,"values":[`))
	end := bytes.Index(lines, []byte(`,"attempts":[`))
	earlier := seal(t, bytes.Join([][]byte{lines[:start], lines[end:]}, nil))
	for want, lines := range map[string][]byte{`{ "line": 7, "text": "<é>" } null`: lines, "": earlier} {
		into := open(t)
		if _, err := transfer.Import(t.Context(), into, bytes.NewReader(lines)); err != nil {
			t.Fatal(err)
		}
		values, err := into.TaskData(t.Context(), []holdfast.TaskID{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range values {
			got = append(got, string(v.Value))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the values are %q, want %q", got, want)
		}
	}
}

// lateStore is a store whose tasks are due after the last year that JSON can represent.
type lateStore struct{ *sqlite.Store }

func (l lateStore) Export(ctx context.Context, f func(store.Record) error) (holdfast.TaskID, error) {
	return l.Store.Export(ctx, func(r store.Record) error {
		r.NextRunAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
		return f(r)
	})
}

func TestExportOfATimeBeyondJSON(t *testing.T) {
	t.Parallel()
	records, err := read(export(t, lateStore{filledStore(t, 1)}))
	if err != nil || records[0].NextRunAt.Year() != 9999 {
		t.Errorf("read %+v, %v", records, err)
	}
}

// oddWriter panics when it gets the text panic.
type oddWriter struct{ bytes.Buffer }

func (o *oddWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("panic")) {
		panic("an odd value")
	}
	return o.Buffer.Write(p)
}

// An export that fails in the middle names the task. Its output has whole lines only, and no import accepts it.
func TestAnExportThatFailsEndsWithAWholeLine(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", 300<<10) + `"` // longer than the buffer
	for payload, want := range map[string]string{`"panic` + long[1:]: "export task 2: panic: an odd value", long: "no import could read task 3"} {
		s := open(t)
		if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "a", Queue: "q", Payload: json.RawMessage(long)}, {Type: "a", Queue: "q", Payload: json.RawMessage(payload)}, {Type: "a"}}, 0); err != nil {
			t.Fatal(err)
		}
		var out oddWriter
		_, err := transfer.Export(t.Context(), s, &out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if text := out.String(); !strings.HasSuffix(text, "}\n") || !strings.Contains(text, `"task":{"id":"1",`) {
			t.Errorf("%s: the output of %d bytes ends with %q", want, len(text), text[max(0, len(text)-20):])
		}
		if _, err := read(out.Bytes()); err == nil {
			t.Errorf("%s: the output is accepted", want)
		}
	}
}

// The export of a store without tasks is valid.
// An import keeps the counters that prove that a task has started. So a task whose type runs at most once does not start
// again in another store.
func TestAnImportedTaskThatHasStartedIsGivenUp(t *testing.T) {
	t.Parallel()
	old := open(t)
	if _, err := old.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "q"}, {Type: "t", Queue: "q"}}, 0); err != nil {
		t.Fatal(err)
	}
	claim := func(s desk.Store, attempt int, id holdfast.TaskID) (task holdfast.Task, end func(...holdfast.Transition)) {
		worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "w"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("t"), []message.Ticket{{Task: id, Attempt: attempt}}, store.IntoExecutors)
		if err != nil || claims[0].Verdict != store.Claimed {
			t.Fatalf("%+v, %v", claims, err)
		}
		return *claims[0].Task, func(moves ...holdfast.Transition) {
			if _, err := s.Apply(t.Context(), moves); err != nil {
				t.Fatal(err)
			}
			if err := s.DeregisterWorker(t.Context(), worker, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	policy := holdfast.DefaultPolicy()
	policy.Strategy, policy.Base = holdfast.Fixed, 0
	task, end := claim(old, 1, 1)
	move, err := holdfast.Settle(task, holdfast.Returned(errors.New("no")), task.StartedAt, policy)
	if err != nil {
		t.Fatal(err)
	}
	end(move)
	s := open(t)
	if _, err := transfer.Import(t.Context(), s, bytes.NewReader(export(t, old))); err != nil {
		t.Fatal(err)
	}
	policy.AtMostOnce = true
	for id, attempt := range map[holdfast.TaskID]int{1: 2, 2: 1} {
		task, end := claim(s, attempt, id)
		if got := policy.StartedBefore(task); got != (id == 1) {
			t.Errorf("task %s has started: %t", id, got)
		}
		end()
	}
}

func TestImportOfNoTasks(t *testing.T) {
	t.Parallel()
	lines := export(t, open(t))
	if done, err := transfer.Import(t.Context(), open(t), bytes.NewReader(lines)); err != nil || done.Store.Tasks() != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := transfer.Import(t.Context(), filledStore(t, 1), bytes.NewReader(lines)); !errors.Is(err, transfer.ErrDiffers) {
		t.Errorf("into a store with a task: %v", err)
	}
}

// An import can continue after it was cut off at any point.
func TestImportContinues(t *testing.T) {
	t.Parallel()
	lines := export(t, filledStore(t, 2500))
	s := open(t)
	stored := int64(0)
	for _, part := range []int{3, 2, 1} {
		done, err := transfer.Import(t.Context(), s, bytes.NewReader(lines[:len(lines)/part]))
		if (err == nil) != (part == 1) || part > 1 && !errors.Is(err, holdfast.ErrInvalid) {
			t.Fatalf("1/%d of the export: %+v, %v", part, done, err)
		}
		stored += done.Stored
	}
	if stored != 2500 {
		t.Errorf("stored %d tasks", stored)
	}
	if got, want := tasksOf(export(t, s)), tasksOf(lines); got != want {
		t.Error("the store differs from the export")
	}
}

// A live worker might run a task while the task is also in another store, so Export and Import refuse live workers.
func TestLiveWorkersAreRefused(t *testing.T) {
	t.Parallel()
	s := filledStore(t, 2)
	lines := export(t, s)
	worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "host/7"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, err = transfer.Export(t.Context(), s, io.Discard)
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "worker host/7 is live") {
		t.Errorf("export: %v", err)
	}
	_, err = transfer.Import(t.Context(), s, bytes.NewReader(lines))
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "worker host/7 is live") {
		t.Errorf("import: %v", err)
	}
	if err := s.DeregisterWorker(t.Context(), worker, true); err != nil {
		t.Fatal(err)
	}
	export(t, s)
}

// wakingStore is a store in which a worker registers during the export.
type wakingStore struct{ *sqlite.Store }

func (a wakingStore) Export(ctx context.Context, f func(store.Record) error) (holdfast.TaskID, error) {
	last, err := a.Store.Export(ctx, f)
	if err == nil {
		_, err = a.RegisterWorker(ctx, store.WorkerInfo{Name: "host/8"}, time.Hour)
	}
	return last, err
}

func TestAWorkerThatBeginsMeanwhileIsNoticed(t *testing.T) {
	t.Parallel()
	_, err := transfer.Export(t.Context(), wakingStore{filledStore(t, 1)}, io.Discard)
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "worker host/8 is live") {
		t.Error(err)
	}
	_, err = transfer.Import(t.Context(), wakingStore{open(t)}, bytes.NewReader(export(t, filledStore(t, 1))))
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "worker host/8 is live") {
		t.Error(err)
	}
}

// If the store has tasks that are not in the export, Import fails before it stores a task, or at its end.
func TestOtherTasksAreRefused(t *testing.T) {
	t.Parallel()
	lines := export(t, filledStore(t, 3))
	s := filledStore(t, 1) // different tasks with the same ids
	_, err := transfer.Import(t.Context(), s, bytes.NewReader(lines))
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "another task with the id 1") {
		t.Errorf("same ids: %v", err)
	}
	s = open(t)
	if _, err := s.Import(t.Context(), nil, 10); err != nil {
		t.Fatal(err)
	}
	// The new task has the id 11.
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "q", MaxAttempts: 1}}, 0); err != nil {
		t.Fatal(err)
	}
	_, err = transfer.Import(t.Context(), s, bytes.NewReader(lines))
	if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "has 1 other tasks") {
		t.Errorf("other ids: %v", err)
	}
	if counts, err := s.Count(t.Context(), store.Filter{}); err != nil || counts.By[holdfast.Ready] != 1 {
		t.Errorf("got counts %v, %v", counts, err)
	}
}

// lossyStore drops the third task of each page; changingStore changes it.
type lossyStore struct{ *sqlite.Store }

func (f lossyStore) Import(ctx context.Context, records []store.Record, last holdfast.TaskID) (int, error) {
	if len(records) < 3 {
		return f.Store.Import(ctx, records, last)
	}
	return f.Store.Import(ctx, append(append([]store.Record(nil), records[:2]...), records[3:]...), last)
}

type changingStore struct{ *sqlite.Store }

func (e changingStore) Import(ctx context.Context, records []store.Record, last holdfast.TaskID) (int, error) {
	if len(records) >= 3 {
		records[2].Deferrals++
	}
	return e.Store.Import(ctx, records, last)
}

func TestImportNoticesWhatIsMissing(t *testing.T) {
	t.Parallel()
	lines := export(t, filledStore(t, 4))
	_, err := transfer.Import(t.Context(), lossyStore{open(t)}, bytes.NewReader(lines))
	if !errors.Is(err, transfer.ErrDiffers) || !strings.Contains(err.Error(), "2 ready tasks instead of 3") {
		t.Errorf("missing task: %v", err)
	}
	_, err = transfer.Import(t.Context(), changingStore{open(t)}, bytes.NewReader(lines))
	if !errors.Is(err, transfer.ErrDiffers) || !strings.Contains(err.Error(), "ready tasks with another checksum") {
		t.Errorf("changed task: %v", err)
	}
}

// rejectingStore rejects the task with the id 3.
type rejectingStore struct{ *sqlite.Store }

func (p rejectingStore) Import(ctx context.Context, records []store.Record, last holdfast.TaskID) (int, error) {
	for _, r := range records {
		if r.ID == 3 {
			return 0, fmt.Errorf("%w: rejected", holdfast.ErrInvalid)
		}
	}
	return p.Store.Import(ctx, records, last)
}

// If the store rejects a task, the error contains its id, and the tasks before it are stored.
func TestImportNamesTheRejectedTask(t *testing.T) {
	t.Parallel()
	done, err := transfer.Import(t.Context(), rejectingStore{open(t)}, bytes.NewReader(export(t, filledStore(t, 4))))
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.HasPrefix(err.Error(), "task 3: ") || done.Stored != 2 {
		t.Errorf("%+v, %v", done, err)
	}
}

// A line may have fields that a later release added.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	lines := edit(t, export(t, filledStore(t, 2)), `{"header":{`, `{"header":{"later":1,`)
	s := open(t)
	// The checksum of the file covers the original lines. The checksum of the store covers the parsed tasks.
	lines = seal(t, edit(t, lines, `{"task":{"id":"1",`, `{"later":[],"task":{"later":{},"id":"1",`))
	if done, err := transfer.Import(t.Context(), s, bytes.NewReader(lines)); err != nil || done.Stored != 2 {
		t.Errorf("%+v, %v", done, err)
	}
}

func TestPrioritiesAreImported(t *testing.T) {
	t.Parallel()
	s := open(t)
	lines := seal(t, edit(t, export(t, filledStore(t, 2)), `"queue":"q"`, `"queue":"q","priority":"high"`))
	if done, err := transfer.Import(t.Context(), s, bytes.NewReader(lines)); err != nil || done.Stored != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	page, err := s.List(t.Context(), store.Filter{Queue: "q", Priorities: []holdfast.Priority{holdfast.PriorityHigh}})
	if err != nil || len(page.Tasks) != 1 {
		t.Errorf("the tasks with high priority are %+v, %v", page.Tasks, err)
	}
	if again := string(export(t, s)); strings.Count(again, `"priority":"high"`) != 1 || strings.Contains(again, "q.high") {
		t.Errorf("the next export is %.600s", again)
	}
}

// An error contains the number of the line.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	good := export(t, filledStore(t, 3))
	rows := strings.SplitAfter(strings.TrimSuffix(string(good), "\n"), "\n")
	header, tasks, end := rows[0], rows[1:4], rows[4]
	long := strings.Repeat("a", 6000)
	for name, test := range map[string]struct{ lines, want string }{
		"empty":                  {"", "the export is empty"},
		"something else":         {`{"type":"t"}` + "\n", "line 1: invalid: not an export"},
		"no JSON":                {"task\n", "line 1: invalid: not a line of an export"},
		"a later version":        {strings.Replace(header, `"version":1`, `"version":2`, 1) + tasks[0] + end, "line 1: invalid: the export has version 2, but this build reads version 1"},
		"no header":              {tasks[0] + end, "line 1: invalid: not an export"},
		"no end":                 {header + tasks[0] + tasks[1] + tasks[2], "line 5: invalid: the export ends without its last line"},
		"half a line":            {header + tasks[0][:40], "line 2: invalid: not a line of an export"},
		"a line is missing":      {header + tasks[0] + tasks[2] + end, "line 4: invalid: the export was changed after it was written: 1 ready tasks instead of 2"},
		"a line twice":           {header + tasks[0] + tasks[0] + end, "line 3: invalid: task 1 follows task 1"},
		"lines in another order": {header + tasks[1] + tasks[0] + tasks[2] + end, "line 3: invalid: task 1 follows task 2"},
		"a changed payload":      {strings.Replace(string(good), `\"n\": 1`, `\"n\": 7`, 1), "line 5: invalid: the export was changed after it was written: ready tasks with another checksum"},
		"two exports":            {string(good) + string(good), "line 6: invalid: unexpected data"},
		"an odd line":            {header + "{}\n" + end, "line 2: invalid: not a task or the end"},
		"a running task":         {header + strings.Replace(tasks[0], `"ready"`, `"running"`, 1), `line 2: invalid: invalid state "running"`},
		"no id":                  {header + strings.Replace(tasks[0], `"id":"1",`, ``, 1), "line 2: invalid: the id is missing"},
		"a bad payload":          {header + strings.Replace(tasks[0], `"payload":"{`, `"payload":"`, 1), "line 2: invalid: the payload is not valid JSON"},
		"no payload":             {header + strings.Replace(tasks[0], `"payload":`, `"p":`, 1), "line 2: invalid: the payload is missing"},
		"a bad type":             {header + strings.Replace(tasks[0], `"type":"t"`, `"type":""`, 1), "line 2: invalid: a task needs a type"},
		"a long type":            {header + strings.Replace(tasks[0], `"type":"t"`, `"type":"`+long+`"`, 1), "line 2: invalid: task type"},
		"a long queue":           {header + strings.Replace(tasks[0], `"queue":"q"`, `"queue":"`+long+`"`, 1), "line 2: invalid: queue"},
		"a long unique key":      {header + strings.Replace(tasks[0], `"attempt":1`, `"unique_key":"`+long+`","attempt":1`, 1), "line 2: invalid: the unique key has 6000 bytes"},
		"a long key":             {header + strings.Replace(tasks[0], `"attempt":1`, `"key":"`+long+`","attempt":1`, 1), "line 2: invalid: the key has 6000 bytes"},
		"a long topic":           {header + strings.Replace(tasks[0], `"attempt":1`, `"topic":"`+long+`","attempt":1`, 1), "line 2: invalid: the topic has 6000 bytes"},
		"a long tag":             {header + strings.Replace(tasks[0], `"attempt":1`, `"tags":["`+long+`"],"attempt":1`, 1), "line 2: invalid: the tag"},
		"no queue":               {header + strings.Replace(tasks[0], `"queue":"q"`, `"queue":""`, 1), "line 2: invalid: the queue is missing"},
		"a count":                {header + strings.Replace(tasks[0], `"attempt":1`, `"attempt":0`, 1), "line 2: invalid: one of attempt,"},
		"a time":                 {header + strings.Replace(tasks[0], `"created_at":"2`, `"created_at":"1`, 1), "line 2: invalid: a time is missing"},
		"not finished":           {header + strings.Replace(tasks[0], `"ready"`, `"done"`, 1), "line 2: invalid: the state done contradicts finished_at"},
		"not text":               {header + strings.Replace(tasks[0], `"type":"t"`, "\"type\":\"\xff\"", 1), "line 2: invalid: not valid UTF-8"},
		"NUL":                    {header + strings.Replace(tasks[0], `"attempt":1`, `"last_error":"\u0000","attempt":1`, 1), "line 2: invalid: a text contains a NUL character"},
		"a key":                  {header + strings.Replace(tasks[0], `"idempotency_key":"`, `"idempotency_key":"a\nb: `, 1), "line 2: invalid: the idempotency key"},
		"an event":               {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"event":"give_up"`, `"event":""`, 1), "line 4: attempt record 1: invalid: the event is missing"},
		"a value without a name": {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"name":"checkpoint"`, `"name":""`, 1), "line 4: value 1: invalid: the name is missing"},
		"a long name":            {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"name":"checkpoint"`, `"name":"`+long+`"`, 1), "line 4: value 1: invalid: the name is missing, is longer"},
		"two values of a name":   {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"name":"checkpoint"`, `"name":"step/charge"`, 1), `line 4: value 2: invalid: the value "step/charge" follows "step/charge"`},
		"a value of no attempt":  {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"name":"checkpoint","attempt":1`, `"name":"checkpoint","attempt":0`, 1), "line 4: value 1: invalid: the attempt 0 is out of range"},
		"a value without a time": {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"value":"null","at":"2`, `"value":"null","at":"1`, 1), "line 4: value 2: invalid: the time is missing"},
		"a bad value":            {header + tasks[0] + tasks[1] + strings.Replace(tasks[2], `"value":"null"`, `"value":"nul"`, 1), "line 4: value 2: invalid: the value is not valid JSON"},
		"no last id":             {strings.Replace(string(good), `"last_id":"3"`, `"last_id":"2"`, 1), "line 5: invalid: last_id is 2"},
	} {
		if name != "empty" && test.lines == string(good) {
			t.Errorf("%s: the file was not changed", name)
		}
		err := transfer.Check(t.Context(), strings.NewReader(test.lines))
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	if err := transfer.Check(t.Context(), strings.NewReader(strings.ReplaceAll(string(good), "\n", "\r\n"))); err != nil {
		t.Errorf("with carriage returns: %v", err)
	}
}

// FuzzReader checks that a store can store every task line that the Reader accepts, and that an import and an export
// preserve it.
func FuzzReader(f *testing.F) {
	good := export(f, filledStore(f, 3))
	rows := bytes.SplitAfter(good, []byte("\n"))
	for _, row := range rows {
		f.Add(row, uint16(0), byte(0))
	}
	f.Add(rows[1], uint16(len(good)/2), byte(1))
	f.Fuzz(func(t *testing.T, row []byte, at uint16, flip byte) {
		lines := seal(t, bytes.Join([][]byte{rows[0], row, []byte("\n"), rows[4]}, nil))
		if records, err := read(lines); err == nil {
			s := open(t)
			done, err := transfer.Import(t.Context(), s, bytes.NewReader(lines))
			switch {
			case errors.Is(err, holdfast.ErrConflict): // two tasks have the same unique key
			case err != nil || done.Stored != int64(len(records)):
				t.Errorf("%+v, %v", done, err)
			default:
				reread, err := read(export(t, s))
				if err != nil || !reflect.DeepEqual(reread, records) {
					t.Errorf("read %+v, %v, want %+v", reread, err, records)
				}
			}
		}
		// The Reader detects each changed byte of a task.
		if i := int(at) % len(good); flip != 0 && len(rows[0]) <= i && i < len(good)-len(rows[4]) {
			changed := bytes.Clone(good)
			changed[i] ^= flip
			if _, err := read(changed); !errors.Is(err, holdfast.ErrInvalid) {
				t.Errorf("byte %d changed by %x: %v", i, flip, err)
			}
		}
	})
}

func read(lines []byte) (records []store.Record, err error) {
	for r := transfer.NewReader(bytes.NewReader(lines)); ; {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return nil, err
		}
		records = append(records, record)
	}
}

func edit(t *testing.T, lines []byte, old, replacement string) []byte {
	t.Helper()
	if !bytes.Contains(lines, []byte(old)) {
		t.Fatalf("the export does not contain %s", old)
	}
	return bytes.Replace(lines, []byte(old), []byte(replacement), 1)
}

// seal returns the lines with a new last line whose totals match them.
func seal(t *testing.T, lines []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	end := transfer.Totals{States: map[holdfast.State]transfer.StateTotal{}, LastID: math.MaxInt64}
	texts := map[holdfast.State][]byte{}
	for row := range bytes.Lines(lines) {
		var l struct {
			End  json.RawMessage
			Task *struct {
				State    holdfast.State
				Attempts []any
			}
		}
		row = append(bytes.TrimRight(row, "\r\n"), '\n')
		if err := json.Unmarshal(row, &l); err == nil && l.End != nil {
			continue
		} else if err == nil && l.Task != nil {
			end.Attempts += int64(len(l.Task.Attempts))
			texts[l.Task.State] = append(texts[l.Task.State], row...)
			end.States[l.Task.State] = transfer.StateTotal{Tasks: end.States[l.Task.State].Tasks + 1}
		}
		out.Write(row)
	}
	for state, text := range texts {
		sum := sha256.Sum256(text)
		end.States[state] = transfer.StateTotal{Tasks: end.States[state].Tasks, SHA256: hex.EncodeToString(sum[:])}
	}
	last, err := json.Marshal(map[string]any{"end": end})
	if err != nil {
		t.Fatal(err)
	}
	return append(append(out.Bytes(), last...), '\n')
}

// A file that no import accepts is worthless. So Export fails, and its error contains the task.
func TestExportRefusesWhatNoImportReads(t *testing.T) {
	t.Parallel()
	for name, task := range map[string]holdfast.NewTask{
		"deep":     {Type: "t", Queue: "q", Payload: json.RawMessage(strings.Repeat("[", 12_000) + strings.Repeat("]", 12_000))},
		"not JSON": {Type: "t", Queue: "q", Payload: json.RawMessage(`{"a"`)},
		"bad type": {Type: "a b", Queue: "q"},
	} {
		s := open(t)
		if _, err := s.Insert(t.Context(), []holdfast.NewTask{task}, 0); err != nil {
			t.Fatal(err)
		}
		_, err := transfer.Export(t.Context(), s, io.Discard)
		if !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "no import could read task 1: ") || holdfast.HintOf(err) == (holdfast.Hint{}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := open(t)
	deepest := json.RawMessage(strings.Repeat("[", holdfast.MaxPayloadDepth) + strings.Repeat("]", holdfast.MaxPayloadDepth))
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "q", Payload: deepest}}, 0); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if _, err := transfer.Export(t.Context(), s, &file); err != nil {
		t.Fatal(err)
	}
	into := open(t)
	if _, err := transfer.Import(t.Context(), into, &file); err != nil {
		t.Fatal(err)
	}
	if task, err := into.Task(t.Context(), 1); err != nil || !bytes.Equal(task.Payload, deepest) {
		t.Errorf("the imported payload has %d bytes, %v", len(task.Payload), err)
	}
}
