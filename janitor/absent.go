package janitor

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
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
	// probeLimit is how long the broker has to say whether a sign is shown.
	probeLimit = 500 * time.Millisecond
)

// watchAbsences fences runs whose processes are gone before their lease is over. One janitor at a time does
// so; the others wait for its end.
func (j *Janitor) watchAbsences(ctx context.Context) {
	if j.o.Present.Store == nil || j.o.Present.Broker == nil {
		return
	}
	var witness sync.WaitGroup
	defer witness.Wait()
	witness.Go(func() { j.keepWitness(ctx) })
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		gone, release, err := j.o.Present.Store.Watch(ctx)
		if err == nil {
			j.o.Log.Debug("this janitor watches for processes that are gone")
			began := time.Now()
			j.calm.holds(&j.calm.watch, gone)
			j.watch(ctx, gone)
			j.calm.holds(&j.calm.watch, nil)
			release()
			if time.Since(began) > steady {
				pause.Reset()
			}
			err = fmt.Errorf("%w: the session of the watcher has ended", holdfast.ErrUnavailable)
		}
		if ctx.Err() != nil {
			return
		}
		j.calm.disturbed(time.Now())
		j.o.Log.WithError(err).WithField("duty", "absences").Warn("a duty failed, trying again")
		_ = pause.Wait(ctx) // the loop sees the end of ctx
	}
}

// keepWitness shows a sign of the janitor's own in the broker, whose loss is trouble, until ctx is done.
func (j *Janitor) keepWitness(ctx context.Context) {
	name := j.o.Topology.Witness(fmt.Sprintf("%016x", rand.Uint64()))
	log := j.o.Log.WithField("duty", "absences")
	pause := backoff.New(firstPause, longPause)
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, j.o.Lease)
		gone, release, err := j.o.Present.Broker.Show(attempt, name)
		cancel()
		if err != nil {
			log.WithError(err).Debug("the witness cannot be shown, trying again")
			_ = pause.Wait(ctx) // the loop sees the end of ctx
			continue
		}
		pause.Reset()
		j.calm.disturbed(time.Now()) // it has missed what happened before
		j.calm.holds(&j.calm.witness, gone)
		select {
		case <-gone:
			log.Debug("the broker has lost the witness: it may have lost the signs of others too")
		case <-ctx.Done():
		}
		j.calm.disturbed(time.Now())
		j.calm.holds(&j.calm.witness, nil)
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

// watcher looks for absences until its session ends.
type watcher struct {
	*Janitor
	known  map[holdfast.RunID]*absence // those that were listed at the last look
	began  time.Time                   // when the newest absence did
	looked time.Time                   // when the last look ended; zero at first
	slow   time.Duration               // how long the slowest look of late took, from when it was due; it fades
}

func (j *Janitor) watch(ctx context.Context, gone <-chan struct{}) {
	w := &watcher{Janitor: j, known: make(map[holdfast.RunID]*absence)}
	for ctx.Err() == nil && there(gone) {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			j.calm.disturbed(time.Now())
			j.o.Log.WithError(err).WithField("duty", "absences").Warn("a duty failed, trying again")
		}
		every := lookEvery
		if w.suspects() {
			every = lookClosely
		}
		wait := j.beat(every)
		due, timer := time.Now().Add(wait), time.NewTimer(wait)
		select {
		case <-timer.C:
			w.took(time.Since(due))
		case <-gone:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// need is how long there must have been no trouble.
func (j *Janitor) need() time.Duration { return j.o.Lease + j.o.FenceGrace }

// suspects reports whether somebody may be fenced soon.
func (w *watcher) suspects() bool {
	for _, a := range w.known {
		if !a.left && w.calm.lasted(w.need()) {
			return true
		}
	}
	return false
}

// look asks the store who is absent, and goes into what that may mean.
func (w *watcher) look(ctx context.Context) error {
	if now := time.Now(); !w.looked.IsZero() && now.Sub(w.looked) > maxGap { // this process was stopped
		w.calm.disturbed(now)
	}
	defer func() { w.looked = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	began := time.Now()
	listed, err := w.o.Present.Store.Absent(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	w.took(now.Sub(began))
	w.note(listed, now)
	for _, a := range listed {
		if known := w.known[a.Run]; !known.left && w.calm.lasted(w.need()) {
			if err := w.examine(ctx, a, known, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// took notes how long a part of a look took.
func (w *watcher) took(d time.Duration) {
	const fades = 20 // looks
	w.slow = max(d, w.slow-w.slow/fades)
}

// note compares what is listed with what was before. Absences that come together are left to their leases.
func (w *watcher) note(listed []store.Absence, now time.Time) {
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
func (w *watcher) examine(ctx context.Context, a store.Absence, known *absence, now time.Time) error {
	settled := now.Sub(known.since) >= settleTime+settleLooks*w.slow
	if known.denied && !settled {
		return nil
	}
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	shown, err := w.o.Present.Broker.Shown(probe, w.o.Topology.Sign(a.Run))
	cancel()
	// A broker that does not answer is not well. What it says next may be as wrong, so this is trouble, not only no answer.
	if err != nil {
		return err
	}
	if before := known.denied; shown || !before || !settled {
		known.denied = !shown
		return nil
	}
	asked, err := w.o.Store.Now(ctx)
	if err != nil || !w.calm.lasted(w.need()) {
		return err
	}
	fenced, err := w.o.Present.Store.FenceAbsent(ctx, a, asked, w.need())
	if fenced {
		w.declaredDead(a.Run, "a worker's process is gone: its run is fenced before its lease is over, its tasks go back")
	}
	return err
}
