package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/presence"
	"github.com/holdfastq/holdfast/store"
)

// errDrainRequested ends the intake when an operator requests the drain of this worker.
var errDrainRequested = errors.New("an operator requested the drain of this worker")

// errStopped cancels the handlers that still run when the worker ends.
var errStopped = errors.New("the worker has ended")

// session is one worker, from its registration to its end.
type session struct {
	o      Options
	log    logrus.FieldLogger
	worker holdfast.WorkerID
	abort  <-chan struct{}

	lease     *lease
	present   *presence.Keeper
	capacity  *capacity
	pages     *pages
	jobs      *jobs
	results   *results
	ended     *throughput
	types     []string                       // the types with a handler
	wanted    atomic.Pointer[[]store.Wanted] // tasks that may run beside others; see ordinary
	exclusive chan turnGap                   // has a value while no page has the exclusive turn

	cancelHandling context.CancelCauseFunc // cancels all handlers

	fenced atomic.Bool // the store has fenced the worker
	// disowned is closed when the worker has given up a claim. The worker must then end, even if a failover to an older
	// state makes the store accept its next renewal. The page's messages are unacked, and the broker redelivers them
	// only when their subscription ends.
	disowned chan struct{}
	disown   func()

	claimedIDs idRanges // only tasks with these ids can be running under this worker
	// unansweredIDs is the part of claimedIDs whose claims got no answer. The store may have committed these claims.
	unansweredIDs idRanges

	// Only keepLease uses settings, renewedOnce, history and commitsMayBeLost while it runs. Other functions may use
	// them after it has returned.
	settings         []byte        // JSON of the settings that the store has, as far as this process knows
	renewedOnce      bool          // a renewal was answered
	history          string        // history of the store in the last answered renewal
	commitsMayBeLost bool          // the store may have lost commits since the worker was registered
	historyChanged   chan struct{} // has a token when the store may have lost commits

	tooMany atomic.Pointer[tooManyAbandonedError] // why the worker stops itself; nil if it does not

	targets   *targets
	unhandled sync.Map // types without a handler that were logged
	handlers  handlers // of other workers
	// firstQueues has the queues that the store knows, once the first renewal was answered.
	firstQueues chan []string

	mu           sync.Mutex
	stopped      bool             // no more intakes start
	intakes      map[string]error // by AMQP queue: why it has no subscription; nil if it has one
	paused       pausedQueues
	receivers    sync.WaitGroup // intakes and the pages that they started
	singleWrites sync.WaitGroup // goroutines of writeSingle
}

func newSession(ctx context.Context, o Options, ts *targets, abort <-chan struct{}, worker holdfast.WorkerID, began time.Time) *session {
	// A drain lets handlers finish, so ctx does not end their context.
	handling, cancelHandling := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &session{
		o: o, worker: worker, abort: abort, targets: ts,
		log:            o.Log.WithField("worker", worker),
		lease:          newLease(o.Lease, o.Sole, began),
		present:        presence.NewKeeper(),
		capacity:       newCapacity(o.Concurrency),
		pages:          newPages(),
		results:        newResults(),
		ended:          newThroughput(time.Now()),
		types:          o.Handlers.Types(),
		intakes:        make(map[string]error),
		exclusive:      make(chan turnGap, 1),
		historyChanged: make(chan struct{}, 1),
		firstQueues:    make(chan []string, 1),

		cancelHandling: cancelHandling,
	}
	s.capacity.unbuffered = s.handlesAtMostOnce
	s.exclusive <- turnGap{}
	s.disowned = make(chan struct{})
	s.disown = sync.OnceFunc(func() { close(s.disowned) })
	s.jobs = newJobs(s.capacity, func(j *job) { s.execute(handling, j) }, s.results.expect)
	return s
}

// handlesAtMostOnce reports whether a type with a handler runs at most once.
func (s *session) handlesAtMostOnce() bool {
	return slices.ContainsFunc(s.types, func(name string) bool { return s.o.Settings.For(name).Policy.AtMostOnce })
}

