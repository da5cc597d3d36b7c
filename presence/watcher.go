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
	lookEvery   = 100 * time.Millisecond
	lookClosely = 25 * time.Millisecond // while somebody may be gone
	// settleTime is how long a run must have been absent, without a renewal. A process that lives says within it that it
	// has lost its signs. On a busy machine or with a slow store that takes longer, as the watcher's own looks then do: so
	// it waits for settleLooks of the slowest of late as well.
	settleTime  = 150 * time.Millisecond
	settleLooks = 5
	// crowdTime is how far apart absences must begin. What ends several signs at once is rarely the end of a process, and if
	// so of a machine.
	crowdTime = time.Second
	// maxGap is the longest time between two looks that counts as unbroken, and the longest that a look may take.
	maxGap = time.Second
	// probeLimit is how long the broker has to say whether a sign is shown.
	probeLimit = 500 * time.Millisecond
)

// WatcherOptions are what a watcher needs.
type WatcherOptions struct {
	Servers
	Machine Machine // nil if this machine does not tell which of its processes have ended
	// Now asks the store for its time.
	Now func(context.Context) (time.Time, error)
	// Sign names the sign of a run at the broker, and Witness that of this process.
	Sign    func(holdfast.RunID) string
	Witness string
	Lease   time.Duration // the length of the workers' leases
	// Quiet is how long there must have been no trouble before a run is fenced.
	Quiet time.Duration
	// Beat returns how long to wait for the next multiple of an interval.
	Beat   func(interval time.Duration) time.Duration
	Fenced func(run holdfast.RunID, why string)
	Log    logrus.FieldLogger
}

// Watcher fences runs whose processes are gone before their leases are over. Its methods are safe for concurrent use.
type Watcher struct {
	o     WatcherOptions
	quiet quiet
}

// NewWatcher returns a Watcher. Trouble that it knows of began just now, as it cannot know what happened before.
func NewWatcher(o WatcherOptions) *Watcher {
	w := &Watcher{o: o}
	w.Disturbed(time.Now())
	return w
}

// Disturbed notes trouble that may also end the signs of processes that live.
func (w *Watcher) Disturbed(at time.Time) { w.quiet.disturbed(at) }

// Run watches until ctx is done. One watcher at a time does so; the others wait for its end. Without both servers it
// returns at once.
func (w *Watcher) Run(ctx context.Context) {
	if !w.o.Used() {
		return
	}
	var witness sync.WaitGroup
	defer witness.Wait()
	witness.Go(func() { w.keepWitness(ctx) })
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		gone, release, err := w.o.Store.Watch(ctx)
		if err == nil {
			w.o.Log.Debug("this janitor watches for processes that are gone")
			began := time.Now()
			w.quiet.holds(&w.quiet.watch, gone)
			w.watch(ctx, gone)
			w.quiet.holds(&w.quiet.watch, nil)
			release()
			if time.Since(began) > steady {
				pause.Reset()
			}
			err = fmt.Errorf("%w: the session of the watcher has ended", holdfast.ErrUnavailable)
		}
		if ctx.Err() != nil {
			return
		}
		w.quiet.disturbed(time.Now())
		w.o.Log.WithError(err).WithField("duty", "absences").Warn("a duty failed, trying again")
		_ = pause.Wait(ctx) // the loop sees the end of ctx
	}
}

// keepWitness shows a sign of the janitor's own in the broker, whose loss is trouble, until ctx is done.
func (w *Watcher) keepWitness(ctx context.Context) {
	log := w.o.Log.WithField("duty", "absences")
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, w.o.Lease)
		gone, release, err := w.o.Broker.Show(attempt, w.o.Witness)
		cancel()
		if err != nil {
			log.WithError(err).Debug("the witness cannot be shown, trying again")
			_ = pause.Wait(ctx) // the loop sees the end of ctx
			continue
		}
		pause.Reset()
		w.quiet.disturbed(time.Now()) // it has missed what happened before
		w.quiet.holds(&w.quiet.witness, gone)
		select {
		case <-gone:
			log.Debug("the broker has lost the witness: it may have lost the signs of others too")
		case <-ctx.Done():
		}
		w.quiet.disturbed(time.Now())
		w.quiet.holds(&w.quiet.witness, nil)
		release()
	}
}

