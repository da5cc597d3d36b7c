package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/rig"
)

// programs is the folder of what is built for the tests.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "holdfast-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // what is left does no harm
	os.Exit(code)
}

// binary is the holdfast program, built once, and with the race detector if the tests have it.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "holdfast")
	args := slices.Concat([]string{"build"}, raceFlags, []string{"-o", path, "github.com/holdfastq/holdfast/cmd/holdfast"})
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build holdfast: %w\n%s", err, out)
	}
	return path, nil
})

// process is one running holdfast serve of a test.
type process struct {
	*rig.Process
	t     *testing.T
	ready string // the URL of its readiness
}

// serve starts a process and waits until it is ready. args are further flags, settings further
// environment.
func (w *world) serve(t *testing.T, settings []string, args ...string) *process {
	t.Helper()
	p := w.spawn(t, settings, args...)
	p.awaitReady(60 * time.Second)
	return p
}

// worker are the flags of a process that is killed in a test: a worker beside others, or on a
// file the one process there is.
func (w *world) worker() []string {
	if w.embedded {
		return nil
	}
	return []string{"--roles", "worker"}
}

// spawn starts a process and waits only until it serves its endpoints.
func (w *world) spawn(t *testing.T, settings []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return w.spawnProgram(t, path, settings, args...)
}

// spawnProgram is spawn with another program, which runs holdfast in the end.
func (w *world) spawnProgram(t *testing.T, path string, settings []string, args ...string) *process {
	t.Helper()
	started, err := rig.Serve(path, append(w.environment(), settings...), args...)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: started, t: t}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of serve %v:\n%s", args, strings.Join(p.Log(60), "\n"))
		}
		if p.Logged("DATA RACE") {
			t.Errorf("a data race in serve %v:\n%s", args, strings.Join(p.Log(200), "\n"))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	base, err := p.Endpoints(ctx)
	if err != nil {
		t.Fatalf("serve %v: %v", args, err)
	}
	p.ready = base + "/healthz/ready"
	return p
}

func (p *process) tail(n int) []string { return p.Log(n) }

// logged reports whether a line of the log contains text.
func (p *process) logged(text string) bool { return p.Logged(text) }

func (p *process) signal(sig syscall.Signal) { p.Signal(sig) }

// awaitReady polls the readiness endpoint.
func (p *process) awaitReady(limit time.Duration) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// freeze stops the process and returns when every thread of it is stopped.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	threads := fmt.Sprintf("/proc/%d/task", p.PID())
	poll(p.t, 10*time.Second, func() string { return "the process is not stopped" }, func(context.Context) bool {
		entries, err := os.ReadDir(threads)
		return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			stat, err := os.ReadFile(filepath.Join(threads, e.Name(), "stat"))
			_, after, _ := strings.Cut(string(stat), ") ")
			return err != nil || !strings.HasPrefix(after, "T")
		})
	})
}

// exit waits for the process to end and returns its exit code.
func (p *process) exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.Ended():
		return p.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("the process did not end within %s", limit)
		return -1
	}
}

// poll asks until the answer is yes. It is for what only servers know, which cannot
// tell us.
func poll(t *testing.T, limit time.Duration, what func() string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s: %s", limit, what())
		}
	}
}
