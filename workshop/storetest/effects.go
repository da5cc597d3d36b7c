package storetest

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/desk"
)

var effectTests = []test{
	{"an attempt that runs stores values", testSaveData},
	{"returns the sizes of tasks", testTaskSizes},
	{"refuses values of an attempt that does not run", testSaveDataFenced},
	{"a success stores its output and its next tasks", testEffects},
	{"a refused result stores no effects", testRefusedEffects},
	{"stores the effects of many results", testManyEffects},
	{"a next task with a unique key that is taken is not stored", testDuplicateNext},
	{"deletes the values of a task with the task", testDataOfDeleted},
}

func fenceOf(task holdfast.Task) store.Fence {
	return store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker}
}

// dataOf returns the values of a task as text, such as "output/1={}".
func (s *suite) dataOf(id holdfast.TaskID, names ...string) string {
	s.Helper()
	found, err := s.TaskData(s.ctx, []holdfast.TaskID{id}, names...)
	s.must(err)
	var parts []string
	for _, d := range found {
		parts = append(parts, fmt.Sprintf("%s/%d=%s", d.Name, d.Attempt, d.Value))
	}
	return strings.Join(parts, " ")
}

func (s *suite) saveData(task holdfast.Task, values ...string) error {
	var list []store.Datum
	for _, value := range values {
		name, text, _ := strings.Cut(value, "=")
		list = append(list, store.Datum{Name: name, Value: json.RawMessage(text)})
	}
	return s.SaveData(s.ctx, fenceOf(task), list)
}

// success returns the success of a running task with effects.
func (s *suite) success(task holdfast.Task, effects *holdfast.Effects) holdfast.Transition {
	s.Helper()
	move, err := holdfast.Settle(task, holdfast.Returned(nil), s.now(), policy())
	s.must(err)
	move.Effects = effects
	return move
}

func testSaveData(s *suite) {
	before := s.now()
	task, other := s.runningTask(), s.runningTask()
	s.must(s.saveData(task, `step/charge={"id": "ü\u0000 <1>"}`, `checkpoint=7`))
	s.must(s.saveData(other, `checkpoint=[]`))
	s.must(s.saveData(task))
	s.must(s.saveData(task, `checkpoint=8`, `progress={"percent":50}`))
	if got, want := s.dataOf(task.ID), `checkpoint/1=8 progress/1={"percent":50} step/charge/1={"id": "ü\u0000 <1>"}`; got != want {
		s.Errorf("values %s, want %s", got, want)
	}
	if got, want := s.dataOf(task.ID, store.CheckpointData, "none"), `checkpoint/1=8`; got != want {
		s.Errorf("checkpoint %s, want %s", got, want)
	}
	found, err := s.TaskData(s.ctx, []holdfast.TaskID{other.ID, task.ID, other.ID, 1 << 40}, store.CheckpointData)
	s.must(err)
	if len(found) != 2 || found[0].Task != task.ID || found[1].Task != other.ID || found[0].At.Before(before) || found[0].At.After(s.now()) {
		s.Errorf("values of two tasks: %+v", found)
	}
	if none, err := s.TaskData(s.ctx, nil); err != nil || len(none) != 0 {
		s.Errorf("values of no tasks: %+v, %v", none, err)
	}
	// A later attempt reads the values of the earlier one, and replaces them.
	s.move(task, holdfast.Returned(holdfast.RetryAfter(0, errors.New("again"))))
	again := s.claimAgain(task)
	s.must(s.saveData(again, `checkpoint=9`))
	if got, want := s.dataOf(task.ID, store.CheckpointData, "step/charge"), `checkpoint/2=9 step/charge/1={"id": "ü\u0000 <1>"}`; got != want {
		s.Errorf("values after a retry %s, want %s", got, want)
	}
}

func testTaskSizes(s *suite) {
	long := newTask()
	long.Payload = json.RawMessage(`"` + strings.Repeat("é", 50_000) + `"`)
	plain, stored := s.runningTask(), s.insert(long)[0]
	s.must(s.saveData(plain, `checkpoint="not counted"`))
	accepted, err := s.Apply(s.ctx, []holdfast.Transition{s.success(plain, &holdfast.Effects{Output: json.RawMessage(`"ü"`)})})
	s.must(err)
	full, err := s.FullTasks(s.ctx, []holdfast.TaskID{plain.ID})
	s.must(err)
	sizes, err := s.TaskSizes(s.ctx, []holdfast.TaskID{stored.Task, plain.ID, 1 << 40, plain.ID})
	s.must(err)
	want := []store.TaskSize{{Task: plain.ID, Bytes: int64(len(full[0].Payload)) + 4}, {Task: stored.Task, Bytes: 100_002}}
	if !accepted[0] || !slices.Equal(sizes, want) {
		s.Errorf("sizes %+v, want %+v", sizes, want)
	}
	if none, err := s.TaskSizes(s.ctx, nil); err != nil || len(none) != 0 {
		s.Errorf("sizes of no tasks: %+v, %v", none, err)
	}
}

