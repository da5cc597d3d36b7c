package measure

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/rig"
)

// testbed is the isolated backend of one measurement: a schema and an AMQP prefix on servers, or a new file.
type testbed struct {
	*app.Backend
	o        Options
	embedded bool
	folder   string // contains the file; empty on servers
	settings []string
	started  []*rig.Process
}

// waitLimit limits most waits. Without a defect, a wait takes a few seconds at most.
const waitLimit = time.Minute

// open creates a testbed and applies the migrations. The caller closes it.
func open(ctx context.Context, o Options, embedded bool) (*testbed, error) {
	id := "recovery_" + strings.ToLower(rand.Text()[:10])
	tb := &testbed{o: o, embedded: embedded}
	database, amqp := o.DatabaseURL, o.AMQPURL
	if embedded {
		var err error
		if tb.folder, err = os.MkdirTemp("", "holdfast-recovery-"); err != nil {
			return nil, err
		}
		database, amqp = configs.EmbeddedDatabase+filepath.Join(tb.folder, "holdfast.db"), configs.EmbeddedBroker
	}
	tb.settings = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "DATABASE_URL=" + database, "AMQP_URL=" + amqp,
		"HOLDFAST_DATABASE_SCHEMA=" + id, "HOLDFAST_AMQP_PREFIX=" + id, "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8",
		"HOLDFAST_DEFAULTS_MAX_CRASHES=100", "HOLDFAST_WEBHOOK_TIMEOUT=10m",
	}
	cfg, err := configs.Load(configs.Options{Env: tb.settings[2:]})
	if err != nil {
		return nil, err
	}
	if _, err := app.Migrate(ctx, cfg, o.Log); err != nil {
		return nil, err
	}
	tb.Backend, err = app.Open(ctx, cfg, o.Log)
	return tb, err
}

// close kills all processes and deletes the data of the testbed.
func (tb *testbed) close() error {
	tb.killAll()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var errs []error
	if !tb.embedded {
		queues, err := tb.Store.QueueNames(ctx)
		if err == nil {
			err = tb.Topology.Delete(ctx, tb.Broker, queues)
		}
		errs = append(errs, err)
		if s, ok := tb.Store.(interface{ DropSchema(context.Context) error }); ok {
			errs = append(errs, s.DropSchema(ctx))
		}
	}
	errs = append(errs, tb.Backend.Close())
	if tb.folder != "" {
		errs = append(errs, os.RemoveAll(tb.folder))
	}
	return errors.Join(errs...)
}

// killAll kills all processes that were started.
func (tb *testbed) killAll() {
	for _, process := range tb.started {
		process.Kill()
	}
	tb.started = nil
}

// start starts a process of holdfast serve and returns at once.
func (tb *testbed) start(flags ...string) (*rig.Process, error) {
	process, err := rig.Serve(tb.o.Program, tb.settings, flags...)
	if err == nil {
		tb.started = append(tb.started, process)
	}
	return process, err
}

// serve starts a process of holdfast serve and waits until it is ready.
func (tb *testbed) serve(ctx context.Context, flags ...string) (*rig.Process, error) {
	process, err := tb.start(flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	return process, process.Ready(ctx)
}

// enqueue stores n tasks of type http for the target, with numbers from first on. Unless change is nil, enqueue first
// calls it for each task, with an index from 0 on.
func (tb *testbed) enqueue(ctx context.Context, tg *target, first, n int, change func(i int, task *holdfast.NewTask)) error {
	tasks := make([]holdfast.NewTask, n)
	for i := range tasks {
		payload, err := json.Marshal(map[string]string{"url": fmt.Sprint(tg.url, "/", first+i)})
		if err != nil {
			return err
		}
		tasks[i] = holdfast.NewTask{Type: "http", Payload: payload}
		if change != nil {
			change(i, &tasks[i])
		}
	}
	producer := tb.Producer(nil)
	defer producer.Close()
	_, err := producer.EnqueueMany(ctx, tasks)
	return err
}

// awaitDone waits until at least n tasks are done.
func (tb *testbed) awaitDone(ctx context.Context, n int64) error {
	var counts store.Counts
	err := poll(ctx, 5*waitLimit, func(ctx context.Context) (bool, error) {
		var err error
		counts, err = tb.Store.Count(ctx, store.Filter{})
		return err == nil && counts.By[holdfast.Done] >= n, err
	})
	if err != nil {
		return fmt.Errorf("waiting for %d done tasks, have %v: %w", n, counts.By, err)
	}
	return nil
}

// poll calls done until it returns true or an error, or until limit has passed.
func poll(ctx context.Context, limit time.Duration, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := done(ctx); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sleep waits for d, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// services are janitors and consumers that run in this process.
type services struct {
	tb    *testbed
	stop  context.CancelFunc
	ctx   context.Context
	group sync.WaitGroup
	mu    sync.Mutex
	errs  []error
}

// services returns an empty set of services. The caller ends it.
func (tb *testbed) services(ctx context.Context) *services {
	c := &services{tb: tb}
	c.ctx, c.stop = context.WithCancel(ctx)
	return c
}

// run runs a service in the background until end is called.
func (c *services) run(service func(context.Context) error) {
	c.group.Go(func() {
		if err := service(c.ctx); err != nil {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	})
}

// end stops all services, waits for their end and returns their errors.
func (c *services) end() error {
	c.stop()
	c.group.Wait()
	return errors.Join(c.errs...)
}

// janitor runs a janitor.
func (c *services) janitor() error {
	b := c.tb.Backend
	j, err := janitor.New(janitor.Options{
		Store: b.Store, Desk: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Config.Settings(), Name: "janitor", Log: c.tb.o.Log,
	})
	if err == nil {
		c.run(j.Run)
	}
	return err
}

// worker runs a consumer and returns when the consumer consumes both AMQP queues of its queue.
func (c *services) worker(name, kind string, concurrency int, handle consumer.HandlerFunc) error {
	var registry consumer.Registry
	registry.Add(kind, handle)
	b := c.tb.Backend
	worker, err := consumer.New(consumer.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Config.Settings(),
		Handlers: &registry, Name: name, Concurrency: concurrency, Log: c.tb.o.Log,
	})
	if err != nil {
		return err
	}
	c.run(worker.Run)
	return poll(c.ctx, waitLimit, func(context.Context) (bool, error) { return len(worker.Status().Consuming) >= 2, nil })
}

// store stores n tasks of one type in one call.
func (c *services) store(kind string, n int) error {
	producer := c.tb.Producer(nil)
	defer producer.Close()
	_, err := producer.EnqueueMany(c.ctx, slices.Repeat([]holdfast.NewTask{{Type: kind}}, n))
	return err
}
