// Package janitor heals what crashes leave behind. Each duty is a file, named
// for what it does:
//
//	fence.go     declares runs dead whose lease is over, and takes their tasks back
//	patrol.go    reads the manifests in the holding queues and returns the work of gone runs
//	schedule.go  publishes tickets of tasks that have become due
//	outbox.go    publishes what producers stored and could not publish
//	isolate.go   keeps a queue that confirms nothing from delaying the tickets of other queues
//	rescue.go    explains messages the broker would have dropped
//	sentinel.go  proves tickets lost that vanished without a fault anybody saw
//	rebuild.go   declares missing queues, and refills a wiped broker from the store
//	prune.go     deletes old rows
//
// Any number of janitors may work at once, without a leader: every step is
// either exclusive in the store or harmless to do twice. No step acks a
// message before a confirmed step has made the next token of its tasks, or the store has
// proved it needless.
//
// The package never runs a task and never judges one: holdfast.Settle does.
package janitor

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// Store is what a janitor needs of the store.
type Store interface {
	store.Dispatch
	store.Fencing
	store.Patrol
	store.Repair
	store.Upkeep
	Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error)
}

// Options configures a Janitor. Store, Broker and Topology are required.
type Options struct {
	Store    Store
	Broker   broker.Broker
	Topology broker.Topology
	Settings holdfast.Settings

	// Lease is the length of the workers' leases; 0 means 5 s. Nobody is fenced until this janitor
	// has reached the store without a gap for Lease + FenceGrace.
	Lease      time.Duration
	FenceGrace time.Duration // past the end of a lease; 0 means 100 ms
	// PatrolAfter is the age at which the store is asked about an open manifest; 0 means 10 s. It must
	// stay far below the broker's consumer timeout.
	PatrolAfter      time.Duration
	SentinelInterval time.Duration // 0 means 10 s
	// SentinelSlack is how long after a sentinel has come out of its lane another one must be sent. When that one has
	// come out too, they prove tickets lost that were published before the first; 0 means 30 s.
	SentinelSlack time.Duration
	RebuildEvery  time.Duration   // how often the topology is checked; 0 means 2 s
	Keep          store.PruneAges // zero keeps everything for ever

	// Present, if both its parts are set, lets this janitor fence the run of a process that is gone before its lease is
	// over, when both signs of its presence say so.
	Present presence.Servers
	// Machine, if it is set beside Present, lets this janitor fence the runs of processes of the same machine that have ended.
	Machine presence.Machine

	Name     string             // for people
	Log      logrus.FieldLogger // nil discards
	Observer holdfast.Observer  // nil discards
}

func (o *Options) complete() error {
	if o.Store == nil || o.Broker == nil || o.Topology.Prefix == "" || o.Topology.Incarnation == "" {
		return fmt.Errorf("%w: a janitor needs a store, a broker and a topology with its incarnation", holdfast.ErrInvalid)
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.Lease, 5 * time.Second}, {&o.FenceGrace, 100 * time.Millisecond}, {&o.PatrolAfter, 10 * time.Second},
		{&o.SentinelInterval, 10 * time.Second}, {&o.SentinelSlack, 30 * time.Second}, {&o.RebuildEvery, 2 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < 0 {
			return fmt.Errorf("%w: a janitor's durations cannot be negative", holdfast.ErrInvalid)
		}
	}
	if o.Observer == nil {
		o.Observer = holdfast.Discard
	}
	o.Log = logs.Limited(o.Log)
	return nil
}

// Janitor does all the duties. Make one with New, run it once.
type Janitor struct {
	o       Options
	nudge   chan time.Duration
	fenced  chan struct{} // has a token while fenced runs wait for a sweep
	made    time.Time
	watcher *presence.Watcher

	isolated   isolation
	rebuilding chan struct{} // has a token while a rebuild is in progress
	refused    atomic.Pointer[error]
	// seen are the objects that this janitor has seen in the broker, or declared. Whoever has the token of rebuilding may
	// use it.
	seen  map[string]bool
	aside <-chan time.Time // ticks when the janitor may quarantine malformed messages
}

// New checks the options. It starts nothing.
func New(o Options) (*Janitor, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	j := &Janitor{
		o: o, nudge: make(chan time.Duration, 1), fenced: make(chan struct{}, 1), made: time.Now(),
		rebuilding: make(chan struct{}, 1), seen: make(map[string]bool), isolated: newIsolation(), aside: time.Tick(asideEvery),
	}
	j.watcher = j.newWatcher()
	return j, nil
}

func (j *Janitor) newWatcher() *presence.Watcher {
	return presence.NewWatcher(presence.WatcherOptions{
		Servers: j.o.Present, Machine: j.o.Machine, Now: j.o.Store.Now, Sign: j.o.Topology.Sign,
		Witness: j.o.Topology.Witness(fmt.Sprintf("%016x", rand.Uint64())), Lease: j.o.Lease, Quiet: j.need(), Beat: j.beat,
		Fenced: j.declaredDead, Log: j.o.Log,
	})
}

