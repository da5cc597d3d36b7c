package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// run runs one holdfast command to its end, as another process beside the server, and returns what it
// printed, its messages and its exit code.
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

// The one process that serves a file is killed with kill -9 in the middle of 2,000 deliveries and started
// again: everything finishes, and what was in flight starts again at once, for the lock on the file
// proves that its owner is gone.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	const n, part = 2000, 600
	var called atomic.Int64
	dead := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		if called.Add(1) > part { // in flight until the process is gone, or there may be nothing to start again
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
	doomed := w.serve(t, nil)
	w.enqueue(t, n, deliver(tg))
	tg.await(t, 60*time.Second, "a part is delivered", func(calls []call) bool { return len(calls) > part+20 })
	killed := time.Now()
	doomed.signal(syscall.SIGKILL)
	doomed.exit(time.Minute)
	close(dead)
	before, _ := tg.snapshot()
	w.serve(t, nil)
	w.awaitCount(t, 120*time.Second, holdfast.Done, n)

	calls, _ := tg.snapshot()
	groups := byTask(calls)
	if len(groups) != n {
		t.Errorf("%d of %d tasks reached the target", len(groups), n)
	}
	broken, twice, slowest := 0, 0, time.Duration(0)
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
			broken++
			slowest = max(slowest, cs[1].begin.Sub(killed))
		default:
			twice++
			if killed.Sub(cs[0].end) > 10*time.Second {
				t.Errorf("task %s was delivered %s before the kill and ran again", id, killed.Sub(cs[0].end))
			}
		}
	}
	t.Logf("killed after %d calls: %d were broken off and started again at most %s after the kill, %d were answered as it died and ran again",
		len(before), broken, slowest.Round(time.Millisecond), twice)
	if broken == 0 || len(before) == n {
		t.Error("nothing was in flight at the kill: this test proves nothing")
	}
}

// Other processes work on the file while it is served: what they enqueue starts, and what they look at, cancel and send
// again is what the server sees. How soon it starts is measured by make recovery.
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
		calls := tg.await(t, 30*time.Second, "the task has started", func(calls []call) bool { return len(calls) == n+1 })
		delays = append(delays, calls[n].begin.Sub(returned))
		w.awaitCount(t, 30*time.Second, holdfast.Done, int64(n+1))
	}
	t.Logf("tasks started so long after holdfast enqueue had returned: %v", delays)

	answer <- 500
	out, _, _ := w.run(t, "enqueue", "--type", "http", "--payload", string(payload), "--max-attempts", "1")
	id := strings.TrimSpace(out)
	w.awaitCount(t, 30*time.Second, holdfast.Dead, 1)
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

// A second server on one file is refused, says who has it, and harms nothing.
func TestTwoServersOnOneFile(t *testing.T) {
	t.Parallel()
	w := newFile(t)
	tg := newTarget(t, func(call) int { return 200 })
	first := w.serve(t, nil)
	_, problems, code := w.run(t, "serve", "--listen", "127.0.0.1:0")
	if code != 4 || strings.Count(problems, "holdfast:") != 1 || !strings.Contains(problems, "holdfast.db") {
		t.Errorf("exit code %d: %s", code, problems)
	}
	w.enqueue(t, 20, deliver(tg))
	w.awaitCount(t, 30*time.Second, holdfast.Done, 20)
	first.signal(syscall.SIGTERM)
	if code := first.exit(time.Minute); code != 0 {
		t.Errorf("a drained server exits with %d", code)
	}
	w.serve(t, nil)
	w.enqueue(t, 20, deliver(tg))
	w.awaitCount(t, 30*time.Second, holdfast.Done, 40)
}
