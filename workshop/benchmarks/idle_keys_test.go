package benchmarks

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/workshop/rabbittest"
	"github.com/holdfastq/holdfast/workshop/rig"
)

var (
	idleKeys   = flag.Int("idle.keys", 100_000, "BenchmarkIdleKeys: number of keys, and of topics")
	idleSettle = flag.Duration("idle.settle", 30*time.Second, "BenchmarkIdleKeys: pause before each measurement")
)

// BenchmarkIdleKeys measures what many idle keys and topics cost: the resident memory of each process of holdfast serve,
// and the number of AMQP queues, before and after each key or topic has had one task. It compares them with the same
// number of tasks without a key, because a process that has worked uses more memory than a new one. All conditions have
// new stores and processes. On servers the benchmark starts a private RabbitMQ, and needs HOLDFAST_TEST_ALL=1.
func BenchmarkIdleKeys(b *testing.B) {
	program := buildProgram(b)
	for _, backend := range []string{"servers", "file"} {
		b.Run(backend, func(b *testing.B) {
			var server *rabbittest.Server
			if backend == "servers" {
				server = rabbittest.Private(b)
				b.Setenv("AMQP_URL", server.URL)
			}
			for _, condition := range []struct {
				name string
				of   func(task holdfast.NewTask, i int) holdfast.NewTask
			}{
				{"plain", func(task holdfast.NewTask, _ int) holdfast.NewTask { return task }},
				{"keys", func(task holdfast.NewTask, i int) holdfast.NewTask {
					task.Key, task.Ordered = fmt.Sprint("key-", i), true
					return task
				}},
				{"topics", func(task holdfast.NewTask, i int) holdfast.NewTask {
					task.Topic = fmt.Sprint("topic-", i)
					return task
				}},
			} {
				b.Run(condition.name, func(b *testing.B) {
					for b.Loop() {
						newIdleFixture(b, server, program).run(b, condition.of)
					}
					b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
				})
			}
		})
	}
}

// idleFixture has the processes of a new store.
type idleFixture struct {
	backend   *app.Backend
	server    *rabbittest.Server // nil on a file
	processes map[string]*rig.Process
}

// newIdleFixture starts a process for each role, or one process on a file.
func newIdleFixture(b *testing.B, server *rabbittest.Server, program string) *idleFixture {
	b.Helper()
	var env []string
	flags := map[string][]string{"worker": {"--roles", "worker"}, "janitor": {"--roles", "janitor"}, "api": {"--roles", "api"}}
	if server == nil {
		env = append(os.Environ(), "HOLDFAST_DATABASE_URL=sqlite:"+filepath.Join(b.TempDir(), "holdfast.db"), "HOLDFAST_AMQP_URLS=inproc:")
		flags = map[string][]string{"process": nil}
	} else {
		env = isolatedEnv(b, 0)
	}
	env = append(env, "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8")
	f := &idleFixture{server: server, processes: make(map[string]*rig.Process)}
	var err error
	if f.backend, err = open(env); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.backend.Close() })
	for name, flags := range flags {
		p, err := rig.Serve(program, env, flags...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.Kill)
		f.processes[name] = p
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	for _, p := range f.processes {
		if err := p.Ready(ctx); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

// run runs one task for each key or topic, and reports memory and AMQP queues before and after.
func (f *idleFixture) run(b *testing.B, of func(holdfast.NewTask, int) holdfast.NewTask) {
	b.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer target.Close()
	payload, err := json.Marshal(map[string]any{"url": target.URL})
	if err != nil {
		b.Fatal(err)
	}
	f.report(b, "before")
	p := f.backend.Producer(nil)
	defer p.Close()
	tasks := make([]holdfast.NewTask, *idleKeys)
	for i := range tasks {
		tasks[i] = of(holdfast.NewTask{Type: holdfast.TypeHTTP, Payload: payload}, i)
	}
	for part := range slices.Chunk(tasks, 1000) {
		if _, err := p.EnqueueMany(b.Context(), part); err != nil {
			b.Fatal(err)
		}
	}
	if err := allDone(b.Context(), f.backend, int64(len(tasks))); err != nil {
		b.Fatal(err)
	}
	f.report(b, "after")
}

// report reports the memory of each process and the number of AMQP queues when all of them have been idle for a while.
func (f *idleFixture) report(b *testing.B, when string) {
	b.Helper()
	time.Sleep(*idleSettle)
	for name, p := range f.processes {
		b.ReportMetric(float64(residentMiB(b, p.PID())), name+"-"+when+"-MiB")
	}
	if f.server != nil {
		b.ReportMetric(float64(f.queues()), "queues-"+when)
	}
}

// queues returns the number of AMQP queues of the store in the broker, whether the topology knows them or not.
func (f *idleFixture) queues() (n int) {
	for name := range strings.Lines(f.server.Ctl("list_queues", "--no-table-headers", "name")) {
		if strings.HasPrefix(name, f.backend.Topology.Prefix+".") {
			n++
		}
	}
	return n
}
