// Package janitor repairs what crashes leave behind. Each duty has a file of its own:
//
//	fence.go       fences workers whose lease has expired, and takes their tasks back
//	patrol.go      reads the manifests in the holding queues, and takes the tasks of ended workers back
//	dispatch.go    publishes tickets of tasks that have become due
//	outbox.go      publishes tickets that producers stored but did not publish
//	isolate.go     keeps a queue that confirms nothing from delaying the tickets of other queues
//	rescue.go      checks messages in the rescue queue against the store
//	quarantine.go  moves malformed messages to the quarantine
//	sentinel.go    finds tickets that were lost without a detected fault
//	failures.go    reports failing duties to people
//	rebuild.go     declares missing AMQP queues, and refills a wiped broker from the store
//	clock.go       corrects stored times after the store's clock was set back
//	prune.go       deletes old rows
//	notify.go      announces groups of dead tasks, operations that stop, and late queues
//	recover.go     does the work of several duties at once, after the broker has lost its data
//	verify.go      finds tasks that break an invariant, for metrics and people
//	deaths.go      completes the records of dead tasks
//	counters.go    keeps the numbers of tasks
//	operations.go  makes the steps of operations, which change many tasks over a long time
//	plans.go       makes the steps of plans, such as schedules
//	gates.go       releases the tasks of open gates, and gives permits and slots to tasks
//
// Any number of janitors may run at the same time, without a leader. Each step is either exclusive in the store or
// harmless if it is done twice. A janitor acknowledges a message only after each of its tasks has a confirmed ticket or
// manifest, or is due in the store, or needs none of these.
//
// The package never runs a task, and never decides the result of an attempt: holdfast.Settle does.
package janitor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/logs"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// Store is the part of a store that a janitor uses.
type Store interface {
	store.Dispatch
	store.Fencing
	store.Patrol
	store.Repair
	store.Upkeep
	store.Verification
	store.Operations
	store.Plans
	FoldCounts(ctx context.Context, limit int) (int, error) // see store.Counters
	Recount(ctx context.Context) (corrected int64, err error)
	ReleaseBlocked(ctx context.Context, limit int) (store.Released, error) // see store.Gates
	Gates(ctx context.Context) ([]store.Gate, error)
	// See store.Inspector for these methods.
	Queues(ctx context.Context) ([]store.Queue, error)
	Task(ctx context.Context, id holdfast.TaskID) (holdfast.Task, error)
	List(ctx context.Context, f store.Filter) (store.Page, error)
	TypeSchemas(ctx context.Context, taskType string) ([]store.TypeSchema, error)
	Apply(ctx context.Context, moves []holdfast.Transition) ([]bool, error)
	Handlers(ctx context.Context) ([]store.Handler, error) // see store.Tickets
}

// Desk is the part of a desk that a janitor uses; see package desk.
type Desk interface {
	RecordDeaths(ctx context.Context, limit int) (int, error)
	Announce(ctx context.Context, f store.NoticeFilter, compose func([]store.Notice) (holdfast.NewTask, error)) (store.Announced, error)
}

// The values of Options.FenceGrace and Options.SentinelSlack, unless a test sets others.
const (
	FenceGrace    = 100 * time.Millisecond
	SentinelSlack = 30 * time.Second
)

