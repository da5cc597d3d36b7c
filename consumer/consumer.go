// Package consumer runs tasks.
//
// # The life of a ticket
//
//  1. Each queue has two intakes, one for its main queue and one for its requeue queue. An intake receives messages and
//     gathers their tickets into a page, within the capacity of the worker (intake.go, capacity.go).
//  2. The worker claims the page in one statement. The store claims each task or answers why not: the ticket is stale or
//     ahead of the store, another worker runs the task, a closed gate concerns the task, the type has no handler here,
//     or the task is a last-chance task (page.go, lastchance.go). The claim also records whether executors are reserved
//     for the tasks, or the tasks may wait in the worker's buffer.
//  3. The claimed tasks start at once. At the same time the worker publishes the page's manifest to the holding queue
//     (page.go, execute.go).
//  4. When the broker has confirmed the manifest, and not before, the worker acks the page's messages. It acks them in
//     the order of delivery (acks.go).
//  5. holdfast.Settle decides the transition for each result. The worker writes the results to the store in groups
//     (results.go).
//  6. With each renewal of its lease the worker reports up to which page everything is finished, so that the patrol can
//     drop the manifests of these pages (lease.go).
//
// # Guarantees
//
// The worker acks a ticket only in two cases: the broker has confirmed a message that replaces the ticket, or the store
// has answered that the ticket is not needed. A worker that cannot renew its lease stops before another process may
// fence it: it cancels its handlers, keeps the finished results, and registers again as a new worker. The package never
// decides the consequence of a failure, and never declares an AMQP queue.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// Limits of the pause between two tries of an operation.
const (
	firstPause = 50 * time.Millisecond
	longPause  = time.Second
)

// Store is the part of a store that a consumer uses.
type Store interface {
	store.Leases
	store.Work
	store.Tickets
	store.Breakers
	store.Effects
}

// Broker is the part of a broker that a consumer uses.
type Broker interface {
	broker.Publisher
	broker.Subscriber
}

// Options configures a Consumer. Store, Broker, Topology and Handlers are required.
type Options struct {
	Store    Store
	Broker   Broker
	Topology broker.Topology
	Handlers *Registry
	Settings holdfast.SettingsSource // nil means the zero value of holdfast.Settings

	// Concurrency is the number of handlers that may run at once; 0 means 50.
	Concurrency int
	// Queues are the queues to consume. If empty, the worker consumes all queues that the store knows, including those
	// added later.
	Queues []string
	// Lease is the length of the lease, at least 1 s; 0 means 5 s. The worker renews it five times in that span.
	Lease time.Duration
	// Sole means that no other process may fence workers of the store, as with a file. Then a renewal waits as long as
	// the store needs, and the lease does not end meanwhile: to give up would protect no other process and cancel the
	// handlers.
	Sole bool
	// Drain is how long running handlers may continue after Run's context is done; 0 means 25 s.
	Drain time.Duration
	// ParkFor is how long a task is parked the first time if no live worker has a handler for its type; 0 means 15 s,
	// and store.LongestPark is the maximum. Each further park lasts twice as long, up to store.LongestPark. A worker
	// with a handler that registers ends the wait.
	ParkFor time.Duration

	// MaxPayload is the maximum size in bytes of an output, of another value that an attempt stores, and of the payload
	// of a next task; 0 means holdfast.DefaultMaxPayload. Check has the check functions of the payloads of next tasks,
	// by type.
	MaxPayload int
	Check      map[string]func(payload []byte) error

	// Name is for people; empty means host/pid. The consumers of one process need different names. If the store has
	// lost commits, it distinguishes them by name.
	Name    string
	Version string // for people
	PID     int    // of this process; 0 means os.Getpid()
	// Process identifies this process on its machine, together with PID. If the process ends, a janitor on the same
	// machine need not wait until the lease expires.
	Process store.Process
	// Present, if both of its parts are set, lets each worker acquire its presence at both servers. If the process
	// ends, janitors need not wait until the lease expires.
	Present presence.Servers
	// OnReady, if set, is called when a task of this process becomes ready again, and when the next ordered task of a
	// key may start. wait is how long the task waits before it is due.
	OnReady func(wait time.Duration)
	// OnBlocked, if set, is called when gates have blocked tasks that this process wanted to claim. A janitor of the
	// same process then checks at once whether limits admit them.
	OnBlocked func()
	Log       logrus.FieldLogger // nil discards
	Observer  holdfast.Observer  // nil discards
	Tracer    holdfast.Tracer    // nil means no tracing
}

func (o *Options) complete() error {
	switch {
	case o.Store == nil || o.Broker == nil || o.Handlers == nil || o.Topology.Prefix == "" || o.Topology.Incarnation == "":
		return fmt.Errorf("%w: a store, a broker, a topology with its incarnation, and handlers are required", holdfast.ErrInvalid)
	case o.Concurrency < 0:
		return fmt.Errorf("%w: concurrency %d is negative", holdfast.ErrInvalid, o.Concurrency)
	case o.ParkFor < 0 || o.ParkFor > store.LongestPark:
		return fmt.Errorf("%w: a park of %s is not between 0 and %s", holdfast.ErrInvalid, o.ParkFor, store.LongestPark)
	case o.Lease != 0 && o.Lease < time.Second:
		return fmt.Errorf("%w: lease %s is shorter than 1s, too short for safe renewals", holdfast.ErrInvalid, o.Lease)
	}
	if o.Concurrency == 0 {
		o.Concurrency = 50
	}
	if o.Lease == 0 {
		o.Lease = 5 * time.Second
	}
	if o.Drain == 0 {
		o.Drain = 25 * time.Second
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = holdfast.DefaultMaxPayload
	}
	if o.ParkFor == 0 {
		o.ParkFor = 15 * time.Second
	}
	if o.PID == 0 {
		o.PID = os.Getpid()
	}
	if o.Name == "" {
		host, _ := os.Hostname()
		o.Name = fmt.Sprintf("%s/%d", host, o.PID)
	}
	if o.OnReady == nil {
		o.OnReady = func(time.Duration) {}
	}
	if o.OnBlocked == nil {
		o.OnBlocked = func() {}
	}
	if o.Observer == nil {
		o.Observer = holdfast.Discard
	}
	if o.Settings == nil {
		o.Settings = holdfast.Settings{}
	}
	o.Log = logs.Limited(o.Log)
	return nil
}

