package benchmarks

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/workshop/slow"
)

// An idle holdfast serve on a file uses little memory and rarely wakes up. On a shared host, the processor time of the
// same work varies tenfold, so the test only logs it. The test limits the number of wakeups, which does not vary.
func TestAnIdleServerIsSmallAndQuiet(t *testing.T) {
	slow.Skip(t) // takes half a minute
	folder := t.TempDir()
	program := buildProgram(t)
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := exec.Command(program, "serve", "--listen", "127.0.0.1:0")
	server.Env = []string{"DATABASE_URL=sqlite:" + filepath.Join(folder, "holdfast.db")}
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	awaitReady(t, log.Name())
	const settling, measured = 4 * time.Second, 20 * time.Second
	<-time.After(settling)
	cpuBefore, wakesBefore := cpuTime(t, server.Process.Pid), wakes(t, server.Process.Pid)
	<-time.After(measured)
	cpuShare := float64(cpuTime(t, server.Process.Pid)-cpuBefore) / float64(measured)
	perSecond := float64(wakes(t, server.Process.Pid)-wakesBefore) / measured.Seconds()
	mib := residentMiB(t, server.Process.Pid)
	t.Logf("program size %.1f MiB, idle server %d MiB, %.0f wakeups per second, %.2f %% of a core",
		float64(info.Size())/(1<<20), mib, perSecond, 100*cpuShare)
	if info.Size() > 45<<20 || mib > 40 || perSecond > 180 {
		t.Error("want at most 45 MiB, 40 MiB and 180 wakeups per second")
	}
}

// buildProgram builds the holdfast program as releases are built, and returns its path.
func buildProgram(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "holdfast")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/holdfastq/holdfast/cmd/holdfast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// wakes returns how often the threads of a process have gone to sleep so far.
func wakes(t *testing.T, pid int) (total int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		var n int
		if _, scanErr := fmt.Sscan(rest, &n); err == nil && scanErr == nil {
			total += n
		}
	}
	return total
}

var listening = regexp.MustCompile(`serving health and metrics.*address="?([0-9.:]+)`)

// awaitReady waits until the server with this log is ready.
func awaitReady(t *testing.T, log string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); ; <-tick.C {
		text, err := os.ReadFile(log)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the server is not ready: %v\n%s", err, text)
		}
		if found := listening.FindSubmatch(text); found != nil {
			if response, err := http.Get("http://" + string(found[1]) + "/healthz/ready"); err == nil {
				response.Body.Close()
				if response.StatusCode == http.StatusOK {
					return
				}
			}
		}
	}
}

// cpuTime returns the processor time of the threads of a process.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Skip("this system does not report the processor time of threads")
	}
	total := time.Duration(0)
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		var ran int64
		if _, scanErr := fmt.Sscan(string(text), &ran); err == nil && scanErr == nil {
			total += time.Duration(ran)
		}
	}
	return total
}

// residentMiB returns the resident memory of a process.
func residentMiB(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
