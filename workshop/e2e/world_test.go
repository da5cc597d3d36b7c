package e2e

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/lib/pq" // the driver of the statements that tests send to PostgreSQL
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// world is the isolated backend of one test: a schema and an AMQP prefix on servers, or a new file.
type world struct {
	*app.Backend
	databaseURL, amqpURL string
	schema, prefix       string
	embedded             bool
	lease                time.Duration // lease of the workers in other processes
}

// onBothBackends runs a test as parallel subtests on servers and on a file.
func onBothBackends(t *testing.T, run func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) { t.Parallel(); run(t, newWorld(t)) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); run(t, newFile(t)) })
}

// onServersFirst runs a test on servers. With all slow tests it also runs the test on a file, where the test shows the
// same promise again.
func onServersFirst(t *testing.T, run func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) { t.Parallel(); run(t, newWorld(t)) })
	t.Run("embedded", func(t *testing.T) { slow.Skip(t); t.Parallel(); run(t, newFile(t)) })
}

// onAFileFirst runs a test on a file. With all slow tests it also runs the test on servers. It is for promises that
// make test also shows on servers, for example with the conformance suite of the stores.
func onAFileFirst(t *testing.T, run func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) { slow.Skip(t); t.Parallel(); run(t, newWorld(t)) })
	t.Run("embedded", func(t *testing.T) { t.Parallel(); run(t, newFile(t)) })
}

// newFile creates a world in a new file.
func newFile(t *testing.T) *world {
	t.Helper()
	return newFileAt(t, filepath.Join(t.TempDir(), "holdfast.db"))
}

// newFileAt creates a world in the file at path.
func newFileAt(t *testing.T, path string) *world {
	t.Helper()
	w := &world{
		databaseURL: configs.EmbeddedDatabase + path, amqpURL: configs.EmbeddedBroker,
		schema: "unused", prefix: "test", embedded: true, lease: steadyLease(),
	}
	w.Backend = w.connect(t, w.databaseURL, w.amqpURL)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// servers returns the URLs of the shared servers. It skips the test if they are not set.
func servers(t *testing.T) (databaseURL, amqpURL string) {
	t.Helper()
	databaseURL, amqpURL = os.Getenv("DATABASE_URL"), os.Getenv("AMQP_URL")
	if databaseURL == "" || amqpURL == "" {
		t.Skip("DATABASE_URL and AMQP_URL are not set; run: make test")
	}
	return databaseURL, amqpURL
}

// newWorld creates a world on the shared servers.
func newWorld(t *testing.T) *world {
	t.Helper()
	databaseURL, amqpURL := servers(t)
	return newWorldOn(t, databaseURL, amqpURL)
}

// newWorldOn creates a world on the given servers and deletes it after the test.
func newWorldOn(t *testing.T, databaseURL, amqpURL string) *world {
	t.Helper()
	name := make([]byte, 5)
	_, _ = rand.Read(name)
	id := "e2e_" + hex.EncodeToString(name)
	w := &world{databaseURL: databaseURL, amqpURL: amqpURL, schema: id, prefix: "test." + id, lease: steadyLease()}
	w.Backend = w.connect(t, w.databaseURL, w.amqpURL)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if queues, err := w.Store.QueueNames(ctx); err == nil {
			_ = w.Topology.Delete(ctx, w.Broker, queues)
		}
		w.sql(t, "drop schema if exists "+id+" cascade")
		_ = w.Close()
	})
	return w
}

// config returns the configuration of the world with the given servers.
func (w *world) config(t *testing.T, databaseURL, amqpURL string) configs.Config {
	t.Helper()
	cfg, err := configs.Load(configs.Options{Env: w.settings(databaseURL, amqpURL)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// settings returns the configuration as environment variables.
func (w *world) settings(databaseURL, amqpURL string) []string {
	return []string{
		"DATABASE_URL=" + databaseURL, "AMQP_URL=" + amqpURL,
		"HOLDFAST_DATABASE_SCHEMA=" + w.schema, "HOLDFAST_AMQP_PREFIX=" + w.prefix,
		"HOLDFAST_WORKER_LEASE=" + w.lease.String(),
		"HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8",
		"HOLDFAST_WEBHOOK_BREAKER_FAULTS=0", // the targets of most tests fail on purpose
		"HOLDFAST_DEFAULTS_RETRY_STRATEGY=fixed", "HOLDFAST_DEFAULTS_RETRY_BASE=200ms",
	}
}

// environment returns the environment for processes that use the world.
func (w *world) environment() []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}, w.settings(w.databaseURL, w.amqpURL)...)
}

