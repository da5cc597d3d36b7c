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

	"github.com/holdfastq/holdfast/presence"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// errDrainAsked ends the intake when an operator asked this worker to drain.
var errDrainAsked = errors.New("an operator asked this worker to drain")

// errStopped is what handlers see at the very end; none should be left by then.
var errStopped = errors.New("the run is over")

// session is one run: from its first lease to its end.
type session struct {
	o     Options
	log   logrus.FieldLogger
	run   holdfast.RunID
	info  store.RunInfo // what the run was opened with
	abort <-chan struct{}

	lease     *lease
	present   *presence.Holder
	room      *room
	pages     *pages
	jobs      *jobs
	results   *results
	policies  map[string]holdfast.TypeSettings // of the handled types, looked up once
	types     []string
	beside    []store.Wanted // what may run beside others
	exclusive chan interval  // holds one while no page has the exclusive turn

	cancelHandling context.CancelCauseFunc // of every handler

	fenced atomic.Bool // the store has said that the run is over
	// disowned is closed when a claim has learned that the run is over. It is final even if the store changes its mind, as
	// after a failover to an older state: the page's messages were left, and only the end of its subscription brings them back.
	disowned chan struct{}
	disown   func()

	touched touched // the ids that may be running under this run
	// unanswered is the part of touched for whose claims the worker got no answer. The store may have committed such a
	// claim.
	unanswered touched
	renewed    bool          // a renewal was answered; keepLease's own
	history    string        // of the store, as the last renewal named it; keepLease's own
	fellBack   chan struct{} // has a token when the store may have lost commits
	unsure     bool          // the store may have lost commits at some time in this run; read when keepLease has ended

	unhandled sync.Map // types that were logged

	mu      sync.Mutex
	over    bool             // no further intake starts
	intakes map[string]error // queue → why it is not consumed; nil if it is
	takers  sync.WaitGroup   // intakes and the pages they started
	aside   sync.WaitGroup   // results that are written alone
}

func newSession(ctx context.Context, o Options, abort <-chan struct{}, run holdfast.RunID, info store.RunInfo, began time.Time) *session {
	// Handlers outlive the end of ctx: a drain lets them finish.
	handling, cancelHandling := context.WithCancelCause(context.WithoutCancel(ctx))
	s := &session{
		o: o, run: run, info: info, abort: abort,
		log:       o.Log.WithField("run", run),
		lease:     newLease(o.Lease, began),
		present:   presence.NewHolder(),
		room:      newRoom(o.Concurrency),
		pages:     newPages(),
		results:   newResults(),
		policies:  make(map[string]holdfast.TypeSettings),
		types:     o.Handlers.Types(),
		intakes:   make(map[string]error),
		exclusive: make(chan interval, 1),
		fellBack:  make(chan struct{}, 1),

		cancelHandling: cancelHandling,
	}
	s.exclusive <- interval{}
	s.disowned = make(chan struct{})
	s.disown = sync.OnceFunc(func() { close(s.disowned) })
	s.jobs = newJobs(s.room, func(j *job) { s.execute(handling, j) }, s.results.expect)
	for _, t := range s.types {
		s.policies[t] = o.Settings.For(t)
	}
	s.beside = wantedBeside(s.types, s.policies)
	return s
}

// work lives the run and returns when everything it started has ended: nil after
// a drain, ErrLeaseLost if the run must be replaced by a new one.
func (s *session) work(ctx context.Context) error {
	// The signs last until everything has ended: whoever finds them gone may start this run's tasks elsewhere.
	showing, stopShowing := context.WithCancel(context.WithoutCancel(ctx))
	var shown sync.WaitGroup
	shown.Go(func() {
		s.present.Hold(showing, s.o.Present, s.run, s.o.Topology.Sign(s.run), s.o.Lease, s.log)
	})
	defer shown.Wait()
	defer stopShowing()

	intake, stopIntake := context.WithCancelCause(ctx)
	defer stopIntake(nil)
	var background sync.WaitGroup
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))

	background.Go(func() { s.settleResults(settling) })
	background.Go(func() { s.handBackWaiters(settling) })
	lost := make(chan struct{})
	// A run that is not certain to be this process's any more hands nothing back but what it has in hand.
	living, died := context.WithCancel(settling)
	background.Go(func() { s.reconcile(living) })
	background.Go(func() {
		defer close(lost)
		defer died()
		err := s.keepLease(settling, func(news store.News) { s.act(intake, stopIntake, news) })
		if err != nil && settling.Err() == nil {
			s.log.WithError(err).Warn("the lease is lost")
			s.fenced.Store(errors.Is(err, store.ErrFenced))
			s.cancelHandling(holdfast.ErrLeaseLost)
			stopIntake(holdfast.ErrLeaseLost)
		}
	})

	s.log.WithField("types", s.types).Info("run started")
	<-intake.Done()
	s.unfollow()
	s.takers.Wait()
	defer s.room.fault.stop()
	why := s.drain(ctx, lost)

	// What is still in hand now belongs to handlers that ignore their context.
	for _, j := range s.jobs.takeRunning() {
		s.judge(j, holdfast.Interrupted(why))
	}
	s.cancelHandling(errStopped)
	err := s.flush(ctx)
	stopSettling()
	background.Wait()
	s.aside.Wait()
	if err != nil {
		return err
	}
	s.close(ctx)
	if ctx.Err() == nil && errors.Is(context.Cause(intake), holdfast.ErrLeaseLost) {
		return holdfast.ErrLeaseLost
	}
	return nil
}

