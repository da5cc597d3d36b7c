package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/consumer"
	"github.com/holdfastq/holdfast/internal/process"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
)

// ServeOptions says what a daemon runs. Backend is required.
type ServeOptions struct {
	Backend *Backend
	Version string
	// Handlers adds the task types that the worker runs; nil adds none.
	Handlers func(*consumer.Registry)
	Observer holdfast.Observer // of the worker and the janitor; nil discards
	// Abort, when closed, ends a drain at once: handlers are cancelled, their tasks handed back.
	Abort <-chan struct{}
	// Beside, if set, starts what the process runs beside the services, before any of them starts. Serve calls stop after
	// they have ended. worker and jan are nil without those roles.
	Beside func(worker *consumer.Consumer, jan *janitor.Janitor) (stop func(context.Context) error, err error)
}

// Serve runs the roles of the backend's configuration until ctx is done or an operator drains the
// worker, and returns when all of it has ended, in this order: the worker drains, the janitor
// stops, then what runs beside them. The backend is the caller's to close. The error is the first that
// kept a part from starting, or the worker's, if results could not be written. It is an ErrConflict
// if another process serves the embedded default's file.
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
		log.WithField("file", f.store.Path()).Info("tasks are kept in this file, which only this process serves now")
	}
	if o.Backend.sessionless() {
		log.Warn("presence is off: a connection pooler keeps no sessions; set database.direct_url to recover within a second")
	}
	var jan *janitor.Janitor
	if cfg.HasRole(configs.RoleJanitor) {
		if jan, err = newJanitor(o); err != nil {
			return err
		}
	}
	var worker *consumer.Consumer
	if cfg.HasRole(configs.RoleWorker) {
		if worker, err = newWorker(o, jan); err != nil {
			return err
		}
		warnOfFewFiles(log, cfg.Worker.Concurrency, maxFiles())
	}
	if o.Beside != nil {
		stop, err := o.Beside(worker, jan)
		if err != nil {
			return err
		}
		stack.push("beside the services", 5*time.Second, stop)
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

// besideTasks is how many files and connections a process has open besides those of its tasks: for the servers or the
// file, for the endpoints, and connections to targets that it keeps for the next request.
const besideTasks = 100

// warnOfFewFiles warns if each task cannot have a connection of its own.
func warnOfFewFiles(log logrus.FieldLogger, concurrency int, limit uint64) {
	if needed := uint64(concurrency + besideTasks); limit > 0 && limit < needed {
		log.WithFields(logrus.Fields{"limit": limit, "needed": needed, "concurrency": concurrency}).Warn(
			"the limit of open files is low for the concurrency; raise it (ulimit -n, LimitNOFILE=) or lower worker.concurrency")
	}
}

func newJanitor(o ServeOptions) (*janitor.Janitor, error) {
	b, c := o.Backend, o.Backend.Config
	var present presence.Servers
	present.Store, present.Broker = b.presence()
	return janitor.New(janitor.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Settings: c.Settings(),
		Lease: c.Worker.Lease, FenceGrace: c.Janitor.FenceGrace, PatrolAfter: c.Janitor.PatrolAfter,
		SentinelInterval: c.Janitor.SentinelInterval, SentinelSlack: c.Janitor.SentinelSlack, RebuildEvery: c.Janitor.RebuildEvery,
		Keep: store.PruneAges{
			Done: c.Janitor.KeepDone, Cancelled: c.Janitor.KeepCancelled,
			Archived: c.Janitor.KeepArchived, Runs: c.Janitor.KeepRuns,
		},
		Present: present, Machine: machine{}, Name: c.Worker.Name, Log: b.Log, Observer: o.Observer,
	})
}

// machine is the machine that this process runs on.
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
	onReady := func(time.Duration) {}
	if jan != nil {
		onReady = jan.Nudge
	}
	var present presence.Servers
	if c.Worker.Presence {
		present.Store, present.Broker = b.presence()
	}
	return consumer.New(consumer.Options{
		Store: b.Store, Broker: b.Broker, Topology: b.Topology, Handlers: &handlers, Settings: c.Settings(),
		Concurrency: c.Worker.Concurrency, Lanes: c.Worker.Lanes, Lease: c.Worker.Lease, Drain: c.Worker.DrainTimeout, ParkFor: c.Worker.ParkFor,
		Name: c.Worker.Name, Version: o.Version, Process: store.Process(process.Look()), Present: present, OnReady: onReady, Log: b.Log, Observer: o.Observer,
	})
}

// background runs a service beside the caller and returns what stops it and waits for it.
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
