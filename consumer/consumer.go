// Package consumer runs tasks.
//
// # The life of a ticket
//
//  1. An intake per queue, two for each lane, receives messages with manual ack and
//     gathers their tickets into a page, no larger than there is room for (intake.go).
//  2. The page is claimed in one statement: each ticket is ours, stale, held
//     by another run, ahead of the store, or of a type nobody here handles
//     (page.go). The claim says whether executors are reserved for the tasks or
//     they may wait in the worker's buffer (room.go).
//  3. What is ours starts at once; at the same time the page's manifest
//     goes to the holding queue (page.go, execute.go).
//  4. After the manifest's confirm, and only then, the page's messages are
//     acked, as the longest prefix of finished messages (acks.go).
//  5. Each result is judged by holdfast.Settle and written in batches
//     (results.go).
//  6. With every renewal of the lease the run tells how far its pages are
//     finished, so that the patrol can drop their manifests (lease.go).
//
// # What it promises
//
// A ticket is never acked before a confirmed step has made the next token of its
// task, or the store has proved it needless. A process that cannot renew its lease stops itself
// before anybody may declare it dead, cancels its handlers, keeps the
// finished results, and starts over as a new run. The package never decides what a
// failure means, and never declares a queue.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastq/holdfast/presence"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/store"
)

// The first and the longest pause before a consumer tries again.
const (
	firstPause = 50 * time.Millisecond
	longPause  = time.Second
)

// Store is what a consumer needs of the store.
type Store interface {
	store.Leases
	store.Work
	store.Tickets
}

// Broker is what a consumer needs of the broker.
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
	Settings holdfast.Settings

	Concurrency int           // handlers at once; 0 means 50
	Lanes       []string      // to consume; empty means every lane the store knows, new ones included
	Lease       time.Duration // 0 means 5 s; at least 1 s. It is renewed five times in that span
	Drain       time.Duration // what running handlers get to finish after Run's context is done; 0 means 25 s
	// ParkFor is how long the first park of a task without a handler lasts; 0 means 15 s. Each further park lasts twice
	// as long, up to ten minutes.
	ParkFor time.Duration

	// Name is for people; empty means host/pid. Consumers of one process need different ones: after the store has
	// lost commits it tells them apart.
	Name    string
	Version string // for people
	PID     int    // of this process, for the store; 0 means os.Getpid
	// Process identifies this process on its machine, together with its PID. If the process has ended, a janitor of the
	// same machine then need not wait for the end of the lease.
	Process store.Process
	// Present, if both its parts are set, has each run show two signs of its process's presence, so that janitors need
	// not wait for the end of its lease when the process is gone.
	Present presence.Servers
	// OnReady, if set, is told that a task of this process became ready again and how long it waits.
	OnReady  func(wait time.Duration)
	Log      logrus.FieldLogger // nil discards
	Observer holdfast.Observer  // nil discards
}

func (o *Options) complete() error {
	switch {
	case o.Store == nil || o.Broker == nil || o.Handlers == nil || o.Topology.Prefix == "" || o.Topology.Incarnation == "":
		return fmt.Errorf("%w: a consumer needs a store, a broker, a topology with its incarnation, and handlers", holdfast.ErrInvalid)
	case o.Concurrency < 0:
		return fmt.Errorf("%w: concurrency %d is negative", holdfast.ErrInvalid, o.Concurrency)
	case o.Lease != 0 && o.Lease < time.Second:
		return fmt.Errorf("%w: a lease of %s is shorter than 1s, too short to be renewed safely", holdfast.ErrInvalid, o.Lease)
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
	if o.Observer == nil {
		o.Observer = holdfast.Discard
	}
	o.Log = logs.Limited(o.Log)
	return nil
}

// Consumer runs tasks. Make one with New, run it once.
type Consumer struct {
	o       Options
	abort   chan struct{}
	aborted sync.Once
	current atomic.Pointer[session]
}

// New checks the options. It starts nothing.
func New(o Options) (*Consumer, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return &Consumer{o: o, abort: make(chan struct{})}, nil
}

// Run takes and runs tasks until ctx is done or an operator drains the worker.
// Handlers then have Options.Drain to finish; after that their contexts are cancelled with
// holdfast.ErrDraining, and what still runs a second later is handed back to the
// store while its handler may go on: a handler that ignores its context is the
// only goroutine that can outlive Run. It returns nil after a clean stop.
//
// Servers that are away are waited for, at any time and for ever, so Run returns an error only if
// results could not be written before the stop. It may be called once.
func (c *Consumer) Run(ctx context.Context) error {
	defer logs.Flush(c.o.Log)
	for {
		s, err := c.open(ctx)
		if err != nil {
			return nil // ctx ended before there was a run
		}
		c.current.Store(s)
		err = s.work(ctx)
		c.current.Store(nil)
		if !errors.Is(err, holdfast.ErrLeaseLost) {
			return err
		}
		c.o.Observer.Observe(holdfast.Observation{Kind: holdfast.ObservedLeaseLost, Count: 1})
		c.o.Log.WithField("run", s.run).Warn("this run's lease is lost; its handlers were cancelled, starting over as a new run")
	}
}

// Abort ends a drain at once: handlers are cancelled and their tasks handed back. It may
// be called at any time and more than once; before a drain it shortens the one to come.
func (c *Consumer) Abort() { c.aborted.Do(func() { close(c.abort) }) }

// open starts a new run, waiting for the store until ctx is done.
func (c *Consumer) open(ctx context.Context) (*session, error) {
	host, _ := os.Hostname()
	info := store.RunInfo{
		Name: c.o.Name, Host: host, PID: c.o.PID, Version: c.o.Version,
		Concurrency: c.o.Concurrency, Lanes: c.o.Lanes, Types: append([]string{}, c.o.Handlers.Types()...), Process: c.o.Process,
	}
	for pause := backoff.New(firstPause, longPause); ; {
		began := time.Now()
		// Not cancelled with ctx: an answer that nobody waits for would leave a live run without a worker.
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Lease)
		run, err := c.o.Store.OpenRun(attempt, info, c.o.Lease)
		cancel()
		if err == nil {
			return newSession(ctx, c.o, c.abort, run, info, began), nil
		}
		c.o.Log.WithError(err).Warn("cannot start a run, trying again")
		if err := pause.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// Status says what a consumer does now.
type Status struct {
	Run     holdfast.RunID // 0 while there is none
	Running int            // handlers
	// Consuming are the queues that are subscribed, Waiting those that are not, with the reason: a broker.ErrNoQueue if
	// the queue does not exist.
	Consuming []string
	Waiting   map[string]error
	RenewedAt time.Time // by this process's clock
	// Fault is the recent error for which this worker itself is at fault, nil if there is none: see
	// holdfast.WorkerFault. The worker takes fewer tasks meanwhile.
	Fault error
}

// Status may be called at any time.
func (c *Consumer) Status() Status {
	if s := c.current.Load(); s != nil {
		return s.status()
	}
	return Status{}
}
