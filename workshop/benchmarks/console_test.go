package benchmarks

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/console"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/store"
)

// BenchmarkConsole fills a store with tasks that are done, and every thousandth dead, and measures each page of the
// console, and the processor time of 50 viewers of the overview. BENCH_SUBTASKS sets the number of tasks, and
// BENCH_FILE uses a file. The log has the time of each page; run it with -v.
func BenchmarkConsole(b *testing.B) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	tasks := subtasks(b, 200_000)
	env := isolatedEnv(b, tasks)
	if os.Getenv("BENCH_FILE") != "" {
		env = append(env, "DATABASE_URL=sqlite:"+b.TempDir()+"/holdfast.db", "AMQP_URL=inproc:")
	}
	runRole(b, env, "failing")
	backend, err := open(env)
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	secret, err := backend.CreateToken(b.Context(), store.Actor{Name: "bench", Surface: store.Library}, "bench", store.Admin, 0)
	if err != nil {
		b.Fatal(err)
	}
	pages := console.New(console.Options{Backend: backend})
	defer pages.Close()
	server := httptest.NewServer(pages)
	defer server.Close()
	get := func(path string) (body string, took time.Duration) {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		answer, began := httptest.NewRecorder(), time.Now()
		pages.ServeHTTP(answer, r)
		if took = time.Since(began); answer.Code != http.StatusOK {
			b.Fatalf("%s: %d", path, answer.Code)
		}
		return answer.Body.String(), took
	}
	dead, _ := get("/dead")
	paths := []string{
		"/", "/dead", regexp.MustCompile(`/dead/[0-9a-f]+`).FindString(dead), "/tasks", "/tasks?q=state:dead", "/tasks?q=error:odd", "/tasks/1", "/tasks/1000",
		"/queues", "/workers", "/operations", "/operations/new?action=retry&query=state:dead", "/gates", "/keys", "/topics", "/schedules", "/batches", "/audit", "/tokens", "/settings",
	}
	for b.Loop() {
		slowest := time.Duration(0)
		for _, path := range paths {
			var times []time.Duration
			for range 20 {
				_, took := get(path)
				times = append(times, took)
			}
			slices.Sort(times)
			half := times[len(times)/2]
			b.Logf("%-45s p50 %6.1f ms, longest %6.1f ms", path, half.Seconds()*1000, times[len(times)-1].Seconds()*1000)
			if path != "/tasks?q=error:odd" { // it reads tasks for a second, and says how far it came
				slowest = max(slowest, half)
			}
		}
		b.ReportMetric(slowest.Seconds()*1000, "slowest-p50-ms")
		b.ReportMetric(viewers(b, server.URL, secret, 50)*100, "viewers-%")
	}
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// viewers opens streams of the overview and returns how much of a processor this process, with the readers of the
// streams, uses for them.
func viewers(b *testing.B, url, secret string, n int) float64 {
	const measured = 10 * time.Second
	ctx, stop := context.WithCancel(b.Context())
	var open sync.WaitGroup
	var begun sync.WaitGroup
	for range n {
		begun.Add(1)
		open.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/", nil)
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+secret)
			r.Header.Set("Accept", "text/event-stream")
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			defer answer.Body.Close()
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "event: main") {
					first()
				}
			}
		})
	}
	begun.Wait()
	before := ownCPU(b)
	time.Sleep(measured)
	used := ownCPU(b) - before
	stop()
	open.Wait()
	return used.Seconds() / measured.Seconds()
}

// ownCPU returns the processor time of this process.
func ownCPU(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

var errThousandth = errors.New("every thousandth task fails: the target answered 503")

// failingTasks stores and runs tasks of which every thousandth is dead.
func failingTasks(tasks int) error {
	return runQueue(func(q *queue.Client) error {
		return queue.Handle(q, "index", func(_ context.Context, _ holdfast.Task, p product) error {
			if p.Number%1000 == 999 {
				return holdfast.Permanent(errThousandth)
			}
			return nil
		})
	}, func(ctx context.Context, q *queue.Client) error {
		const window = 20_000
		page := make([]queue.NewTask, 0, 1000)
		var last holdfast.TaskID
		for n := range tasks {
			if page = append(page, queue.NewTask{Type: "index", Payload: productOf(n)}); len(page) < cap(page) && n+1 < tasks {
				continue
			}
			stored, err := q.EnqueueMany(ctx, page)
			if err != nil {
				return err
			}
			last, page = stored[len(stored)-1].ID, page[:0]
			if n%window == window-1 || n+1 == tasks {
				if _, err := q.Wait(ctx, last); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