func testSaveDataFenced(s *suite) {
	task := s.runningTask()
	for _, by := range []holdfast.Task{
		{ID: task.ID + 1, Attempt: task.Attempt, Worker: task.Worker}, {ID: task.ID, Attempt: task.Attempt + 1, Worker: task.Worker},
		{ID: task.ID, Attempt: task.Attempt, Worker: task.Worker + 1},
	} {
		if err := s.saveData(by, "checkpoint=1"); !errors.Is(err, store.ErrFenced) {
			s.Errorf("values of %+v, the task is %+v: %v", by, task, err)
		}
	}
	s.move(task, holdfast.Crashed(task.Worker))
	if err := s.saveData(task, "checkpoint=1"); !errors.Is(err, store.ErrFenced) {
		s.Errorf("values of an attempt that has ended: %v", err)
	}
	again := s.claimAgain(task)
	if err := s.saveData(task, "checkpoint=1"); !errors.Is(err, store.ErrFenced) {
		s.Errorf("values of an earlier attempt: %v", err)
	}
	s.must(s.saveData(again, "checkpoint=2"))
	s.move(again, holdfast.Returned(nil))
	if err := s.saveData(again, "checkpoint=3"); !errors.Is(err, store.ErrFenced) {
		s.Errorf("values of a task that is done: %v", err)
	}
	if got := s.dataOf(task.ID); got != "checkpoint/2=2" {
		s.Errorf("values %s", got)
	}
}

// claimAgain claims a task whose last attempt has ended, by another worker.
func (s *suite) claimAgain(task holdfast.Task) holdfast.Task {
	s.Helper()
	return s.mustClaim(s.registerWorker(), message.Ticket{Task: task.ID, Attempt: s.task(task.ID).Attempt})[0]
}

func testEffects(s *suite) {
	plain, task := s.runningTask(), s.runningTask()
	next := newTask()
	next.Payload, next.Queue = json.RawMessage(`{"of":1}`), "elsewhere"
	later := newTask()
	later.Delay, later.Tags, later.Key = time.Hour, []string{"child"}, "k"
	moves := []holdfast.Transition{
		s.success(plain, nil),
		s.success(task, &holdfast.Effects{Output: json.RawMessage(`{"n": 1}`), Next: []holdfast.NewTask{next, later}}),
	}
	accepted, err := s.Apply(s.ctx, moves)
	s.must(err)
	if !accepted[0] || !accepted[1] {
		s.Fatalf("accepted %v", accepted)
	}
	if got := s.dataOf(task.ID) + s.dataOf(plain.ID); got != `output/1={"n": 1}` {
		s.Errorf("values %s", got)
	}
	page, err := s.List(s.ctx, store.Filter{States: []holdfast.State{holdfast.Ready}})
	s.must(err)
	if len(page.Tasks) != 2 || page.Tasks[0].Key != "k" || page.Tasks[1].Queue != "elsewhere" {
		s.Errorf("next tasks: %+v", page.Tasks)
	}
	given, _ := s.dispatchEntries(true)
	if !slices.ContainsFunc(given, func(e store.OutboxEntry) bool { return e.Queue == "elsewhere" && len(e.Tickets) == 1 }) {
		s.Errorf("outbox entries: %+v", given)
	}
	// The same result again is refused, and stores nothing.
	accepted, err = s.Apply(s.ctx, moves[1:])
	s.must(err)
	if accepted[0] {
		s.Error("the store accepted a result twice")
	}
	if page, err = s.List(s.ctx, store.Filter{States: []holdfast.State{holdfast.Ready}}); err != nil || len(page.Tasks) != 2 {
		s.Errorf("tasks after a second result: %+v, %v", page.Tasks, err)
	}
}

func testRefusedEffects(s *suite) {
	task, other := s.runningTask(), s.runningTask()
	move := s.success(task, &holdfast.Effects{Output: json.RawMessage(`1`), Next: []holdfast.NewTask{newTask()}})
	s.move(task, holdfast.Crashed(task.Worker))
	accepted, err := s.Apply(s.ctx, []holdfast.Transition{move, s.success(other, &holdfast.Effects{Output: json.RawMessage(`2`)})})
	s.must(err)
	if accepted[0] || !accepted[1] {
		s.Fatalf("accepted %v", accepted)
	}
	page, err := s.List(s.ctx, store.Filter{})
	s.must(err)
	if len(page.Tasks) != 2 {
		s.Errorf("the refused result has stored tasks: %+v", page.Tasks)
	}
	if got := s.dataOf(task.ID) + s.dataOf(other.ID); got != "output/1=2" {
		s.Errorf("values %s", got)
	}
}

