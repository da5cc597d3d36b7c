package recovery

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
	"github.com/holdfastq/holdfast/internal/rig"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
)

// place is a measurement's own corner: a schema and a queue prefix on servers, or a file.
type place struct {
	*app.Backend
	o        Options
	embedded bool
	folder   string // of the file
	settings []string
	started  []*rig.Process
}

// patience is for what comes within moments unless something is broken.
const patience = time.Minute

func open(ctx context.Context, o Options, embedded bool) (*place, error) {
	id := "recovery_" + strings.ToLower(rand.Text()[:10])
	p := &place{o: o, embedded: embedded}
	database, amqp := o.DatabaseURL, o.AMQPURL
	if embedded {
		var err error
		if p.folder, err = os.MkdirTemp("", "holdfast-recovery-"); err != nil {
			return nil, err
		}
		database, amqp = configs.EmbeddedDatabase+filepath.Join(p.folder, "holdfast.db"), configs.EmbeddedBroker
	}
	p.settings = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "DATABASE_URL=" + database, "AMQP_URL=" + amqp,
		"HOLDFAST_DATABASE_SCHEMA=" + id, "HOLDFAST_AMQP_PREFIX=" + id, "HOLDFAST_WEBHOOK_ALLOW_CIDRS=127.0.0.0/8",
		"HOLDFAST_DEFAULTS_MAX_CRASHES=100", "HOLDFAST_WEBHOOK_TIMEOUT=10m",
	}
	cfg, err := configs.Load(configs.Options{Env: p.settings[2:]})
	if err != nil {
		return nil, err
	}
	if _, err := app.Migrate(ctx, cfg, o.Log); err != nil {
		return nil, err
	}
	p.Backend, err = app.Open(ctx, cfg, o.Log)
	return p, err
}

// close ends all processes and deletes what was made.
func (p *place) close() error {
	p.killAll()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	if !p.embedded {
		queues, err := p.Store.LaneNames(ctx)
		if err == nil {
			err = p.Topology.Delete(ctx, p.Broker, queues)
		}
		errs = append(errs, err)
		if s, ok := p.Store.(interface{ DropSchema(context.Context) error }); ok {
			errs = append(errs, s.DropSchema(ctx))
		}
	}
	errs = append(errs, p.Backend.Close())
	if p.folder != "" {
		errs = append(errs, os.RemoveAll(p.folder))
	}
	return errors.Join(errs...)
}

func (p *place) killAll() {
	for _, process := range p.started {
		process.Kill()
	}
	p.started = nil
}

// start starts a process and does not wait for it.
func (p *place) start(flags ...string) (*rig.Process, error) {
	process, err := rig.Serve(p.o.Program, p.settings, flags...)
	if err == nil {
		p.started = append(p.started, process)
	}
	return process, err
}

// serve starts a process and waits until it is ready.
func (p *place) serve(ctx context.Context, flags ...string) (*rig.Process, error) {
	process, err := p.start(flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return process, process.Ready(ctx)
}

// enqueue stores n HTTP tasks for the target, the first with this number. change may be nil.
func (p *place) enqueue(ctx context.Context, tg *target, first, n int, change func(i int, task *holdfast.NewTask)) error {
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
	producer := p.Producer(nil)
	defer producer.Close()
	_, err := producer.EnqueueMany(ctx, tasks)
	return err
}

// awaitDone waits until n tasks are done.
func (p *place) awaitDone(ctx context.Context, n int64) error {
	var counts map[holdfast.State]int64
	err := poll(ctx, 5*patience, func(ctx context.Context) (bool, error) {
		var err error
		counts, err = p.Store.Count(ctx, store.Filter{})
		return err == nil && counts[holdfast.Done] >= n, err
	})
	if err != nil {
		return fmt.Errorf("%d tasks are to be done, there are %v: %w", n, counts, err)
	}
	return nil
}

// poll asks until the answer is yes or an error.
func poll(ctx context.Context, limit time.Duration, yes func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %s", limit))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := yes(ctx); ok || err != nil {
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

// crew are a janitor and workers in this process.
type crew struct {
	p     *place
	stop  context.CancelFunc
	ctx   context.Context
	group sync.WaitGroup
	mu    sync.Mutex
	errs  []error
}

func (p *place) crew(ctx context.Context) *crew {
	c := &crew{p: p}
	c.ctx, c.stop = context.WithCancel(ctx)
	return c
}

func (c *crew) run(service func(context.Context) error) {
	c.group.Go(func() {
		if err := service(c.ctx); err != nil {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
		}
	})
}

// end stops all of them and returns their errors.
func (c *crew) end() error {
	c.stop()
	c.group.Wait()
	return errors.Join(c.errs...)
}

func (c *crew) janitor() error {
	b := c.p.Backend
	j, err := janitor.New(janitor.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Config.Settings(), Name: "janitor", Log: c.p.o.Log,
	})
	if err == nil {
		c.run(j.Run)
	}
	return err
}

// worker runs a worker and returns when it takes tasks.
func (c *crew) worker(name, kind string, concurrency int, handle consumer.HandlerFunc) error {
	var registry consumer.Registry
	registry.Add(kind, handle)
	b := c.p.Backend
	worker, err := consumer.New(consumer.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Config.Settings(),
		Handlers: &registry, Name: name, Concurrency: concurrency, Log: c.p.o.Log,
	})
	if err != nil {
		return err
	}
	c.run(worker.Run)
	return poll(c.ctx, patience, func(context.Context) (bool, error) { return len(worker.Status().Consuming) >= 2, nil })
}

// store stores n tasks of a type.
func (c *crew) store(kind string, n int) error {
	producer := c.p.Producer(nil)
	defer producer.Close()
	_, err := producer.EnqueueMany(c.ctx, slices.Repeat([]holdfast.NewTask{{Type: kind}}, n))
	return err
}
