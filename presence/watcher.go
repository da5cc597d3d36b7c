package presence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

const (
	pollInterval  = 100 * time.Millisecond
	shortInterval = 25 * time.Millisecond // while a worker may be fenced soon
	// confirmTime is how long a worker must have been missing, without a renewal, before the watcher fences it. In this
	// time, a live process reports the loss of its locks. On a busy machine or with a slow store, both the report and
	// the polls of the watcher take longer. So the watcher also waits for confirmPolls times its slowest recent poll.
	confirmTime  = 150 * time.Millisecond
	confirmPolls = 5
	// groupTime is the minimum time between the losses of two workers that are fenced early. If several workers become
	// missing together, a server or a network may have failed, and the processes may live.
	groupTime = time.Second
	// maxGap is the time limit of a poll, and the maximum time between two polls. A longer gap is treated as a
	// disturbance.
	maxGap = time.Second
	// probeLimit is the time limit of a query to the broker.
	probeLimit = 500 * time.Millisecond
)

// WatcherOptions are the options of a Watcher. All fields are required unless their comment says otherwise.
type WatcherOptions struct {
	Servers         // if one is missing, the watcher does nothing
	Machine Machine // nil if the machine cannot report which processes have ended
	// Now returns the time of the store.
	Now func(context.Context) (time.Time, error)
	// Presence returns the name of a worker's presence lock in the broker. OwnPresence is the name of this janitor's
	// lock.
	Presence    func(holdfast.WorkerID) string
	OwnPresence string
	Lease       time.Duration // the length of the workers' leases
	// Quiet is the minimum quiet period before the watcher fences a worker.
	Quiet time.Duration
	// Beat returns how long to wait for the next multiple of an interval.
	Beat func(interval time.Duration) time.Duration
	// Fenced is called after a worker was fenced. why is the text for the log.
	Fenced func(worker holdfast.WorkerID, why string)
	Log    logrus.FieldLogger
}

// Watcher fences workers whose processes have ended before their leases expire. Its methods are safe for concurrent
// use.
type Watcher struct {
	o     WatcherOptions
	quiet quiet
}

// NewWatcher returns a Watcher. Its quiet period begins now, because it does not know about earlier disturbances.
func NewWatcher(o WatcherOptions) *Watcher {
	w := &Watcher{o: o}
	w.Disturbed(time.Now())
	return w
}

// Disturbed records an event that may also end the presence locks of live processes. It restarts the quiet period.
func (w *Watcher) Disturbed(at time.Time) { w.quiet.disturbed(at) }

// Run watches for missing workers until ctx is done. One watcher of a store watches at a time, and the others wait
// until it ends. If a server is not set, Run returns at once.
func (w *Watcher) Run(ctx context.Context) {
	if !w.o.Used() {
		return
	}
	var ownPresence sync.WaitGroup
	defer ownPresence.Wait()
	ownPresence.Go(func() { w.keepOwnPresence(ctx) })
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		gone, release, err := w.o.Store.Watch(ctx)
		if err == nil {
			w.o.Log.Debug("this janitor watches for missing workers")
			began := time.Now()
			w.quiet.set(&w.quiet.watch, gone)
			w.watch(ctx, gone)
			w.quiet.set(&w.quiet.watch, nil)
			release()
			if time.Since(began) > stableAfter {
				pause.Reset()
			}
			err = fmt.Errorf("%w: the session of the watcher has ended", holdfast.ErrUnavailable)
		}
		if ctx.Err() != nil {
			return
		}
		w.quiet.disturbed(time.Now())
		w.o.Log.WithError(err).WithField("duty", "absences").Warn("a duty failed, trying again")
		_ = pause.Wait(ctx) // the loop checks ctx
	}
}

// keepOwnPresence keeps the janitor's own presence lock in the broker until ctx is done. Its loss is a disturbance.
func (w *Watcher) keepOwnPresence(ctx context.Context) {
	log := w.o.Log.WithField("duty", "absences")
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, w.o.Lease)
		gone, release, err := w.o.Broker.Acquire(attempt, w.o.OwnPresence)
		cancel()
		if err != nil {
			log.WithError(err).Debug("cannot acquire the janitor's own presence lock, trying again")
			_ = pause.Wait(ctx) // the loop checks ctx
			continue
		}
		pause.Reset()
		w.quiet.disturbed(time.Now()) // the janitor may have missed earlier events
		w.quiet.set(&w.quiet.ownPresence, gone)
		select {
		case <-gone:
			log.Debug("the janitor's own presence lock is lost; workers may have lost theirs too")
		case <-ctx.Done():
		}
		w.quiet.disturbed(time.Now())
		w.quiet.set(&w.quiet.ownPresence, nil)
		release()
	}
}

