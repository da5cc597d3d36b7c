package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// run runs a holdfast command as another process and returns its output and its exit code.
func (w *world) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(w.environment(), "GORACE=atexit_sleep_ms=0"), &out, &problems
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

// The only process that serves a file is killed with kill -9 in the middle of 1,000 deliveries and started again. All
// tasks finish. The interrupted tasks start again at once, because the lock on the file proves that its owner has
// ended.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	const n, part = 1000, 300
	var called atomic.Int64
	dead := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if called.Add(1) > part { // keep requests in flight until the process has ended, so that there are interrupted tasks
			select {
			case <-dead:
			case <-c.ctx.Done():
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-c.ctx.Done():
		}
		return 200
	})
	victim := w.serve(t, nil)
	w.enqueue(t, n, httpTask(tg))
	tg.await(t, fmt.Sprintf("more than %d calls have begun", part+20), func(calls []call) bool { return len(calls) > part+20 })
	killed := time.Now()
	victim.signal(syscall.SIGKILL)
	victim.exit()
	close(dead)
	before, _ := tg.snapshot()
	w.serve(t, nil)
	w.awaitCount(t, holdfast.Done, n)

	calls, _ := tg.snapshot()
	groups := byTask(calls)
	if len(groups) != n {
		t.Errorf("%d of %d tasks reached the target", len(groups), n)
	}
	interrupted, twice, slowest := 0, 0, time.Duration(0)
	for id, cs := range groups {
		attempts := map[int]bool{}
		for _, c := range cs {
			if attempts[c.attempt] {
				t.Errorf("task %s ran attempt %d twice", id, c.attempt)
			}
			attempts[c.attempt] = true
		}
		switch {
		case len(cs) == 1:
		case cs[0].end.IsZero() || cs[0].aborted:
			interrupted++
			slowest = max(slowest, cs[1].begin.Sub(killed))
		default:
			twice++
			if killed.Sub(cs[0].end) > slow.Times(10*time.Second) {
				t.Errorf("task %s was delivered %s before the kill, but ran again", id, killed.Sub(cs[0].end))
			}
		}
	}
	t.Logf("killed after %d calls: %d were interrupted and started again at most %s after the kill, %d were answered right before the kill and ran again",
		len(before), interrupted, slowest.Round(time.Millisecond), twice)
	if interrupted == 0 || len(before) == n {
		t.Error("no task was in flight at the kill, so this test proves nothing")
	}
}

// Other processes use the file while a server serves it. The tasks that they enqueue start, and their other commands
// act on the tasks of the server. `make recovery` measures how soon such a task starts.
func TestOtherProcessesWorkOnTheFile(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	answer := make(chan int, 100)
	tg := newTarget(t, func(call) int { return <-answer })
	w.serve(t, []string{"HOLDFAST_DEFAULTS_MAX_ATTEMPTS=1"})
	payload, err := json.Marshal(map[string]string{"url": tg.URL})
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 3
	var delays []time.Duration
	for n := range rounds {
		answer <- 200
		out, problems, code := w.run(t, "enqueue", "--type", "http", "--payload", string(payload))
		returned := time.Now()
		if code != 0 || problems != "" {
			t.Fatalf("enqueue: exit code %d: %s", code, problems)
		}
		if strings.TrimSpace(out) == "" {
			t.Fatal("enqueue printed no id")
		}
		calls := tg.await(t, "the task has started", func(calls []call) bool { return len(calls) == n+1 })
		delays = append(delays, calls[n].begin.Sub(returned))
		w.awaitCount(t, holdfast.Done, int64(n+1))
	}
	t.Logf("times from the return of holdfast enqueue to the start of the task: %v", delays)

	answer <- 500
	out, _, _ := w.run(t, "enqueue", "--type", "http", "--payload", string(payload), "--max-attempts", "1")
	id := strings.TrimSpace(out)
	w.awaitCount(t, holdfast.Dead, 1)
	if out, _, code := w.run(t, "dead", "list", "-o", "jsonl"); code != 0 || !strings.Contains(out, `"id":"`+id+`"`) {
		t.Errorf("dead list: exit code %d: %s", code, out)
	}
	answer <- 200
	if _, problems, code := w.run(t, "dead", "retry", id); code != 0 {
		t.Errorf("dead retry: exit code %d: %s", code, problems)
	}
	if _, problems, code := w.run(t, "task", "wait", id, "--timeout", "30s"); code != 0 {
		t.Errorf("task wait: exit code %d: %s", code, problems)
	}
	if out, problems, code := w.run(t, "queue", "list"); code != 0 || problems != "" || !strings.Contains(out, "default") {
		t.Errorf("queue list: exit code %d: %s %s", code, out, problems)
	}
	if _, problems, code := w.run(t, "topology", "check"); code != 2 || !strings.Contains(problems, "inside holdfast serve") {
		t.Errorf("topology check: exit code %d: %s", code, problems)
	}
}