func testManyEffects(s *suite) {
	worker := s.registerWorker()
	const n = 60
	var moves []holdfast.Transition
	for i, task := range s.mustClaim(worker, s.insertN(n)...) {
		effects := &holdfast.Effects{Output: json.RawMessage(fmt.Sprint(i))}
		if i%3 == 0 {
			effects = nil
		}
		if i%5 == 0 && effects != nil {
			effects.Next = []holdfast.NewTask{newTask(), newTask()}
		}
		moves = append(moves, s.success(task, effects))
	}
	accepted, err := s.Apply(s.ctx, moves)
	s.must(err)
	next := 0
	for i, move := range moves {
		want := ""
		if move.Effects != nil {
			want, next = fmt.Sprintf("output/1=%d", i), next+len(move.Effects.Next)
		}
		if got := s.dataOf(move.Task); !accepted[i] || got != want {
			s.Errorf("task %s: accepted %v, values %s, want %s", move.Task, accepted[i], got, want)
		}
	}
	counts, err := s.Count(s.ctx, store.Filter{})
	s.must(err)
	if counts.By[holdfast.Done] != n || counts.By[holdfast.Ready] != int64(next) {
		s.Errorf("counts %v, want %d done and %d ready", counts.By, n, next)
	}
}

func testDuplicateNext(s *suite) {
	unique := newTask()
	unique.Unique = "once"
	for range 2 {
		task := s.runningTask()
		accepted, err := s.Apply(s.ctx, []holdfast.Transition{s.success(task, &holdfast.Effects{Next: []holdfast.NewTask{unique}})})
		s.must(err)
		if !accepted[0] {
			s.Error("the result was refused")
		}
	}
	page, err := s.List(s.ctx, store.Filter{States: []holdfast.State{holdfast.Ready}})
	s.must(err)
	if len(page.Tasks) != 1 || page.Tasks[0].Unique != "once" {
		s.Errorf("next tasks: %+v", page.Tasks)
	}
}

func testDataOfDeleted(s *suite) {
	pruned, kept := s.runningTask(), s.runningTask()
	for _, task := range []holdfast.Task{pruned, kept} {
		s.must(s.saveData(task, "checkpoint=1", "step/a=2"))
	}
	accepted, err := s.Apply(s.ctx, []holdfast.Transition{s.success(pruned, &holdfast.Effects{Output: json.RawMessage(`3`)})})
	s.must(err)
	if !accepted[0] {
		s.Fatal("the result was refused")
	}
	s.prune(store.PruneAges{Done: time.Microsecond}, 1)
	if got := s.dataOf(pruned.ID); got != "" {
		s.Errorf("the values of a deleted task: %s", got)
	}
	dead := s.move(kept, holdfast.Returned(holdfast.Permanent(errors.New("hopeless"))))
	if got := s.dataOf(kept.ID); got != "checkpoint/1=1 step/a/1=2" {
		s.Errorf("values of a dead task: %s", got)
	}
	s.mustChange(store.Change{Action: store.ActionPurge, Task: dead})
	if got := s.dataOf(kept.ID); got != "" {
		s.Errorf("the values of a purged task: %s", got)
	}
}

// RunApplyTx tests ApplyTx. s is empty and migrated, and begin begins a transaction on its database.
func RunApplyTx(t *testing.T, s desk.Store, begin func() *sql.Tx) {
	w := &suite{T: t, Store: s, ctx: t.Context()}
	next := newTask()
	next.Unique = "child"
	effects := &holdfast.Effects{Output: json.RawMessage(`{"paid":true}`), Next: []holdfast.NewTask{next, newTask()}}
	task := w.runningTask()
	apply := func(move holdfast.Transition, end func(*sql.Tx) error) bool {
		t.Helper()
		tx := begin()
		defer func() { _ = tx.Rollback() }()
		accepted, err := s.ApplyTx(w.ctx, tx, move)
		w.must(err)
		w.must(end(tx))
		return accepted
	}
	move := w.success(task, effects)
	if !apply(move, (*sql.Tx).Rollback) {
		t.Error("the transition was refused")
	}
	if got := w.task(task.ID); got.State != holdfast.Running || w.dataOf(task.ID) != "" {
		t.Errorf("after a rollback: %+v, %s", got, w.dataOf(task.ID))
	}
	if !apply(move, (*sql.Tx).Commit) {
		t.Error("the transition was refused after a rollback")
	}
	counts, err := w.Count(w.ctx, store.Filter{})
	w.must(err)
	if got := w.task(task.ID); got.State != holdfast.Done || w.dataOf(task.ID) != `output/1={"paid":true}` || counts.By[holdfast.Ready] != 2 {
		t.Errorf("after the commit: %+v, %s, %v", got, w.dataOf(task.ID), counts.By)
	}
	if apply(move, (*sql.Tx).Commit) {
		t.Error("the transition was accepted twice")
	}
	// A recorded success, an ordered task, and a task that another worker has taken over.
	recorded := w.success(w.runningTask(), nil)
	recorded.Recorded = true
	if !apply(recorded, (*sql.Tx).Commit) {
		t.Error("a recorded success was refused")
	}
	if attempts, err := s.Attempts(w.ctx, recorded.Task); err != nil || len(attempts) != 1 {
		t.Errorf("attempts %+v, %v", attempts, err)
	}
	late := w.runningTask()
	lost := w.success(late, effects)
	w.move(late, holdfast.Crashed(late.Worker))
	if apply(lost, (*sql.Tx).Commit) || w.dataOf(late.ID) != "" {
		t.Error("the result of a fenced worker was accepted")
	}
	w.checkCounters()
}