// missingWorker is the state of a worker that the store lists as missing.
type missingWorker struct {
	renewedAt       time.Time
	since           time.Time // time of the first poll that listed the worker with this renewal
	missingAtBroker bool      // the broker has reported since then that the lock does not exist
	leftToLease     bool      // the watcher does not fence the worker
}

// watchSession is the state of a watcher until its session ends.
type watchSession struct {
	*Watcher
	known       map[holdfast.WorkerID]*missingWorker // the workers that the last poll listed
	lastMissing time.Time                            // when a worker last became missing
	polled      time.Time                            // slowest recent poll, from the time when it was due; decays
	slowest     time.Duration                        // slowest recent poll, measured from the time when it was due; decays
}

func (w *Watcher) watch(ctx context.Context, gone <-chan struct{}) {
	s := &watchSession{Watcher: w, known: make(map[holdfast.WorkerID]*missingWorker)}
	for ctx.Err() == nil && present(gone) {
		if err := s.poll(ctx); err != nil && ctx.Err() == nil {
			w.quiet.disturbed(time.Now())
			w.o.Log.WithError(err).WithField("duty", "absences").Warn("a duty failed, trying again")
		}
		interval := pollInterval
		if s.hasCandidates() {
			interval = shortInterval
		}
		wait := w.o.Beat(interval)
		due, timer := time.Now().Add(wait), time.NewTimer(wait)
		select {
		case <-timer.C:
			s.noteDuration(time.Since(due))
		case <-gone:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// hasCandidates reports whether the watcher may fence a worker soon.
func (s *watchSession) hasCandidates() bool {
	for _, m := range s.known {
		if !m.leftToLease && s.quiet.lasted(s.o.Quiet) {
			return true
		}
	}
	return false
}

// poll queries the store for missing workers and checks each of them.
func (s *watchSession) poll(ctx context.Context) error {
	if now := time.Now(); !s.polled.IsZero() && now.Sub(s.polled) > maxGap { // the process was suspended
		s.quiet.disturbed(now)
	}
	defer func() { s.polled = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	began := time.Now()
	listed, err := s.o.Store.Missing(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	s.noteDuration(now.Sub(began))
	s.update(listed, now)
	for _, m := range listed {
		if known := s.known[m.Worker]; !known.leftToLease && s.quiet.lasted(s.o.Quiet) {
			if err := s.check(ctx, m, known, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteDuration records how long a part of a poll took.
func (s *watchSession) noteDuration(d time.Duration) {
	const decay = 20 // polls
	s.slowest = max(d, s.slowest-s.slowest/decay)
}

// update compares the listed workers with those of the last poll. Workers that become missing together are left to
// their leases.
func (s *watchSession) update(listed []MissingWorker, now time.Time) {
	known := make(map[holdfast.WorkerID]*missingWorker, len(listed))
	together := len(listed) > 1
	for _, m := range listed {
		was := s.known[m.Worker]
		switch {
		case was == nil:
			was = &missingWorker{renewedAt: m.RenewedAt, since: now}
			together = together || !s.lastMissing.IsZero() && now.Sub(s.lastMissing) < groupTime
			s.lastMissing = now
		case !was.renewedAt.Equal(m.RenewedAt):
			was.renewedAt, was.since, was.missingAtBroker = m.RenewedAt, now, false
		}
		known[m.Worker] = was
	}
	s.known = known
	if !together {
		return
	}
	for _, worker := range slices.Sorted(maps.Keys(known)) {
		if m := known[worker]; !m.leftToLease {
			m.leftToLease = true
			s.o.Log.WithField("worker", worker).Info("several workers lost their presence locks together: waiting for the end of the lease")
		}
	}
}

// check fences a worker that has been missing for long enough, if the broker has reported twice that the worker's lock
// does not exist.
func (s *watchSession) check(ctx context.Context, m MissingWorker, known *missingWorker, now time.Time) error {
	confirmed := now.Sub(known.since) >= confirmTime+confirmPolls*s.slowest
	if known.missingAtBroker && !confirmed {
		return nil
	}
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	present, err := s.o.Broker.Present(probe, s.o.Presence(m.Worker))
	cancel()
	// A broker that does not answer may answer the next query wrongly, so the caller treats an error as a disturbance.
	if err != nil {
		return err
	}
	if before := known.missingAtBroker; present || !before || !confirmed {
		known.missingAtBroker = !present
		return nil
	}
	calledAt, err := s.o.Now(ctx)
	if err != nil || !s.quiet.lasted(s.o.Quiet) {
		return err
	}
	fenced, err := s.o.Store.FenceMissing(ctx, m, calledAt, s.o.Quiet)
	if fenced {
		s.o.Fenced(m.Worker, "worker fenced: its process is gone")
	}
	return err
}
