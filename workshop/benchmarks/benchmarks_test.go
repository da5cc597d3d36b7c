package benchmarks

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/lib/pq" // to drop schemas
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/janitor"
)

const (
	roleVariable  = "BENCH_ROLE"
	tasksVariable = "BENCH_TASKS"
	chunk         = 10_000
	payloadSize   = 200
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	n, err := strconv.Atoi(os.Getenv(tasksVariable))
	if err == nil {
		err = map[string]func(int) error{
			"producer": produce, "worker": work, "plain": plainTasks, "batch": batchTasks(false), "outputs": batchTasks(true),
		}[role](n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
	fmt.Printf("peak_mib %d\n", peakMiB())
}

// BenchmarkBulk enqueues 100,000 tasks with EnqueueMany and runs them with a handler that does nothing.
func BenchmarkBulk(b *testing.B) { bench(b, 100_000) }

// BenchmarkBacklog shows that memory does not grow with the length of the backlog.
func BenchmarkBacklog(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) { bench(b, n) })
	}
}

func bench(b *testing.B, tasks int) {
	if os.Getenv("DATABASE_URL") == "" || os.Getenv("AMQP_URL") == "" {
		b.Skip("DATABASE_URL and AMQP_URL are not set; run: make microbench")
	}
	var enqueued, drained, producerMiB, workerMiB float64
	rounds := 0.0
	for b.Loop() {
		env := isolatedEnv(b, tasks)
		p := runRole(b, env, "producer")
		w := runRole(b, env, "worker")
		rounds++
		enqueued += float64(tasks) / p["seconds"]
		drained += float64(tasks) / w["seconds"]
		producerMiB, workerMiB = max(producerMiB, p["peak_mib"]), max(workerMiB, w["peak_mib"])
	}
	b.ReportMetric(enqueued/rounds, "enqueued/s")
	b.ReportMetric(drained/rounds, "drained/s")
	b.ReportMetric(producerMiB, "producer-MiB")
	b.ReportMetric(workerMiB, "worker-MiB")
	b.ReportMetric(0, "ns/op") // hides ns/op, which has no meaning here
}

// isolatedEnv creates a schema and queues for one round and returns the environment that selects them.
func isolatedEnv(b *testing.B, tasks int) []string {
	name := make([]byte, 5)
	_, _ = rand.Read(name)
	id := "bench_" + hex.EncodeToString(name)
	env := append(os.Environ(), "HOLDFAST_DATABASE_SCHEMA="+id, "HOLDFAST_AMQP_PREFIX=test."+id, tasksVariable+"="+strconv.Itoa(tasks))
	backend, err := open(env)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = backend.Topology.Delete(context.Background(), backend.Broker, []string{"default"})
		_ = backend.Close()
		db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("drop schema if exists " + id + " cascade"); err != nil {
			b.Error(err)
		}
	})
	if _, err := backend.Rebuild(context.Background()); err != nil {
		b.Fatal(err)
	}
	return env
}

// runRole runs this binary in a role and returns the values that it prints.
func runRole(b *testing.B, env []string, name string) map[string]float64 {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(env, roleVariable+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %v", name, err)
	}
	values := make(map[string]float64)
	for line := range strings.Lines(string(out)) {
		var key string
		var value float64
		if _, err := fmt.Sscan(line, &key, &value); err == nil {
			values[key] = value
		}
	}
	return values
}

func open(env []string) (*app.Backend, error) {
	cfg, err := configs.Load(configs.Options{Env: env})
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx := context.Background()
	if _, err := app.Migrate(ctx, cfg, log); err != nil {
		return nil, err
	}
	return app.Open(ctx, cfg, log)
}

func newJanitor(b *app.Backend) (*janitor.Janitor, error) {
	return janitor.New(janitor.Options{Store: b.Store, Desk: b.Store, Broker: b.Broker, Topology: b.Topology, Name: "bench", Log: b.Log})
}

// produce stores the tasks in chunks, so that the slice of tasks stays small.
func produce(tasks int) error {
	backend, err := open(os.Environ())
	if err != nil {
		return err
	}
	defer backend.Close()
	p := backend.Producer(nil)
	defer p.Close()
	payload := []byte(`"` + strings.Repeat("x", payloadSize-2) + `"`)
	batch := make([]holdfast.NewTask, chunk)
	for i := range batch {
		batch[i] = holdfast.NewTask{Type: "noop", Payload: payload}
	}
	start := time.Now()
	for left := tasks; left > 0; left -= chunk {
		if _, err := p.EnqueueMany(context.Background(), batch[:min(chunk, left)]); err != nil {
			return err
		}
	}
	fmt.Printf("seconds %f\n", time.Since(start).Seconds())
	return nil
}

// work runs the tasks of the backlog with a worker and a janitor in one process.
func work(tasks int) error {
	backend, err := open(os.Environ())
	if err != nil {
		return err
	}
	defer backend.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var done atomic.Int64
	observe := observer(func(o holdfast.Observation) {
		if o.Kind == holdfast.ObservedSettled && done.Add(int64(o.Count)) == int64(tasks) {
			stop()
		}
	})
	var handlers consumer.Registry
	handlers.Add("noop", consumer.HandlerFunc(func(context.Context, holdfast.Task) error { return nil }))
	c, err := consumer.New(consumer.Options{
		Store: backend.Store, Broker: backend.Broker, Topology: backend.Topology, Handlers: &handlers,
		Concurrency: 100, Observer: observe, Log: backend.Log,
	})
	if err != nil {
		return err
	}
	jan, err := newJanitor(backend)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- jan.Run(ctx) }()
	start := time.Now()
	err = c.Run(ctx)
	fmt.Printf("seconds %f\n", time.Since(start).Seconds())
	<-ended
	return err
}

type observer func(holdfast.Observation)

func (f observer) Observe(o holdfast.Observation) { f(o) }

// peakMiB returns the maximum resident size of this process in MiB, or -1 if it is unknown.
func peakMiB() int {
	status, err := os.Open("/proc/self/status")
	if err != nil {
		return -1
	}
	defer status.Close()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, _ := strconv.Atoi(fields[1])
			return kib / 1024
		}
	}
	return -1
}

// quantile returns the smallest sample that is not less than a share q of all samples.
func quantile(samples []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	for i, sample := range sorted {
		if float64(i+1) >= q*float64(len(sorted)) {
			return sample
		}
	}
	return 0
}