// need is how long the store must have answered without a gap before this janitor fences.
func (j *Janitor) need() time.Duration { return j.o.Lease + j.o.FenceGrace }

// beat is the time until the next multiple of an interval. What is done often by several duties is done at
// the same moments, for waking an idle process costs more than what it then does.
func (j *Janitor) beat(interval time.Duration) time.Duration {
	return interval - time.Since(j.made)%interval
}

// Run does the duties until ctx is done and returns nil when everything it
// started has ended. Servers that are away are waited for. It may be called once.
func (j *Janitor) Run(ctx context.Context) error {
	defer logs.Flush(j.o.Log)
	j.watcher.Disturbed(time.Now())
	var duties sync.WaitGroup
	// A ticket that is published before its queue exists is refused, and its task put off by seconds. So
	// the first look at the topology, whatever it leads to, comes before the first ticket.
	looked, look := context.WithCancel(ctx)
	duties.Go(func() {
		j.repeat(ctx, "rebuild", j.o.RebuildEvery, func(ctx context.Context) error {
			defer look()
			return j.rebuild(ctx)
		})
	})
	duties.Go(func() {
		<-looked.Done()
		j.schedule(ctx)
	})
	duties.Go(func() {
		<-looked.Done()
		j.repeat(ctx, "outbox", outboxEvery, j.outbox)
	})
	duties.Go(func() { j.probeIsolated(ctx) })
	duties.Go(func() { j.fenceLoop(ctx) })
	duties.Go(func() { j.sweepFenced(ctx) })
	duties.Go(func() { j.watcher.Run(ctx) })
	duties.Go(func() { j.watcher.RunNeighbors(ctx) })
	for _, queue := range j.o.Topology.Holds() {
		duties.Go(func() { j.receive(ctx, queue, handSize, j.patrol) })
	}
	duties.Go(func() { j.receive(ctx, j.o.Topology.Rescue(), rescuePrefetch, j.rescue) })
	duties.Go(func() { j.repeat(ctx, "clock", clockEvery, j.correctTimes) })
	duties.Go(func() { j.repeat(ctx, "sentinel", time.Second, j.sentinels) })
	duties.Go(func() { j.repeat(ctx, "lost tickets", lostEvery*j.o.SentinelInterval, j.lostTickets) })
	duties.Go(func() { j.repeat(ctx, "abandoned tasks", sweepEvery, j.sweepAll) })
	duties.Go(func() { j.repeat(ctx, "prune", pruneEvery, j.prune) })
	duties.Wait()
	return nil
}

// Nudge tells the scheduler that a task will be due in wait, sooner perhaps than it
// knows. It never blocks and may be called at any time.
func (j *Janitor) Nudge(wait time.Duration) {
	if wait > scheduleCap {
		return // it looks by itself before that
	}
	select {
	case j.nudge <- wait:
	default: // a look is due anyway
	}
}

// repeat does a duty at once and then at every beat of the interval, until ctx is done. After a
// failure it tries again with growing pauses, and a costly duty not much more often than usual.
func (j *Janitor) repeat(ctx context.Context, name string, interval time.Duration, duty func(context.Context) error) {
	pause := backoff.New(firstPause, longPause)
	for {
		err := duty(ctx)
		wait := j.beat(interval)
		if err == nil {
			pause.Reset()
		} else if ctx.Err() == nil {
			j.o.Log.WithError(err).WithField("duty", name).Warn("a duty failed, trying again")
			wait = max(pause.Next(), interval/4)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// receive hands one subscription after another to work, until ctx is done. Each end of a
// subscription returns what was in hand and counts against the broker's delivery
// limit; so while the store is away nothing is received at all.
func (j *Janitor) receive(ctx context.Context, queue string, prefetch int, work func(context.Context, broker.Subscription) error) {
	log := j.o.Log.WithField("queue", queue)
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		sub, err := j.o.Broker.Subscribe(ctx, queue, prefetch)
		if err == nil {
			began := time.Now()
			err = work(ctx, sub)
			if time.Since(began) > steady {
				pause.Reset()
			}
			if closeErr := sub.Close(); closeErr != nil {
				log.WithError(closeErr).Debug("close subscription")
			}
		}
		if ctx.Err() != nil {
			return
		}
		log.WithError(err).Debug("the subscription is over, subscribing again")
		for pause.Wait(ctx) == nil {
			if _, err := j.o.Store.Now(ctx); err == nil {
				break
			}
		}
	}
}

// The first and the longest pause before a duty is tried again.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// steady is how long a subscription must last for its end to be no sign of a lasting fault.
const steady = 30 * time.Second

func (j *Janitor) see(kind holdfast.ObservationKind, n int) {
	if n > 0 {
		j.o.Observer.Observe(holdfast.Observation{Kind: kind, Count: n})
	}
}