// A second server on one file exits with an error that names the file. The first server is not affected.
func TestTwoServersOnOneFile(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	tg := newTarget(t, func(call) int { return 200 })
	first := w.serve(t, nil)
	_, problems, code := w.run(t, "serve", "--listen", "127.0.0.1:0")
	if code != 4 || strings.Count(problems, "holdfast:") != 1 || !strings.Contains(problems, "holdfast.db") {
		t.Errorf("exit code %d: %s", code, problems)
	}
	w.enqueue(t, 20, httpTask(tg))
	w.awaitCount(t, holdfast.Done, 20)
	first.signal(syscall.SIGTERM)
	if code := first.exit(); code != 0 {
		t.Errorf("a drained server exits with %d", code)
	}
	w.serve(t, nil)
	w.enqueue(t, 20, httpTask(tg))
	w.awaitCount(t, holdfast.Done, 40)
}

// A person deletes or empties the files beside the database while a server uses it. The server and the command line
// accept no task that a restart would not find, and the server is not ready. A deleted file costs no accepted task,
// whatever ends the server.
func TestFilesDeletedBesideAServedFile(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string) error{
		"both deleted": func(path string) error { return errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm")) },
		"-wal deleted": func(path string) error { return os.Remove(path + "-wal") },
		"-shm deleted": func(path string) error { return os.Remove(path + "-shm") },
		"-wal emptied": func(path string) error { return os.Truncate(path+"-wal", 0) },
	} {
		for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(name+", "+end.String(), func(t *testing.T) {
				t.Parallel()
				w := newFile(t)
				if err := w.Close(); err != nil { // so that this process has no files open, and all tables are in the main file
					t.Fatal(err)
				}
				w.lease = shortLease() // a stop waits so long for the results that cannot be stored
				enqueue := func() (accepted bool, text string) {
					_, text, code := w.run(t, "enqueue", "--type", "kept", "--payload", "{}")
					return code == 0, text
				}
				server := w.serve(t, nil, "--roles", "worker,janitor,api")
				post := func() int { // through the API of the server
					url := strings.Replace(server.ready, "/healthz/ready", "/api/v1/tasks", 1)
					answer, err := http.Post(url, "application/json", strings.NewReader(`{"type":"kept","payload":{}}`))
					if err != nil {
						t.Fatal(err)
					}
					_ = answer.Body.Close()
					return answer.StatusCode
				}
				accepted := 0
				for range 3 {
					if ok, text := enqueue(); !ok {
						t.Error(text)
					}
					if status := post(); status != http.StatusCreated {
						t.Errorf("the API answers %d", status)
					}
					accepted += 2
				}
				_, path, _ := strings.Cut(w.databaseURL, ":")
				if err := harm(path); err != nil {
					t.Fatal(err)
				}
				if status := post(); status != http.StatusServiceUnavailable {
					t.Errorf("the API answers %d", status)
				}
				if ok, text := enqueue(); ok || !strings.Contains(text, path+"-") || !strings.Contains(text, "stop every process") {
					t.Errorf("enqueue was accepted: %t, %s", ok, text)
				}
				pollFor(t, slow.Patience(), func() string { return "the server is ready" }, func(ctx context.Context) bool {
					return strings.Contains(readiness(ctx, server.ready), path+"-")
				})
				pollFor(t, slow.Patience(), func() string { return "the server logs nothing" }, func(context.Context) bool {
					return server.logged("file beside the database is lost")
				})
				if report, _, code := w.run(t, "doctor"); code == 0 || !strings.Contains(report, path+"-") {
					t.Errorf("the doctor exits with %d: %s", code, report)
				}
				server.signal(end)
				server.exit()
				w.serve(t, nil)
				out, problems, _ := w.run(t, "task", "list", "--type", "kept", "-o", "json")
				var list struct{ Tasks []json.RawMessage }
				if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Tasks) != accepted && name != "-wal emptied" {
					t.Errorf("after a restart there are %d of %d tasks: %v, %s%s", len(list.Tasks), accepted, err, out, problems)
				}
				if ok, text := enqueue(); !ok {
					t.Error(text)
				}
			})
		}
	}
}