// absence is what the watcher knows of a run that the store lists as absent.
type absence struct {
	renewedAt time.Time
	since     time.Time // the first look that found it absent with that renewal
	denied    bool      // the broker has said since then that it does not see the sign either
	left      bool      // to its lease
}

// watching is the work of a watcher until its session ends.
type watching struct {
	*Watcher
	known  map[holdfast.RunID]*absence // those that were listed at the last look
	began  time.Time                   // when the newest absence did
	looked time.Time                   // when the last look ended; zero at first
	slow   time.Duration               // how long the slowest look of late took, from when it was due; it fades
}

func (w *Watcher) watch(ctx context.Context, gone <-chan struct{}) {
	now := &watching{Watcher: w, known: make(map[holdfast.RunID]*absence)}
	for ctx.Err() == nil && there(gone) {
		if err := now.look(ctx); err != nil && ctx.Err() == nil {
			w.quiet.disturbed(time.Now())
			w.o.Log.WithError(err).WithField("duty", "absences").Warn("a duty failed, trying again")
		}
		every := lookEvery
		if now.suspects() {
			every = lookClosely
		}
		wait := w.o.Beat(every)
		due, timer := time.Now().Add(wait), time.NewTimer(wait)
		select {
		case <-timer.C:
			now.took(time.Since(due))
		case <-gone:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// suspects reports whether somebody may be fenced soon.
func (w *watching) suspects() bool {
	for _, a := range w.known {
		if !a.left && w.quiet.lasted(w.o.Quiet) {
			return true
		}
	}
	return false
}

// look asks the store who is absent, and goes into what that may mean.
func (w *watching) look(ctx context.Context) error {
	if now := time.Now(); !w.looked.IsZero() && now.Sub(w.looked) > maxGap { // this process was stopped
		w.quiet.disturbed(now)
	}
	defer func() { w.looked = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	began := time.Now()
	listed, err := w.o.Store.Absent(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	w.took(now.Sub(began))
	w.note(listed, now)
	for _, a := range listed {
		if known := w.known[a.Run]; !known.left && w.quiet.lasted(w.o.Quiet) {
			if err := w.examine(ctx, a, known, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// took notes how long a part of a look took.
func (w *watching) took(d time.Duration) {
	const fades = 20 // looks
	w.slow = max(d, w.slow-w.slow/fades)
}

// note compares what is listed with what was before. Absences that come together are left to their leases.
func (w *watching) note(listed []Absence, now time.Time) {
	known := make(map[holdfast.RunID]*absence, len(listed))
	crowd := len(listed) > 1
	for _, a := range listed {
		was := w.known[a.Run]
		switch {
		case was == nil:
			was = &absence{renewedAt: a.RenewedAt, since: now}
			crowd = crowd || !w.began.IsZero() && now.Sub(w.began) < crowdTime
			w.began = now
		case !was.renewedAt.Equal(a.RenewedAt):
			was.renewedAt, was.since, was.denied = a.RenewedAt, now, false
		}
		known[a.Run] = was
	}
	w.known = known
	if !crowd {
		return
	}
	for _, run := range slices.Sorted(maps.Keys(known)) {
		if a := known[run]; !a.left {
			a.left = true
			w.o.Log.WithField("run", run).Info("the signs of several processes ended together: this run is left to its lease")
		}
	}
}

// examine fences a run that has been absent for long enough, if the broker has said twice that it does not see it either.
func (w *watching) examine(ctx context.Context, a Absence, known *absence, now time.Time) error {
	settled := now.Sub(known.since) >= settleTime+settleLooks*w.slow
	if known.denied && !settled {
		return nil
	}
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	shown, err := w.o.Broker.Shown(probe, w.o.Sign(a.Run))
	cancel()
	// A broker that does not answer is not well. What it says next may be as wrong, so this is trouble, not only no answer.
	if err != nil {
		return err
	}
	if before := known.denied; shown || !before || !settled {
		known.denied = !shown
		return nil
	}
	asked, err := w.o.Now(ctx)
	if err != nil || !w.quiet.lasted(w.o.Quiet) {
		return err
	}
	fenced, err := w.o.Store.FenceAbsent(ctx, a, asked, w.o.Quiet)
	if fenced {
		w.o.Fenced(a.Run, "a worker's process is gone: its run is fenced before its lease is over, its tasks go back")
	}
	return err
}