const (
	// handBackGrace is what cancelled handlers get to return before their tasks are
	// handed back without them.
	handBackGrace = time.Second
	// flushGrace is how long a stopping worker waits for a store that is away. What
	// it cannot write then, the janitor finds when the lease has run out.
	flushGrace   = 10 * time.Second
	closeTimeout = 4 * time.Second // enough for a last renewal that hangs, a look, and the close
)

// drain waits for the jobs in hand: until they are done, or the drain is over or
// aborted, or the lease is lost; then it cancels the rest and says why.
func (s *session) drain(ctx context.Context, lost <-chan struct{}) (why error) {
	s.handBack(s.jobs.stop())
	timer := time.NewTimer(s.o.Drain)
	defer timer.Stop()
	if ctx.Err() != nil {
		s.log.WithField("running", s.jobs.running()).Info("draining")
	}
	idle := s.jobs.idle()
	if ctx.Err() != nil && s.jobs.running() > 0 {
		var noted sync.WaitGroup
		noting, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		noted.Go(func() { s.noteDrain(noting) })
		defer noted.Wait()
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

// noteDrain notes in the store that the worker drains, for the list of workers. Nothing depends on the note.
func (s *session) noteDrain(ctx context.Context) {
	if err := s.o.Store.Drain(ctx, s.run); err != nil {
		s.log.WithError(err).Debug("the drain is not in the list of workers")
	}
}

// flush waits until every result is written. A run that lost its lease waits as long as it
// takes, for it has nothing better to do; a stopping one does not.
func (s *session) flush(ctx context.Context) error {
	var limit <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case <-s.results.empty():
			return nil
		case <-done:
			timer := time.NewTimer(flushGrace)
			defer timer.Stop()
			limit, done = timer.C, nil
		case <-limit:
			return fmt.Errorf("%d results could not be written before the stop; their tasks run again when the lease of run %s is over: %w",
				s.results.count(), s.run, holdfast.ErrUnavailable)
		}
	}
}

func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	// The last word on its pages, so that the patrol drops their manifests unasked; and after a lost lease the
	// store's word that the run is still this process's, for its id may have been given to another.
	owned := s.lease.valid()
	news, err := s.send(ctx, time.Now().Add(s.lease.every))
	s.noteHistory(news.History)
	if err != nil {
		s.log.WithError(err).Debug("last renewal")
		if !owned || errors.Is(err, store.ErrFenced) {
			return
		}
	} else {
		s.lookOnce(ctx)
	}
	if err = s.o.Store.CloseRun(ctx, s.run, s.clean()); err != nil {
		s.log.WithError(err).Warn("the run could not be closed; it ends with its lease")
		return
	}
	s.log.Info("run ended")
}

// clean reports whether the run is certain to own no task: every claim was answered, and the store has lost no commits.
func (s *session) clean() bool {
	select {
	case <-s.disowned:
		return false
	default:
		return !s.unsure
	}
}

// follow makes sure that both queues of every lane to consume have their intakes.
func (s *session) follow(ctx context.Context, known []string) {
	lanes := s.o.Lanes
	if len(lanes) == 0 {
		lanes = known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lane := range lanes {
		for queue, by := range map[string]rank{s.o.Topology.Main(lane): ordinary, s.o.Topology.Again(lane): preferred} {
			if _, followed := s.intakes[queue]; followed || s.over {
				continue
			}
			s.intakes[queue] = errStarting
			s.takers.Go(func() { s.consume(ctx, queue, s.o.Topology.Again(lane), by) })
		}
	}
}

// unfollow keeps follow from starting anything more.
func (s *session) unfollow() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
}

// errStarting is why a queue is not consumed that the worker has just begun to follow.
var errStarting = errors.New("starting")

func (s *session) setIntake(queue string, waiting error) {
	s.mu.Lock()
	s.intakes[queue] = waiting
	s.mu.Unlock()
}

func (s *session) status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Run: s.run, Running: s.jobs.running(), Waiting: make(map[string]error), RenewedAt: s.lease.renewed(), Fault: s.room.fault.current()}
	for _, queue := range slices.Sorted(maps.Keys(s.intakes)) {
		if why := s.intakes[queue]; why != nil {
			status.Waiting[queue] = why
		} else {
			status.Consuming = append(status.Consuming, queue)
		}
	}
	return status
}
