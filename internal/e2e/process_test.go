package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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

// process is one running holdfast serve.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	ready   string // the URL of its readiness
	ended   chan struct{}
	address chan string

	mu   sync.Mutex
	logs []string
}

var servedAt = regexp.MustCompile(`serving health and metrics.*address="?([0-9.:]+)`)

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
	p := &process{t: t, ended: make(chan struct{}), address: make(chan string, 1)}
	p.cmd = exec.Command(path, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Env = append(w.environment(), settings...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mu.Lock()
			p.logs = append(p.logs, lines.Text())
			p.mu.Unlock()
			if found := servedAt.FindStringSubmatch(lines.Text()); found != nil {
				p.address <- found[1]
			}
		}
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			t.Logf("log of serve %v:\n%s", args, strings.Join(p.tail(60), "\n"))
		}
		if p.logged("DATA RACE") {
			t.Errorf("a data race in serve %v:\n%s", args, strings.Join(p.tail(200), "\n"))
		}
	})
	select {
	case address := <-p.address:
		p.ready = "http://" + address + "/healthz/ready"
	case <-p.ended:
		t.Fatalf("serve %v ended at once:\n%s", args, strings.Join(p.tail(20), "\n"))
	case <-time.After(60 * time.Second):
		t.Fatalf("serve %v does not serve its endpoints", args)
	}
	return p
}

func (p *process) tail(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.logs[max(0, len(p.logs)-n):])
}

// logged reports whether a line of the log contains text.
func (p *process) logged(text string) bool {
	return slices.ContainsFunc(p.tail(1<<20), func(line string) bool { return strings.Contains(line, text) })
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// awaitReady polls the readiness endpoint.
func (p *process) awaitReady(limit time.Duration) {
	p.t.Helper()
	last := ""
	poll(p.t, limit, func() string { return "the process is not ready: " + last }, func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.ready, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			last = err.Error()
			return false
		}
		defer response.Body.Close()
		last = response.Status
		return response.StatusCode == http.StatusOK
	})
}

// freeze stops the process and returns when every thread of it is stopped.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	threads := fmt.Sprintf("/proc/%d/task", p.cmd.Process.Pid)
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
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
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
