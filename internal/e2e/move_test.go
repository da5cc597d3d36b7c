package e2e

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// snapshot is every task with its attempts.
type snapshot map[holdfast.TaskID]store.Record

// read reads all tasks through the questions people ask.
func (w *world) read(t *testing.T) snapshot {
	t.Helper()
	all := snapshot{}
	for f := (store.Filter{Limit: 1000}); ; {
		tasks, err := w.Store.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) == 0 {
			return all
		}
		for _, task := range tasks {
			attempts, err := w.Store.Attempts(t.Context(), task.ID)
			if err != nil {
				t.Fatal(err)
			}
			all[task.ID] = store.Record{Task: w.task(t, task.ID), Attempts: attempts}
		}
		f.Before = tasks[len(tasks)-1].ID
	}
}

// carried checks that a snapshot of the target is what one of the source should have become.
func (before snapshot) carried(t *testing.T, after snapshot) {
	t.Helper()
	for id, was := range before {
		got, ok := after[id]
		if !ok {
			t.Errorf("task %s was lost: %+v", id, was.Task)
			continue
		}
		want := store.Record{Task: was.Task}
		for _, a := range was.Attempts {
			a.Task, a.Run = want.ID, 0
			want.Attempts = append(want.Attempts, a)
		}
		if len(got.Attempts) == 0 {
			got.Attempts = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the task is\n%+.2000v, want\n%+.2000v", got, want)
		}
	}
}

// migrateBackend runs the command from a file to these servers.
func (w *world) migrateBackend(t *testing.T, from *world, flags ...string) (stdout, stderr string, code int) {
	t.Helper()
	return w.run(t, append([]string{"migrate-backend", "--from", from.databaseURL, "--to", w.databaseURL}, flags...)...)
}

// awkward are payloads that something on the way might trip over.
func awkward() []json.RawMessage {
	return []json.RawMessage{
		json.RawMessage(`null`), json.RawMessage(`{ "b":1,  "a":"é\u0000\ud800\"\\ {x,\"y\"}", "b":2e400 }`),
		json.RawMessage(`"日本語 \u2028 ` + "\u2028" + ` 🙂"`), json.RawMessage(`[` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `]`),
		json.RawMessage(`"` + strings.Repeat("big ", 200_000) + `"`), json.RawMessage(`-0.0000000000000000000000000001`),
	}
}

// switchable is a target whose answer can be changed.
func switchable(t *testing.T) (*target, func(answer func(call) int)) {
	var current atomic.Pointer[func(call) int]
	tg := newTarget(t, func(c call) int { return (*current.Load())(c) })
	return tg, func(answer func(call) int) { current.Store(&answer) }
}

// population is what the tasks of a file are that has seen everything.
type population struct {
	dead, running, ready []holdfast.TaskID
	done                 int
}

// populate makes tasks in every state, with the help of a server that is killed with kill -9 in the end.
func (w *world) populate(t *testing.T, tg *target, answer func(func(call) int)) (m population) {
	t.Helper()
	answer(func(call) int { return 200 })
	doomed := w.serve(t, nil)
	m.done = len(w.enqueue(t, 20, deliver(tg)))
	w.awaitCount(t, 30*time.Second, holdfast.Done, 20)

	answer(func(call) int { return 500 })
	mortal := deliver(tg)
	mortal.MaxAttempts, mortal.Lane = 3, "slow"
	m.dead = w.enqueue(t, 6, mortal)
	w.awaitCount(t, 30*time.Second, holdfast.Dead, 6)
	w.move(t, holdfast.EventArchive, m.dead[5])
	unknown := w.enqueue(t, 1, holdfast.NewTask{Type: "nobody.knows"})
	w.awaitTask(t, 30*time.Second, unknown[0], "parked", func(task holdfast.Task) bool { return task.Parked != "" })

	answer(func(c call) int { <-c.ctx.Done(); return 500 })
	m.running = w.enqueue(t, 5, deliver(tg))
	w.awaitCount(t, 30*time.Second, holdfast.Running, 5)
	doomed.signal(syscall.SIGKILL)
	doomed.exit(20 * time.Second)

	m.ready = w.enqueue(t, 10, deliver(tg))
	for i, payload := range awkward() {
		task := holdfast.NewTask{Type: "odd", Lane: "slow", Payload: payload, Unique: fmt.Sprintf("ключ '\"\\ %d", i), Delay: time.Duration(i+1) * time.Hour}
		w.enqueue(t, 1, task)
	}
	w.enqueue(t, 1, holdfast.NewTask{Type: "odd", At: time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)})
	w.move(t, holdfast.EventCancel, w.enqueue(t, 1, holdfast.NewTask{Type: "odd", Delay: time.Hour})[0])
	return m
}

