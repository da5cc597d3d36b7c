package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/process"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// ServeOptions configures Serve. Backend is required.
type ServeOptions struct {
	Backend *Backend
	Version string
	// Handlers adds the task types that the worker runs; nil adds none.
	Handlers func(*consumer.Registry)
	Observer holdfast.Observer // gets observations of the worker and the janitor; may be nil
	Notify   *janitor.Notify   // how the janitor announces events; nil announces none
	// Abort, when closed, ends a drain at once: the worker cancels its handlers and hands their tasks back.
	Abort <-chan struct{}
	// StartBeside, if set, starts a service that runs beside the worker and the janitor, such as endpoints. Serve calls
	// StartBeside before the worker and the janitor start, and calls stop after both have ended. Without the role
	// worker or janitor, the parameter is nil.
	StartBeside func(worker *consumer.Consumer, jan *janitor.Janitor) (stop func(context.Context) error, err error)
}

// Serve runs the roles of the backend's configuration until ctx is done or an operator drains the worker. It then
// drains the worker, stops the janitor, stops the service of StartBeside, and returns. Meanwhile it writes the figures of
// charts once a minute; see desk.Desk. The caller closes the backend.
//
// Serve returns an error if a part cannot start, if the worker cannot write its results, or if a part cannot stop. It
// returns an ErrConflict if another process serves the database file.
func Serve(ctx context.Context, o ServeOptions) (err error) {
	cfg, log := o.Backend.Config, o.Backend.Log
	var stack teardown
	defer func() { err = errors.Join(err, stack.run(log)) }()

	if f := o.Backend.file; f != nil {
		release, err := f.serve(cfg)
		if err != nil {
			return err
		}
		stack.push("file", time.Second, release)
		log.WithField("file", f.store.Path()).Info("tasks are kept in this file, which this process serves")
	}
	if o.Backend.sessionless() {
		log.Warn("presence is off: a connection pooler keeps no sessions; set database.direct_url to recover within a second")
	}
	counts := newFlowCounts(o.Observer)
	o.Observer = counts
	stack.push("figures", 3*figureLimit, background(ctx, newFigureWriter(o.Backend.Store, counts, log).run))
	var jan *janitor.Janitor
	if cfg.HasRole(configs.RoleJanitor) {
		if jan, err = newJanitor(o); err != nil {
			return err
		}
		if o.Backend.janitor != nil {
			o.Backend.janitor.Store(jan)
		}
	}
	var worker *consumer.Consumer
	if cfg.HasRole(configs.RoleWorker) {
		if worker, err = newWorker(o, jan); err != nil {
			return err
		}
		warnOfFewFiles(log, cfg.Worker.Concurrency, maxFiles())
	}
	if o.StartBeside != nil {
		stop, err := o.StartBeside(worker, jan)
		if err != nil {
			return err
		}
		stack.push("beside", 5*time.Second, stop)
	}
	if jan != nil {
		stop := background(ctx, jan.Run)
		stack.push("janitor", 30*time.Second, func(limit context.Context) error {
			err := stop(limit)
			if f := o.Backend.file; f != nil && limit.Err() != nil {
				f.stuck.Store(true)
			}
			return err
		})
	}
	if worker == nil {
		<-ctx.Done()
		return nil
	}
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-o.Abort:
			worker.Abort()
		case <-ended:
		}
	})
	err = worker.Run(ctx)
	close(ended)
	watch.Wait()
	return err
}

// otherFiles is the number of files and connections that a process needs in addition to one for each task: for the
// servers or the database file, for the endpoints, and for idle connections to targets.
const otherFiles = 100

// warnOfFewFiles warns if the limit of open files is too low for one connection for each running task.
func warnOfFewFiles(log logrus.FieldLogger, concurrency int, limit uint64) {
	if needed := uint64(concurrency + otherFiles); limit > 0 && limit < needed {
		log.WithFields(logrus.Fields{"limit": limit, "needed": needed, "concurrency": concurrency}).Warn(
			"the limit of open files is low for the concurrency; raise it (ulimit -n, LimitNOFILE=) or lower worker.concurrency")
	}
}

func newJanitor(o ServeOptions) (*janitor.Janitor, error) {
	b, c := o.Backend, o.Backend.Config
	return janitor.New(janitor.Options{
		Store: b.Store, Desk: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: b.Settings(),
		Lease:   c.Worker.Lease,
		Prune:   b.PruneAges(),
		Present: b.presence(), Machine: machine{}, Name: c.Worker.Name, Log: b.Log, Observer: o.Observer, Notify: o.Notify,
		MaxPayload: c.Producer.MaxPayload, Check: b.Check, Sole: b.file != nil,
	})
}

// machine implements presence.Machine for this machine.
type machine struct{}

// Place implements presence.Machine.
func (machine) Place() (boot, namespace string) {
	self := process.Look()
	return self.Boot, self.Namespace
}

// Gone implements presence.Machine.
func (machine) Gone(pid int, started int64) bool { return process.Gone(pid, started) }

func newWorker(o ServeOptions, jan *janitor.Janitor) (*consumer.Consumer, error) {
	b, c := o.Backend, o.Backend.Config
	var handlers consumer.Registry
	if o.Handlers != nil {
		o.Handlers(&handlers)
	}
	var onReady func(time.Duration)
	var onBlocked func()
	if jan != nil {
		onReady, onBlocked = jan.Nudge, jan.Blocked
	}
	var present presence.Servers
	if c.Worker.Presence {
		present = b.presence()
	}
	return consumer.New(consumer.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Handlers: &handlers, Settings: b.Settings(),
		Concurrency: c.Worker.Concurrency, Queues: c.Worker.Queues, Lease: c.Worker.Lease, Sole: b.file != nil, Drain: c.Worker.DrainTimeout,
		Name: c.Worker.Name, Version: o.Version, Process: store.Process(process.Look()), Present: present, OnReady: onReady, OnBlocked: onBlocked, Log: b.Log, Observer: o.Observer,
		MaxPayload: c.Producer.MaxPayload, Check: b.Check, Tracer: b.Tracer,
	})
}

// background runs a service in a goroutine. It returns a function that stops the service, and waits until the service
// has ended or limit is done.
func background(ctx context.Context, run func(context.Context) error) func(context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return func(limit context.Context) error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-limit.Done():
			return limit.Err()
		}
	}
}