// Options configures a Janitor. Store, Broker and Topology are required.
type Options struct {
	Store    Store
	Desk     Desk // nil: the records of deaths are not compared with the tasks, and nothing is announced
	Broker   broker.Broker
	Topology broker.Topology
	Settings holdfast.SettingsSource // nil means the zero value of holdfast.Settings

	// Lease is the length of the workers' leases; 0 means 5 s. The janitor fences no worker until the store has
	// answered it without a gap for Lease + FenceGrace.
	Lease      time.Duration
	FenceGrace time.Duration // from the end of a lease until the janitor fences the worker; 0 means FenceGrace
	// PatrolAfter is the age of a manifest at which the janitor queries the store for its tasks; 0 means 10 s. It must
	// be far below the broker's consumer timeout.
	PatrolAfter      time.Duration
	SentinelInterval time.Duration // time between two sentinels of a queue; 0 means 10 s
	// SentinelSlack is the minimum time between the arrival of a sentinel and the publish of the next one, if both
	// together are to prove a loss; 0 means SentinelSlack. If a ticket from before the first sentinel is still open
	// when the second arrives, the ticket is lost.
	SentinelSlack time.Duration
	RebuildEvery  time.Duration   // time between two checks of the topology; 0 means 2 s
	Prune         store.PruneAges // the zero value keeps all rows
	// MaxPayload is the maximum size of a payload after an edit by an operation, in bytes; 0 means
	// holdfast.DefaultMaxPayload.
	MaxPayload int
	// Check has the check functions of types that have one. Edits by operations call them; see producer.Options.
	Check map[string]func(payload []byte) error

	// Present, if both of its parts are set, lets the janitor fence a worker before its lease expires if its presence
	// is missing at both servers.
	Present presence.Servers
	// Machine, if set together with Present, lets the janitor fence workers of this machine whose processes have ended.
	Machine presence.Machine

	// Sole means that no other process runs tasks of the store and no broker has tickets of it when the janitor starts,
	// as with a file. The janitor then takes the tasks of earlier workers back, and publishes their tickets, before it
	// refills the broker. Otherwise these tasks would wait behind the whole backlog.
	Sole bool

	Notify *Notify // nil means that no event is announced

	Name     string             // shown to people
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
		{&o.Lease, 5 * time.Second}, {&o.FenceGrace, FenceGrace}, {&o.PatrolAfter, 10 * time.Second},
		{&o.SentinelInterval, 10 * time.Second}, {&o.SentinelSlack, SentinelSlack}, {&o.RebuildEvery, 2 * time.Second},
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
	if o.Settings == nil {
		o.Settings = holdfast.Settings{}
	}
	o.Log = logs.Limited(o.Log)
	return nil
}

// Janitor runs all duties; see New. Call Run once.
type Janitor struct {
	o         Options
	nudge     chan time.Duration
	entries   atomic.Bool   // there may be outbox entries to publish
	blocked   chan struct{} // has a value after a gate has blocked tasks
	planned   chan struct{} // has a value after a call of Planned
	fenced    chan struct{} // has a value while tasks of fenced workers wait for a sweep
	createdAt time.Time
	watcher   *presence.Watcher

	turn        chan struct{} // has a value while a duty has its turn; see inTurn
	failures    failures
	isolated    isolation
	limits      publishLimits
	rebuilding  chan struct{}         // a lock; has a value while a rebuild is in progress
	topologyErr atomic.Pointer[error] // result of the newest rebuild
	// knownTypeQueues are the type queues that the newest rebuild has found or declared.
	knownTypeQueues atomic.Pointer[[]string]
	// knownObjects are the names of the objects that this janitor has found in the broker or declared. The lock
	// rebuilding guards it.
	knownObjects    map[string]bool
	noticesAfter    string           // where the next search for groups to announce continues; used only by the duty notify
	quarantineTicks <-chan time.Time // has a value for each batch of malformed messages that the janitor may quarantine
}

// New returns a Janitor with the given options. It starts no goroutine. It returns an ErrInvalid if a required option
// is missing or a duration is negative.
func New(o Options) (*Janitor, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("janitor: %w", err)
	}
	j := &Janitor{
		o: o, nudge: make(chan time.Duration, 1), blocked: make(chan struct{}, 1), planned: make(chan struct{}, 1), fenced: make(chan struct{}, 1), createdAt: time.Now(),
		rebuilding: make(chan struct{}, 1), turn: make(chan struct{}, 1), knownObjects: make(map[string]bool), isolated: newIsolation(),
		failures:        failures{by: make(map[string]failure)},
		limits:          publishLimits{isolateAfter, probeTimeout, rebuildTimeout},
		quarantineTicks: time.Tick(quarantineEvery),
	}
	j.watcher = j.newWatcher()
	return j, nil
}

func (j *Janitor) newWatcher() *presence.Watcher {
	return presence.NewWatcher(presence.WatcherOptions{
		Servers: j.o.Present, Machine: j.o.Machine, Now: j.o.Store.Now, Presence: j.o.Topology.WorkerPresence,
		OwnPresence: j.o.Topology.JanitorPresence(fmt.Sprintf("%016x", rand.Uint64())), Lease: j.o.Lease, Quiet: j.quietPeriod(), Beat: j.beat,
		Fenced: j.workerFenced, Log: j.o.Log,
	})
}