// Consumer runs tasks. Create one with New. Its methods are safe for concurrent use.
type Consumer struct {
	o       Options
	abort   chan struct{}
	aborted sync.Once
	current atomic.Pointer[session]
	targets *targets
	// abandoned is the number of abandoned handlers that still run. They may outlive their worker.
	abandoned atomic.Int64
}

// New returns a Consumer, or an ErrInvalid if the options are invalid. It starts no goroutine.
func New(o Options) (*Consumer, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	c := &Consumer{o: o, abort: make(chan struct{})}
	c.targets = newTargets(func() holdfast.BreakerRules { return o.Settings.For(holdfast.TypeHTTP).Breaker }, o.Concurrency, o.Store.ReportTargets, o.Log)
	return c, nil
}

// Run runs tasks until ctx is done or an operator drains the worker. It must be called only once.
//
// When Run stops, handlers have Options.Drain to finish. Then Run cancels their contexts with holdfast.ErrDraining. One
// second later it hands the tasks that still run back to the store. Only a handler that ignores its context can outlive
// Run.
//
// Run returns nil after a clean stop. If a server is unavailable, Run waits for it without limit. Run returns an error
// if results were not written before the stop, or if too many abandoned handlers still ran; see
// holdfast.TypeSettings.AbandonAfter. In the second case the process must restart to end these handlers.
func (c *Consumer) Run(ctx context.Context) error {
	defer logs.Flush(c.o.Log)
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	var reporter sync.WaitGroup
	reporter.Go(func() { c.targets.run(reporting) })
	defer reporter.Wait()
	defer stopReporting()
	for {
		s, err := c.open(ctx)
		if err != nil {
			return nil // ctx was done before the worker was registered
		}
		c.current.Store(s)
		err = s.run(ctx)
		c.current.Store(nil)
		if !errors.Is(err, holdfast.ErrLeaseLost) {
			return err
		}
		c.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedLeaseLost, Count: 1})
		c.o.Log.WithField("worker", s.worker).Warn("lease lost: handlers cancelled, registering again as a new worker")
	}
}

// Abort ends a drain at once: it cancels the handlers and hands their tasks back. Without a drain in progress, it
// affects the next drain. Abort may be called more than once.
func (c *Consumer) Abort() { c.aborted.Do(func() { close(c.abort) }) }

// open registers a new worker. It waits for the store until ctx is done.
func (c *Consumer) open(ctx context.Context) (*session, error) {
	host, _ := os.Hostname()
	info := store.WorkerInfo{
		Name: c.o.Name, Host: host, PID: c.o.PID, Version: c.o.Version,
		Concurrency: c.o.Concurrency, Queues: c.o.Queues, Types: append([]string{}, c.o.Handlers.Types()...), Schemas: c.o.Handlers.schemas(),
		Process: c.o.Process,
	}
	for pause := backoff.New(firstPause, longPause); ; {
		began := time.Now()
		// The call is not cancelled with ctx. If its answer were lost, the store would have a live worker that no
		// process serves.
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Lease)
		worker, err := c.o.Store.RegisterWorker(attempt, info, c.o.Lease)
		cancel()
		if err == nil {
			s := newSession(ctx, c.o, c.targets, c.abort, worker, began)
			s.jobs.abandoned = &c.abandoned
			return s, nil
		}
		c.o.Log.WithError(err).Warn("worker not registered, trying again")
		if err := pause.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Status describes the state of a Consumer.
type Status struct {
	Worker  holdfast.WorkerID // 0 if no worker is registered
	Running int               // number of running handlers, without abandoned ones
	// Stuck is the number of running handlers that ignore the end of their contexts. Abandoned is the number of those
	// whose attempts the worker has given up.
	Stuck, Abandoned int
	// Consuming lists the AMQP queues with a subscription. Waiting has the other queues, each with the reason. The
	// reason is a broker.ErrNoQueue if the AMQP queue does not exist.
	Consuming []string
	Waiting   map[string]error
	Paused    []string  // AMQP queues without a subscription, because a person has paused their queue
	RenewedAt time.Time // time of the last renewal, by this process's clock
	// Fault is a recent error for which this worker is at fault, or nil; see holdfast.WorkerFault. While it is set, the
	// worker takes fewer tasks. It is also set when a worker stops because of too many abandoned handlers.
	Fault error
}

// Status returns the state of the worker, or the zero Status if no worker is registered.
func (c *Consumer) Status() Status {
	if s := c.current.Load(); s != nil {
		return s.status()
	}
	return Status{}
}