// A file with tasks in every state, whose server was killed, is carried to servers: every field of
// every task is what it was, but for those that were running, which are judged as a janitor would. Then the servers
// finish what was waiting, and dead tasks can be sent again.
func TestMoveCarriesEveryTaskAsItIs(t *testing.T) {
	t.Parallel()
	servers, file := newWorld(t), newFile(t)
	tg, answer := switchable(t)
	m := file.populate(t, tg, answer)
	before := file.read(t)
	out, problems, code := servers.migrateBackend(t, file)
	if code != 0 || !strings.Contains(problems, fmt.Sprintf("carried %d tasks", len(before))) || !strings.Contains(problems, "the ids are what they were") {
		t.Fatalf("exit code %d: %s%s", code, out, problems)
	}
	t.Logf("%s%s", out, problems)
	after := servers.read(t)
	if len(after) != len(before) {
		t.Errorf("%d tasks became %d", len(before), len(after))
	}
	file.read(t).carried(t, after) // what the command made of them
	for _, id := range m.running {
		got := after[id]
		if got.State != holdfast.Ready || got.Crashes != 1 || got.Attempt != 2 || got.Run != 0 || len(got.Attempts) != 1 {
			t.Errorf("a task that was running is %+v", got)
		}
		delete(before, id)
	}
	before.carried(t, after)

	answer(func(call) int { return 200 })
	servers.serve(t, nil)
	total := m.done + len(m.ready) + len(m.running)
	servers.awaitCount(t, 60*time.Second, holdfast.Done, int64(total))
	if _, problems, code := servers.run(t, "dead", "retry", m.dead[0].String()); code != 0 {
		t.Errorf("dead retry: exit code %d: %s", code, problems)
	}
	servers.awaitTask(t, 30*time.Second, m.dead[0], "done", in(holdfast.Done))
	servers.enqueue(t, 1, deliver(tg))
	servers.awaitCount(t, 30*time.Second, holdfast.Done, int64(total+2))

	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"enqueue", "--type", "odd"}, {"dead", "retry", m.dead[1].String()}} {
		_, problems, code := file.run(t, args...)
		if code != 4 || !strings.Contains(problems, "were carried to postgres://") {
			t.Errorf("%v on the file: exit code %d: %s", args, code, problems)
		}
	}
	if out, problems, code := file.run(t, "dead", "list", "-o", "jsonl"); code != 0 || strings.Count(out, "\n") != 5 {
		t.Errorf("dead list on the file: exit code %d: %s%s", code, out, problems)
	}
}

// move does what a person asks of a task.
func (w *world) move(t *testing.T, event holdfast.Event, id holdfast.TaskID) {
	t.Helper()
	if _, err := w.Move(t.Context(), id, event); err != nil {
		t.Fatal(err)
	}
}

// fill stores n tasks of which some have unique keys, some are due later and some are dead.
func (w *world) fill(t *testing.T, n int) {
	t.Helper()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = holdfast.NewTask{Type: "fill", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
		if i%3 == 0 {
			tasks[i].Unique = fmt.Sprint("key ", i)
		}
		if i%7 == 0 {
			tasks[i].Delay = time.Hour
		}
	}
	p := w.Producer(nil)
	defer p.Close()
	if _, err := p.EnqueueMany(t.Context(), tasks); err != nil {
		t.Fatal(err)
	}
	_, err := w.MoveAll(t.Context(), store.Filter{States: []holdfast.State{holdfast.Ready}, Limit: n / 10}, holdfast.EventCancel, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
}

// taskCount counts all tasks.
func (w *world) taskCount(t *testing.T) int64 {
	t.Helper()
	counts, err := w.Store.Count(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return store.TransferCounts{States: counts}.Tasks()
}

// sameRecords compares the tasks of the file with those of the servers, without their attempts.
func (w *world) sameRecords(t *testing.T, servers *world) {
	t.Helper()
	var differ int
	for after := holdfast.TaskID(0); ; {
		records, err := w.Store.(app.Source).Records(t.Context(), after, 1000, 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			break
		}
		ids := make([]holdfast.TaskID, len(records))
		for i, p := range records {
			ids[i] = p.ID
		}
		tasks, err := servers.Store.TasksByID(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		there := map[holdfast.TaskID]holdfast.Task{}
		for _, task := range tasks {
			there[task.ID] = task
		}
		for _, p := range records {
			p.Payload = nil
			if !reflect.DeepEqual(there[p.ID], p.Task) {
				differ++
			}
		}
		after = ids[len(ids)-1]
	}
	if differ > 0 {
		t.Errorf("%d tasks are not what they were", differ)
	}
}
