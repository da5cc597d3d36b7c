package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// snapshot contains every task of a store with its attempts.
type snapshot map[holdfast.TaskID]store.Record

// snapshot reads all tasks with the queries of the command line.
func (w *world) snapshot(t *testing.T) snapshot {
	t.Helper()
	all := snapshot{}
	for f := (store.Filter{Limit: 1000}); ; {
		page, err := w.Store.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.Tasks {
			attempts, err := w.Store.Attempts(t.Context(), task.ID)
			if err != nil {
				t.Fatal(err)
			}
			for i := range attempts {
				attempts[i].Worker = 0 // an export contains no workers
			}
			whole, err := w.Backend.Task(t.Context(), task.ID) // the task with its idempotency key
			if err != nil {
				t.Fatal(err)
			}
			all[task.ID] = store.Record{Task: whole, Attempts: attempts}
		}
		if f.Before = page.Next; f.Before == 0 {
			return all
		}
	}
}

// oddPayloads returns payloads that an encoder could change: whitespace, escapes, large numbers, deep nesting.
func oddPayloads() []json.RawMessage {
	return []json.RawMessage{
		json.RawMessage(`null`), json.RawMessage(`{ "b":1,  "a":"é\u0000\ud800\"\\ {x,\"y\"}", "b":2e400 }`),
		json.RawMessage(`"日本語 \u2028 ` + "\u2028" + ` 🙂"`), json.RawMessage(`[` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `]`),
		json.RawMessage(`"` + strings.Repeat("big ", 200_000) + `"`), json.RawMessage(`-0.0000000000000000000000000001`),
		json.RawMessage("{\n  \"<lines>\": \"&\"\r\n}"),
	}
}

// switchable returns a target, and a function that sets how the target answers.
func switchable(t *testing.T) (*target, func(answer func(call) int)) {
	var current atomic.Pointer[func(call) int]
	tg := newTarget(t, func(c call) int { return (*current.Load())(c) })
	return tg, func(answer func(call) int) { current.Store(&answer) }
}

// population lists the tasks that populate has stored.
type population struct {
	dead, crashed, ready []holdfast.TaskID
	done                 int // number of done tasks
}

// populate creates tasks in every state. It kills one server process with kill -9 and stops another one.
func (w *world) populate(t *testing.T, tg *target, answer func(func(call) int)) (p population) {
	t.Helper()
	answer(func(call) int { return 200 })
	victim := w.serve(t, nil)
	p.done = len(w.enqueue(t, 20, httpTask(tg)))
	w.awaitCount(t, holdfast.Done, 20)

	answer(func(call) int { return 500 })
	failing := httpTask(tg)
	failing.MaxAttempts, failing.Queue = 3, "slow"
	p.dead = w.enqueue(t, 6, failing)
	w.awaitCount(t, holdfast.Dead, 6)
	w.move(t, store.ActionArchive, p.dead[5])
	unknown := w.enqueue(t, 1, holdfast.NewTask{Type: "unknown"})
	w.awaitTask(t, unknown[0], "parked", func(task holdfast.Task) bool { return task.Parked != "" })

	answer(func(c call) int { <-c.ctx.Done(); return 500 })
	p.crashed = w.enqueue(t, 5, httpTask(tg))
	w.awaitCount(t, holdfast.Running, 5)
	victim.signal(syscall.SIGKILL)
	victim.exit()

	// In the store, the worker is live and its tasks are running until a janitor has fenced it.
	if out, problems, code := w.run(t, "export"); code != 4 || strings.Contains(out, `{"end"`) || !strings.Contains(problems, "is live") {
		t.Errorf("export after kill -9: exit code %d: %s", code, problems)
	}
	answer(func(call) int { return 200 })
	second := w.serve(t, nil)
	w.awaitCount(t, holdfast.Done, int64(p.done+len(p.crashed)))
	if _, problems, code := w.run(t, "export"); code != 4 || !strings.Contains(problems, "stop every holdfast serve of this store with SIGTERM") {
		t.Errorf("export while a worker is live: exit code %d: %s", code, problems)
	}
	second.signal(syscall.SIGTERM)
	second.exit()

	p.ready = w.enqueue(t, 10, httpTask(tg))
	for i, payload := range oddPayloads() {
		task := holdfast.NewTask{Type: "odd", Queue: "slow", Payload: payload, Unique: fmt.Sprintf("ключ '\"\\ %d", i), Delay: time.Duration(i+1) * time.Hour}
		w.enqueue(t, 1, task)
	}
	w.enqueue(t, 1, holdfast.NewTask{Type: "odd", At: time.Date(2250, 12, 31, 23, 59, 59, 999999000, time.UTC)})
	w.move(t, store.ActionCancel, w.enqueue(t, 1, holdfast.NewTask{Type: "odd", Delay: time.Hour})[0])
	return p
}

// move does what an operator requests for a task.
func (w *world) move(t *testing.T, action store.Action, id holdfast.TaskID) {
	t.Helper()
	if _, err := w.Act(t.Context(), store.Actor{}, id, action); err != nil {
		t.Fatal(err)
	}
}

// inBothDirections runs a test from a file to servers, and with all slow tests also from servers to a file.
func inBothDirections(t *testing.T, run func(t *testing.T, from, to *world)) {
	t.Parallel()
	t.Run("file to servers", func(t *testing.T) {
		t.Parallel()
		run(t, newFile(t), newWorld(t))
	})
	t.Run("servers to file", func(t *testing.T) {
		slow.Skip(t)
		t.Parallel()
		run(t, newWorld(t), newFile(t))
	})
}

