package queue_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// fixture is a test with a private backend: a schema and a prefix on servers, or a file.
type fixture struct {
	*testing.T
	environment []string
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onEachBackend runs a test on servers and on a file.
func onEachBackend(t *testing.T, run func(w *fixture)) {
	t.Parallel()
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		run(onServers(t))
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		run(onFile(t))
	})
}

func onFile(t *testing.T) *fixture {
	return &fixture{t, []string{"DATABASE_URL=sqlite:" + backendtest.NewFile(t)}}
}

func onServers(t *testing.T) *fixture {
	t.Helper()
	amqp := os.Getenv("AMQP_URL")
	if amqp == "" {
		t.Skip("AMQP_URL is not set; run: make test")
	}
	address, schema := pgtest.SchemaReused(t)
	w := &fixture{t, []string{
		"DATABASE_URL=" + address, "AMQP_URL=" + amqp, "HOLDFAST_DATABASE_SCHEMA=" + schema, "HOLDFAST_AMQP_PREFIX=test." + schema,
	}}
	b := queue.Backend(w.open())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slow.Patience())
		defer cancel()
		if queues, err := b.Store.QueueNames(ctx); err == nil {
			_ = b.Topology.Delete(ctx, b.Broker, queues)
		}
	})
	return w
}

// open opens a client with short retry delays. The end of the test closes it.
func (w *fixture) open(opts ...queue.Option) *queue.Client {
	w.Helper()
	defaults := []queue.Option{
		queue.Environment(w.environment), queue.Migrate(), queue.NoSignals(), queue.Logger(logger(w.T)),
		queue.Set("defaults.retry.strategy", "fixed"), queue.Set("defaults.retry.base", "1ms"),
		queue.Set("worker.lease", slow.Times(8*time.Second).Round(time.Second).String()),
	}
	q, err := queue.Open(w.Context(), append(defaults, opts...)...)
	w.must(err)
	w.Cleanup(func() { w.must(q.Close()) })
	return q
}

// logger returns a logger to standard error if TEST_LOG is set, and otherwise nil.
func logger(t *testing.T) logrus.FieldLogger {
	if os.Getenv("TEST_LOG") == "" {
		return nil
	}
	log := logrus.New()
	log.SetLevel(logrus.DebugLevel)
	return log.WithField("test", t.Name())
}

func (w *fixture) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// run calls Run in a goroutine until the test ends or stop is called.
func (w *fixture) run(q *queue.Client) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// wait waits until a task is in a final state.
func (w *fixture) wait(q *queue.Client, id holdfast.TaskID) holdfast.Task {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), slow.Patience())
	defer cancel()
	task, err := q.Wait(ctx, id)
	if err != nil {
		w.Fatalf("%v: %+v", err, task)
	}
	return task
}

// enqueue stores a task and returns its id.
func (w *fixture) enqueue(q *queue.Client, taskType string, payload any, opts ...queue.TaskOption) holdfast.TaskID {
	w.Helper()
	result, err := q.Enqueue(w.Context(), taskType, payload, opts...)
	w.must(err)
	return result.ID
}