// quietPeriod returns how long the store must have answered without a gap before the janitor fences a worker.
func (j *Janitor) quietPeriod() time.Duration { return j.o.Lease + j.o.FenceGrace }

// beat returns the time until the next beat. Beats are one interval apart, and the first is at the creation of the
// janitor. Frequent duties wait with beat so that they wake an idle process together. Waking the process costs more
// than their work.
func (j *Janitor) beat(interval time.Duration) time.Duration {
	return interval - time.Since(j.createdAt)%interval
}

// Run runs the duties until ctx is done. It returns nil when every goroutine that it started has ended. If a server is
// unavailable, Run tries again until the server answers. Run must be called only once.
func (j *Janitor) Run(ctx context.Context) error {
	defer logs.Flush(j.o.Log)
	j.watcher.Disturbed(time.Now())
	var duties sync.WaitGroup
	// The first ticket and the subscriptions wait until the first rebuild has ended, successfully or not. If a ticket
	// is published before its AMQP queue exists, the broker returns it, and its task waits for seconds. If a
	// subscription names an AMQP queue that does not exist, RabbitMQ logs an error.
	rebuilt, markRebuilt := context.WithCancel(ctx)
	duties.Go(func() {
		if j.o.Sole {
			if err := contain.Call(func() error { return j.takeOver(ctx) }); err != nil && ctx.Err() == nil {
				j.o.Log.WithError(err).Debug("tasks of earlier workers not taken back at the start; the duties do it")
			}
		}
		j.repeat(ctx, "rebuild", j.o.RebuildEvery, func(ctx context.Context) error {
			defer markRebuilt()
			return j.rebuild(ctx)
		})
	})
	duties.Go(func() {
		<-rebuilt.Done()
		j.dispatch(ctx)
	})
	duties.Go(func() {
		<-rebuilt.Done()
		j.repeat(ctx, "outbox", outboxEvery, j.outbox)
	})
	duties.Go(func() { j.probeIsolated(ctx) })
	duties.Go(func() { j.watchTypeQueues(ctx) })
	duties.Go(func() { j.fenceLoop(ctx) })
	duties.Go(func() { j.sweepFenced(ctx) })
	duties.Go(func() { j.watcher.Run(ctx) })
	duties.Go(func() { j.watcher.RunNeighbors(ctx) })
	for _, amqpQueue := range j.o.Topology.HoldingQueueNames() {
		duties.Go(func() {
			<-rebuilt.Done()
			j.receive(ctx, amqpQueue, patrolPrefetch, j.patrol)
		})
	}
	for _, amqpQueue := range append(j.o.Topology.Readable(), j.o.Topology.Rescue()) {
		duties.Go(func() {
			<-rebuilt.Done()
			j.receive(ctx, amqpQueue, rescuePrefetch, j.rescue)
		})
	}
	duties.Go(func() { j.repeat(ctx, "clock", clockEvery, j.correctTimes) })
	duties.Go(func() { j.repeat(ctx, "sentinel", time.Second, j.sentinels) })
	duties.Go(func() { j.repeatLater(ctx, "lost tickets", lostEvery*j.o.SentinelInterval, j.lostTickets) })
	duties.Go(func() { j.repeat(ctx, "abandoned tasks", sweepEvery, j.sweepAll) })
	duties.Go(func() { j.repeatLater(ctx, "prune", pruneEvery, j.prune) })
	if j.o.Desk != nil {
		duties.Go(func() { j.repeatLater(ctx, "deaths", deathsEvery, j.recordDeaths) })
	}
	duties.Go(func() { j.repeatLater(ctx, "verify", verifyTick, j.verify) })
	if j.o.Desk != nil && j.o.Notify != nil {
		duties.Go(func() { j.repeat(ctx, "notify", notifyEvery, j.notify) })
	}
	duties.Go(func() { j.repeat(ctx, "fold counts", foldEvery, j.foldCounts) })
	duties.Go(func() { j.repeatLater(ctx, "recount", recountEvery, j.recount) })
	// Patches may be slow, so edits have a loop of their own.
	duties.Go(func() {
		j.operations(ctx, "operations", slices.DeleteFunc(store.Actions(), func(a store.Action) bool { return a == store.ActionEdit })...)
	})
	duties.Go(func() { j.operations(ctx, "edits", store.ActionEdit) })
	duties.Go(func() { j.plans(ctx) })
	duties.Go(func() { j.releaseLoop(ctx) })
	duties.Wait()
	return nil
}

