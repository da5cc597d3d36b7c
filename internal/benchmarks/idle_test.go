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

	"github.com/holdfastq/holdfast/internal/slow"
)

// An idle holdfast serve on a file is small and quiet. On a machine whose host is shared, the time that the same work
// takes varies tenfold, so that is only logged; what is bounded is how often the server wakes, which does not.
func TestAnIdleServerIsSmallAndQuiet(t *testing.T) {
	slow.Skip(t) // it takes half a minute
	folder := t.TempDir()
	program := filepath.Join(folder, "holdfast")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/holdfastq/holdfast/cmd/holdfast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
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
	const settling, watched = 4 * time.Second, 20 * time.Second
	<-time.After(settling)
	before, woken := cpu(t, server.Process.Pid), wakes(t, server.Process.Pid)
	<-time.After(watched)
	share := float64(cpu(t, server.Process.Pid)-before) / float64(watched)
	perSecond := float64(wakes(t, server.Process.Pid)-woken) / watched.Seconds()
	mib := residentMiB(t, server.Process.Pid)
	t.Logf("the program has %.1f MiB, an idle server %d MiB; its threads wake %.0f times a second and use %.2f %% of a core",
		float64(info.Size())/(1<<20), mib, perSecond, 100*share)
	if info.Size() > 45<<20 || mib > 40 || perSecond > 180 {
		t.Error("want at most 45 MiB, 40 MiB and 180 wakes")
	}
}

// wakes is how often the threads of a process have gone to sleep so far.
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

// awaitReady waits until the server whose log this is says it is ready.
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

// cpu is the time that the threads of a process have run.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Skip("this system does not tell how long threads ran")
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

func residentMiB(t *testing.T, pid int) int {
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