// A store with tasks in every state is exported, and the export is imported into a store of the other kind. Every field
// of every task is unchanged. Then the new store finishes the waiting tasks, dead tasks can be retried, and new tasks
// have new ids.
func TestImportCarriesEveryTaskAsItIs(t *testing.T) {
	inBothDirections(t, func(t *testing.T, from, to *world) {
		tg, answer := switchable(t)
		p := from.populate(t, tg, answer)
		before := from.snapshot(t)
		calls, _ := tg.snapshot()
		delivered := byTask(calls)
		path := filepath.Join(t.TempDir(), "tasks.jsonl")
		if out, problems, code := from.run(t, "export", "-o", path); code != 0 || out != "" || !strings.Contains(problems, fmt.Sprintf("exported %d tasks", len(before))) {
			t.Fatalf("export: exit code %d: %s%s", code, out, problems)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the export is %+v, %v", info, err)
		}
		out, problems, code := to.run(t, "import", path)
		if code != 0 || !strings.Contains(problems, fmt.Sprintf("imported %d tasks, skipped 0 that the store already had; the numbers and checksums of all states match", len(before))) {
			t.Fatalf("import: exit code %d: %s%s", code, out, problems)
		}
		t.Logf("%s%s", out, problems)
		after := to.snapshot(t)
		for id, want := range before {
			if got := after[id]; !reflect.DeepEqual(got, want) {
				t.Errorf("the task is\n%+.2000v, want\n%+.2000v", got, want)
			}
		}
		if len(after) != len(before) {
			t.Errorf("%d tasks were exported, but the new store has %d", len(before), len(after))
		}

		served := to.serve(t, nil)
		total := p.done + len(p.crashed) + len(p.ready)
		to.awaitCount(t, holdfast.Done, int64(total))
		if _, problems, code := to.run(t, "import", path); code != 4 || !strings.Contains(problems, "is live") {
			t.Errorf("import while a worker is live: exit code %d: %s", code, problems)
		}
		if _, problems, code := to.run(t, "dead", "retry", p.dead[0].String()); code != 0 {
			t.Errorf("dead retry: exit code %d: %s", code, problems)
		}
		to.awaitTask(t, p.dead[0], "done", in(holdfast.Done))
		if id := to.enqueue(t, 1, httpTask(tg))[0]; before[id].ID != 0 {
			t.Errorf("the id %s was used again", id)
		}
		to.awaitCount(t, holdfast.Done, int64(total+2))
		calls, _ = tg.snapshot()
		for id, calls := range byTask(calls) {
			if before[id].State == holdfast.Done && len(calls) != len(delivered[id]) {
				t.Errorf("task %s was done before the export, but was delivered %d more times", id, len(calls)-len(delivered[id]))
			}
		}
		served.signal(syscall.SIGTERM)
		served.exit()
		// The tasks have changed since, so the store differs from the file.
		if _, problems, code := to.run(t, "import", path); code != 7 || !strings.Contains(problems, "the store differs from the export") {
			t.Errorf("second import: exit code %d: %s", code, problems)
		}
	})
}

// fill stores n tasks. Some of them have unique keys, some are delayed, and some are canceled.
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
	w.operate(t, operate.Request{Action: store.ActionCancel, Filter: store.Filter{States: []holdfast.State{holdfast.Ready}}, Limit: int64(n / 10)})
}

// taskLines returns the lines of an export without the header, which has the time of the export.
func (w *world) taskLines(t *testing.T) string {
	t.Helper()
	out, problems, code := w.run(t, "export")
	if code != 0 {
		t.Fatalf("export: exit code %d: %s", code, problems)
	}
	_, lines, _ := strings.Cut(out, "\n")
	return lines
}

// holdfast import is killed with kill -9 at random times and started again until it succeeds. It reads from a file or
// from a pipe.
func TestImportSurvivesKills(t *testing.T) {
	slow.Skip(t)
	inBothDirections(t, func(t *testing.T, from, to *world) {
		path, err := binary()
		if err != nil {
			t.Fatal(err)
		}
		from.fill(t, 6000)
		out, problems, code := from.run(t, "export")
		if code != 0 {
			t.Fatalf("export: exit code %d: %s", code, problems)
		}
		file := filepath.Join(t.TempDir(), "tasks.jsonl")
		if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
		kills, resumed := 0, 0
		for limit := 300 * time.Millisecond; ; limit += limit / 4 {
			cmd := exec.Command(path, "import", file)
			if kills%2 == 1 {
				cmd = exec.Command(path, "import", "-")
				cmd.Stdin = strings.NewReader(out)
			}
			cmd.Env = to.environment()
			var problems bytes.Buffer
			cmd.Stderr = &problems
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(limit/2+rand.N(limit/2), func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			killer.Stop()
			if err == nil {
				break
			}
			if cmd.ProcessState.Exited() {
				t.Fatalf("after %d kills: %v: %s", kills, err, problems.String())
			}
			kills++
			if some, err := to.Store.List(t.Context(), store.Filter{Limit: 1}); err != nil {
				t.Fatal(err)
			} else if len(some.Tasks) > 0 {
				resumed++
			}
		}
		t.Logf("%d kills, %d of them after some tasks had been stored", kills, resumed)
		if _, problems, code := to.run(t, "import", file); code != 0 || !strings.Contains(problems, "imported 0 tasks, skipped 6000 that the store already had") {
			t.Errorf("last import: exit code %d: %s", code, problems)
		}
		if to.taskLines(t) != from.taskLines(t) {
			t.Error("the stores differ")
		}
	})
}