// Nudge notifies the dispatch duty that a task becomes due after wait. If wait is 0, there may be an outbox entry to
// publish. Nudge never blocks. It is safe for concurrent use.
func (j *Janitor) Nudge(wait time.Duration) {
	if wait > dispatchCap {
		return // the dispatch duty queries the store before that time
	}
	if wait <= 0 {
		j.entries.Store(true)
	}
	select {
	case j.nudge <- wait:
	default: // a dispatch is already pending
	}
}

// repeat runs a duty at once and then at every beat of the interval, until ctx is done. After a failure it waits for at
// least a quarter of the interval, and longer after each further failure. So a costly duty does not run much more often
// than usual.
func (j *Janitor) repeat(ctx context.Context, name string, interval time.Duration, duty func(context.Context) error) {
	pause := backoff.New(firstPause, longPause)
	for {
		err := contain.Call(func() error { return j.inTurn(ctx, duty) })
		wait := j.beat(interval)
		if err == nil {
			pause.Reset()
			j.succeeded(ctx, name)
		} else if ctx.Err() == nil {
			wait = max(pause.Next(), interval/4)
			j.failed(ctx, name, err, wait)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// longestTurn is how long a duty waits for its turn.
const longestTurn = 20 * time.Millisecond

// inTurn calls a duty. At a beat, many duties begin together. If each used a connection of its own, the database would
// have a dozen more sessions with all their statements, and the sessions of the workers' statements would lose their
// place in the caches. So one duty follows the other, unless that takes longer than longestTurn.
func (j *Janitor) inTurn(ctx context.Context, duty func(context.Context) error) error {
	turn := time.NewTimer(longestTurn)
	defer turn.Stop()
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-turn.C:
	case <-ctx.Done():
	}
	return duty(ctx)
}

// repeatLater is repeat for a duty that reads many tasks and is not urgent. The first run comes after a random part of
// the interval. So a starting process first handles its backlog, and janitors that start together do not read the same
// tasks together.
func (j *Janitor) repeatLater(ctx context.Context, name string, interval time.Duration, duty func(context.Context) error) {
	if backoff.Sleep(ctx, rand.N(interval)) == nil {
		j.repeat(ctx, name, interval, duty)
	}
}

// receive calls work with one subscription after another until ctx is done. When a subscription ends, its
// unacknowledged messages return to the AMQP queue. That counts against the broker's delivery limit. So receive
// subscribes again only after the store has answered.
func (j *Janitor) receive(ctx context.Context, amqpQueue string, prefetch int, work func(context.Context, broker.Subscription) error) {
	log := j.o.Log.WithField("queue", amqpQueue)
	duty := "subscribe to " + amqpQueue
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		sub, err := j.o.Broker.Subscribe(ctx, amqpQueue, prefetch)
		if err != nil && ctx.Err() == nil {
			j.reportFailed(ctx, duty, err, longPause)
		}
		if err == nil {
			j.succeeded(ctx, duty)
			began := time.Now()
			err = contain.Call(func() error { return work(ctx, sub) })
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
		if _, panicked := errors.AsType[*holdfast.PanicError](err); panicked {
			j.failed(ctx, duty, err, longPause)
		}
		log.WithError(err).Debug("subscription ended, subscribing again")
		for pause.Wait(ctx) == nil {
			if _, err := j.o.Store.Now(ctx); err == nil {
				break
			}
		}
	}
}

// The pauses of a duty after failures grow from firstPause to longPause.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
)

// steady is the minimum age of a subscription whose end does not indicate a lasting fault.
const steady = 30 * time.Second

// observe reports n events to the observer, if there are any.
func (j *Janitor) observe(kind holdfast.ObservationKind, n int) {
	if n > 0 {
		j.o.Observer.Observe(holdfast.Observation{Kind: kind, Count: n})
	}
}