// run runs the worker and returns when everything that it started has ended. It returns nil after a drain. It returns
// ErrLeaseLost if the process must register again as a new worker. Any other error means that results were not written
// before the stop.
func (s *session) run(ctx context.Context) error {
	// The worker keeps its presence until everything has ended, because a janitor that finds the presence missing may
	// give the tasks to other workers.
	presenceCtx, stopPresence := context.WithCancel(context.WithoutCancel(ctx))
	var presenceEnded sync.WaitGroup
	presenceEnded.Go(func() {
		s.present.Keep(presenceCtx, s.o.Present, s.worker, s.o.Topology.WorkerPresence(s.worker), s.o.Lease, s.log)
	})
	defer presenceEnded.Wait()
	defer stopPresence()

	intake, stopIntake := context.WithCancelCause(ctx)
	defer stopIntake(nil)
	var background sync.WaitGroup
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))

	background.Go(func() { s.settleResults(settling) })
	background.Go(func() { s.handBackWaiters(settling) })
	background.Go(func() { s.watchHandlers(settling, stopIntake) })
	lost := make(chan struct{})
	background.Go(func() { s.reconcile(settling) })
	background.Go(func() { s.introduce(intake) })
	background.Go(func() {
		defer close(lost)
		err := s.keepLease(settling, func(result store.RenewResult) { s.act(intake, stopIntake, result) })
		if err != nil && settling.Err() == nil {
			s.log.WithError(err).Warn("lease lost")
			s.fenced.Store(errors.Is(err, store.ErrFenced))
			s.cancelHandling(holdfast.ErrLeaseLost)
			stopIntake(holdfast.ErrLeaseLost)
		}
	})

	s.log.WithField("types", s.types).Info("worker started")
	<-intake.Done()
	s.stopNewIntakes()
	s.receivers.Wait()
	defer s.capacity.fault.stop()
	why := s.drain(ctx, lost)

	// The handlers of the jobs that still run ignore their context.
	for _, j := range s.jobs.takeRunning() {
		s.interrupt(j, why)
	}
	s.cancelHandling(errStopped)
	err := s.flush(ctx)
	stopSettling()
	background.Wait()
	s.singleWrites.Wait()
	if err != nil {
		return err
	}
	s.close(ctx)
	if many, ok := errors.AsType[*tooManyAbandonedError](context.Cause(intake)); ok && ctx.Err() == nil {
		return many
	}
	if ctx.Err() == nil && errors.Is(context.Cause(intake), holdfast.ErrLeaseLost) {
		return holdfast.ErrLeaseLost
	}
	return nil
}

const (
	// handBackGrace is how long cancelled handlers may take to return before the worker hands their tasks back.
	handBackGrace = time.Second
	// flushGrace is how long a stopping worker waits for an unavailable store. If results remain unwritten, a janitor
	// hands their tasks back after the lease has expired.
	flushGrace   = 10 * time.Second
	closeTimeout = 4 * time.Second // for a last renewal, a search for forgotten tasks, and DeregisterWorker
)

// drain hands back the waiting jobs and waits until no handler runs. If the drain time passes, the drain is aborted, or
// the lease is lost, drain cancels the handlers and returns the reason.
func (s *session) drain(ctx context.Context, lost <-chan struct{}) (why error) {
	s.handBack(s.jobs.stop())
	timer := time.NewTimer(s.o.Drain)
	defer timer.Stop()
	if ctx.Err() != nil {
		s.log.WithField("running", s.jobs.running()).Info("draining")
	}
	idle := s.jobs.done()
	if ctx.Err() != nil && s.jobs.running() > 0 {
		var reported sync.WaitGroup
		reportCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		reported.Go(func() { s.noteDrain(reportCtx) })
		defer reported.Wait()
		defer stop()
	}
	select {
	case <-idle:
		return nil
	case <-timer.C:
		why = holdfast.ErrDraining
	case <-s.abort:
		why = holdfast.ErrDraining
	case <-lost:
		why = holdfast.ErrLeaseLost
	}
	s.cancelHandling(why)
	timer.Reset(handBackGrace)
	select {
	case <-idle:
	case <-timer.C:
	}
	return why
}