// connect applies the migrations and opens the backend of the world through the given URLs, which may be those of
// proxies.
func (w *world) connect(t *testing.T, databaseURL, amqpURL string) *app.Backend {
	t.Helper()
	ctx := t.Context()
	cfg := w.config(t, databaseURL, amqpURL)
	if _, err := app.Migrate(ctx, cfg, discardLogger()); err != nil {
		t.Fatal(err)
	}
	b, err := app.Open(ctx, cfg, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// discardLogger returns a logger that discards everything.
func discardLogger() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// logger returns a logger that logs to standard error if TEST_LOG is set, and discards everything otherwise.
func logger(t *testing.T) logrus.FieldLogger {
	if os.Getenv("TEST_LOG") == "" {
		return discardLogger()
	}
	log := logrus.New()
	log.SetLevel(logrus.DebugLevel)
	return log.WithField("test", t.Name())
}

// sql executes a statement on PostgreSQL.
func (w *world) sql(t *testing.T, statement string) {
	t.Helper()
	db, err := sql.Open("postgres", w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}

// runJanitor runs a janitor in this process until the test ends. If change is not nil, it modifies the options.
func (w *world) runJanitor(t *testing.T, b *app.Backend, change func(*janitor.Options)) *janitor.Janitor {
	t.Helper()
	o := janitor.Options{
		Store: b.Store, Desk: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Settings(),
		Name: "janitor of " + t.Name(), Log: logger(t),
	}
	if change != nil {
		change(&o)
	}
	j, err := janitor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	background(t, j.Run)
	return j
}

// shortLease returns the lease of workers that must lose it during a test. On an idle machine it is the default.
func shortLease() time.Duration { return slow.Times(5 * time.Second) }

// steadyLease returns the lease of workers that must not lose it, however busy the machine is.
func steadyLease() time.Duration { return slow.Times(20 * time.Second) }

// runWorker runs a consumer in this process until the test ends or the returned function is called. That function waits
// for the end of the consumer. If change is not nil, it modifies the options.
func (w *world) runWorker(t *testing.T, b *app.Backend, change func(*consumer.Options), handlers map[string]consumer.Handler) (*consumer.Consumer, func()) {
	t.Helper()
	var registry consumer.Registry
	for kind, h := range handlers {
		registry.Add(kind, h)
	}
	o := consumer.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Settings(),
		Handlers: &registry, Name: "worker of " + t.Name(), Log: logger(t),
		Lease: steadyLease(),
	}
	if change != nil {
		change(&o)
	}
	c, err := consumer.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, background(t, c.Run)
}

// background runs a service until the test ends or stop is called. stop waits for the end of the service.
func background(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	ended := false
	go func() { done <- run(ctx) }()
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("service ended: %v", err)
			}
		case <-time.After(slow.Patience()):
			t.Error("the service did not stop")
		}
	}
	t.Cleanup(stop)
	return stop
}

// httpTask returns a task of type http for the target.
func httpTask(tg *target) holdfast.NewTask {
	payload, err := json.Marshal(map[string]any{"url": tg.URL, "body": map[string]any{"hello": "world"}})
	if err != nil {
		panic(err)
	}
	return holdfast.NewTask{Type: "http", Payload: payload}
}

// enqueue stores n copies of a task and returns their ids.
func (w *world) enqueue(t *testing.T, n int, task holdfast.NewTask) []holdfast.TaskID {
	t.Helper()
	p := w.Producer(nil)
	defer p.Close()
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		tasks[i] = task
	}
	results, err := p.EnqueueMany(t.Context(), tasks)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]holdfast.TaskID, n)
	for i, r := range results {
		ids[i] = r.ID
	}
	return ids
}

// awaitCount waits until exactly n tasks are in a state.
func (w *world) awaitCount(t *testing.T, state holdfast.State, n int64) {
	t.Helper()
	var last map[holdfast.State]int64
	poll(t, func() string { return fmt.Sprintf("want %d %s tasks, have %v", n, state, last) }, func(ctx context.Context) bool {
		counts, err := w.Store.Count(ctx, store.Filter{})
		if err == nil {
			last = counts.By
		}
		return err == nil && counts.By[state] == n
	})
}

// task reads one task.
func (w *world) task(t *testing.T, id holdfast.TaskID) holdfast.Task {
	t.Helper()
	task, err := w.Store.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// awaitTask waits until condition returns true for a task, and returns the task.
func (w *world) awaitTask(t *testing.T, id holdfast.TaskID, what string, condition func(holdfast.Task) bool) holdfast.Task {
	t.Helper()
	var last holdfast.Task
	poll(t, func() string { return fmt.Sprintf("the task is not %s: %+v", what, last) }, func(ctx context.Context) bool {
		task, err := w.Store.Task(ctx, id)
		if err == nil {
			last = task
		}
		return err == nil && condition(task)
	})

	return last
}

// in returns a condition for awaitTask: the task is in the state.
func in(state holdfast.State) func(holdfast.Task) bool {
	return func(task holdfast.Task) bool { return task.State == state }
}

// script runs a program of the folder scripts, which keeps its state in the given folder, and returns the output.
func script(t *testing.T, folder, name string, env []string, args ...string) string {
	t.Helper()
	out, err := tryScript(folder, name, env, args...)
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out
}

// tryScript is like script, but returns an error instead of failing the test.
func tryScript(folder, name string, env []string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join("..", "..", "scripts", name), args...)
	cmd.Env = append(append(os.Environ(), "RUN="+folder), env...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, problems.String())
	}
	return strings.TrimSpace(string(out)), err
}

// operate starts an operation and waits for its end.
func (w *world) operate(t *testing.T, r operate.Request) store.Operation {
	t.Helper()
	plan, err := w.PlanOperation(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	o, err := w.StartOperation(t.Context(), store.Actor{Name: "anna", Surface: store.CommandLine}, plan.Operation, false)
	if err != nil {
		t.Fatal(err)
	}
	if o, err = w.AwaitOperation(t.Context(), o.ID, func(store.Operation) {}); err != nil || o.State != store.OperationDone {
		t.Fatalf("the operation is %+v: %v", o, err)
	}
	return o
}

// tasks returns the tasks of the world in the order of their ids.
func (w *world) tasks(t *testing.T) (tasks []holdfast.Task) {
	t.Helper()
	for f := (store.Filter{Limit: 100}); ; {
		page, err := w.Store.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, page.Tasks...)
		if f.Before = page.Next; f.Before == 0 {
			slices.SortFunc(tasks, func(a, b holdfast.Task) int { return cmp.Compare(a.ID, b.ID) })
			return tasks
		}
	}
}
