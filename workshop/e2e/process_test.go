package e2e

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/holdfastq/holdfast/workshop/rig"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// programs is the folder of the programs that are built for the tests.
var programs string

// children are the programs that tests run as processes of the test binary, by the variable that has their settings.
var children = map[string]func(settings string) error{
	indexerVariable: runIndexer, scannerVariable: runScanner, recorderVariable: runRecorder,
}

func TestMain(m *testing.M) {
	for variable, run := range children {
		if settings := os.Getenv(variable); settings != "" {
			fmt.Fprintln(os.Stderr, run(settings))
			os.Exit(1)
		}
	}
	var err error
	if programs, err = os.MkdirTemp("", "holdfast-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs) // leftover files do no harm
	os.Exit(code)
}

// child is a process of the test binary that runs one of children.
type child struct {
	cmd  *exec.Cmd
	kill func() // with kill -9
}

// startChild starts a child in the world. The end of the test kills it. A child that ends by itself fails the test.
func (w *world) startChild(t *testing.T, variable, settings string, env ...string) *child {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	c := &child{cmd: exec.Command(path)}
	c.cmd.Env, c.cmd.Stderr = slices.Concat(w.environment(), env, []string{variable + "=" + settings}), &log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.kill = sync.OnceFunc(func() {
		_ = c.cmd.Process.Kill() // Wait reports a process that had ended before
		if err := c.cmd.Wait(); err == nil || c.cmd.ProcessState.Exited() || strings.Contains(log.String(), "DATA RACE") {
			t.Errorf("a child of %s ended: %v\n%s", variable, err, log.String())
		}
	})
	t.Cleanup(c.kill)
	return c
}

// marshal returns the JSON of the settings of a child.
func marshal(t *testing.T, settings any) string {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// binary builds the holdfast program once and returns its path. If the tests use the race detector, so does the
// program.
var binary, withoutDetector = program("holdfast", raceFlags...), program("holdfast-fast")

// fastBinary is binary without the race detector, for a test with much work.
func fastBinary() (string, error) {
	if len(raceFlags) == 0 {
		return binary()
	}
	return withoutDetector()
}

func program(name string, flags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(programs, name)
		args := slices.Concat([]string{"build"}, flags, []string{"-o", path, "github.com/holdfastq/holdfast/cmd/holdfast"})
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build holdfast: %w\n%s", err, out)
		}
		return path, nil
	})
}

// process is a process of holdfast serve. It ends with the test.
type process struct {
	*rig.Process
	t     *testing.T
	ready string // URL of the readiness endpoint
}

// serve starts a process with further environment variables and flags, and waits until the process is ready.
func (w *world) serve(t *testing.T, settings []string, args ...string) *process {
	t.Helper()
	p := w.spawn(t, settings, args...)
	p.awaitReady()
	return p
}

// workerFlags returns the flags of a worker process. On a file there is only one process, which has all roles.
func (w *world) workerFlags() []string {
	if w.embedded {
		return nil
	}
	return []string{"--roles", "worker"}
}

// spawn is like serve, but waits only until the process serves its HTTP endpoints.
func (w *world) spawn(t *testing.T, settings []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return w.spawnProgram(t, path, settings, args...)
}

// spawnProgram is like spawn, with the program at path.
func (w *world) spawnProgram(t *testing.T, path string, settings []string, args ...string) *process {
	t.Helper()
	rig.Deploy(t)
	started, err := rig.Serve(path, append(w.environment(), settings...), args...)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: started, t: t}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of holdfast serve %v:\n%s", args, strings.Join(p.Log(60), "\n"))
		}
		if p.Logged("DATA RACE") {
			t.Errorf("a data race in holdfast serve %v:\n%s", args, strings.Join(p.Log(200), "\n"))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
	defer cancel()
	base, err := p.Endpoints(ctx)
	if err != nil {
		t.Fatalf("holdfast serve %v: %v", args, err)
	}
	p.ready = base + "/healthz/ready"
	return p
}

func (p *process) tail(n int) []string { return p.Log(n) }

// logged reports whether a line of the log contains text.
func (p *process) logged(text string) bool { return p.Logged(text) }

func (p *process) signal(sig syscall.Signal) { p.Signal(sig) }

// awaitReady polls the readiness endpoint.
func (p *process) awaitReady() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), slow.Patience())
	defer cancel()
	if err := p.Ready(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// freeze sends SIGSTOP and returns when all threads of the process are stopped.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	awaitStopped(p.t, p.PID())
}

// awaitStopped waits until all threads of a process are stopped.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	threads := fmt.Sprintf("/proc/%d/task", pid)
	poll(t, func() string { return "the process is not stopped" }, func(context.Context) bool {
		entries, err := os.ReadDir(threads)
		return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
			stat, err := os.ReadFile(filepath.Join(threads, e.Name(), "stat"))
			_, after, _ := strings.Cut(string(stat), ") ")
			return err != nil || !strings.HasPrefix(after, "T")
		})
	})
}

// exit waits for the process to end and returns its exit code.
func (p *process) exit() int {
	p.t.Helper()
	limit := slow.Patience()
	select {
	case <-p.Ended():
		return p.ExitCode()
	case <-time.After(limit):
		p.t.Fatalf("the process did not end within %s", limit)
		return -1
	}
}

// poll calls done until it returns true. If that takes too long, it fails the test with the text that problem returns.
// Use it only for conditions that no event reports.
func poll(t *testing.T, problem func() string, done func(context.Context) bool) {
	t.Helper()
	pollFor(t, slow.Patience(), problem, done)
}

// pollFor is poll for an event that may take longer than others.
func pollFor(t *testing.T, limit time.Duration, problem func() string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %s: %s", limit, problem())
		}
	}
}