// noteDrain records in the store that the worker drains, so that the list of workers shows it.
func (s *session) noteDrain(ctx context.Context) {
	if err := s.o.Store.Drain(ctx, s.worker); err != nil {
		s.log.WithError(err).Debug("drain not recorded in the list of workers")
	}
}

// flush waits until all results are written. After ctx is done, it waits for flushGrace and then returns an error. A
// worker that has lost its lease waits without limit until ctx is done.
func (s *session) flush(ctx context.Context) error {
	var limit <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-s.results.drained():
			return nil
		case <-done:
			timer := time.NewTimer(flushGrace)
			defer timer.Stop()
			limit, done = timer.C, nil
		case <-limit:
			return fmt.Errorf("%d results could not be written before the stop; their tasks run again when the lease of worker %s has expired: %w",
				s.results.count(), s.worker, holdfast.ErrUnavailable)
		}
	}
}

// close sends a last renewal and deregisters the worker.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	// The last renewal reports which pages are finished, so that the patrol drops their manifests.
	result, err := s.send(ctx, time.Now().Add(s.lease.every))
	s.noteHistory(result.History)
	if err != nil {
		s.log.WithError(err).Debug("last renewal failed")
		if errors.Is(err, store.ErrFenced) {
			return
		}
	} else {
		s.reconcileAtEnd(ctx)
	}
	if err = s.o.Store.DeregisterWorker(ctx, s.worker, s.clean()); err != nil {
		s.log.WithError(err).Warn("worker not deregistered: it ends when its lease expires")
		return
	}
	s.log.Info("worker ended")
}

// clean reports whether the worker certainly owns no task: all claims were answered, and the store has not lost
// commits.
func (s *session) clean() bool {
	select {
	case <-s.disowned:
		return false
	default:
		return !s.commitsMayBeLost
	}
}

// startIntakes starts the missing intakes, two for each subqueue or type queue to consume. known has those that the
// store knows.
func (s *session) startIntakes(ctx context.Context, known []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.subqueues(known) {
		subqueue, _ := holdfast.SplitTypeQueue(name)
		_, priority := holdfast.SplitSubqueue(subqueue)
		for amqpQueue, by := range map[string]rank{s.o.Topology.Main(name): {priority, false}, s.o.Topology.Requeue(name): {priority, true}} {
			if _, followed := s.intakes[amqpQueue]; followed || s.stopped {
				continue
			}
			s.intakes[amqpQueue] = errStarting
			s.receivers.Go(func() { s.consume(ctx, amqpQueue, name, by) })
		}
	}
}

// subqueues returns the subqueues and type queues to consume: the known ones of the queues that the worker takes, and
// its own queues, which the store may not know yet.
func (s *session) subqueues(known []string) []string {
	names := slices.Clone(s.o.Queues)
	for _, name := range known {
		subqueue, taskType := holdfast.SplitTypeQueue(name)
		queue, _ := holdfast.SplitSubqueue(subqueue)
		taken := len(s.o.Queues) == 0 || slices.Contains(s.o.Queues, queue)
		if taken && (taskType == "" || slices.Contains(s.types, taskType)) && !slices.Contains(s.o.Queues, name) {
			names = append(names, name)
		}
	}
	return names
}

// stopNewIntakes prevents startIntakes from starting more intakes.
func (s *session) stopNewIntakes() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
}

// errStarting is the state of an intake that has started but is not subscribed yet.
var errStarting = errors.New("starting")

func (s *session) setIntake(amqpQueue string, waiting error) {
	s.mu.Lock()
	s.intakes[amqpQueue] = waiting
	s.mu.Unlock()
}

func (s *session) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Worker: s.worker, Running: s.jobs.running(), Waiting: make(map[string]error), RenewedAt: s.lease.renewed(), Fault: s.fault()}
	status.Stuck, status.Abandoned = s.jobs.stuckHandlers()
	for _, amqpQueue := range slices.Sorted(maps.Keys(s.intakes)) {
		switch why := s.intakes[amqpQueue]; {
		case why == nil:
			status.Consuming = append(status.Consuming, amqpQueue)
		case errors.Is(why, errPaused):
			status.Paused = append(status.Paused, amqpQueue)
		default:
			status.Waiting[amqpQueue] = why
		}
	}
	return status
}
