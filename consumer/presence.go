package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

// A run shows two signs that its process is there, one in the store and one in the broker, and both end with the
// process. While it holds both, its renewals say so, and a janitor that finds both gone need not wait for the end of the
// lease. A living process that loses a sign has to contradict: it sends a renewal at once that says so. Until the store
// has heard that, the run stands there as one that would be gone if its signs were.

// present is what a run shows of itself. Without both roles of Options.Present it is never shown.
type present struct {
	mu      sync.Mutex
	missing int  // signs that are not held
	claimed bool // the store may believe that both are: a renewal that said so was sent, none that denies it answered

	changed chan struct{} // has a token when a renewal should say something else than the last one
}

const signs = 2

func newPresent() *present { return &present{missing: signs, changed: make(chan struct{}, 1)} }

// note counts a sign that is held from now on, or is not any more.
func (p *present) note(held bool) {
	p.mu.Lock()
	before := p.missing == 0
	if held {
		p.missing--
	} else {
		p.missing++
	}
	after := p.missing == 0
	p.mu.Unlock()
	if before == after {
		return
	}
	select {
	case p.changed <- struct{}{}:
	default: // a renewal that has not been sent yet will say this too
	}
}

// say is what the next renewal tells.
func (p *present) say() (shown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown = p.missing == 0
	p.claimed = p.claimed || shown
	return shown
}

// heard notes that the store answered a renewal.
func (p *present) heard(shown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimed = shown
}

// wronged reports whether the store may take this process's signs for held that are not.
func (p *present) wronged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed && p.missing > 0
}

// show keeps both signs of the run until ctx is done, and has released them when it returns.
func (s *session) show(ctx context.Context) {
	where := s.o.Present
	if where.Store == nil || where.Broker == nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		s.keepSign(ctx, "store", func(ctx context.Context) (<-chan struct{}, func(), error) { return where.Store.Show(ctx, s.run) })
	})
	both.Go(func() {
		name := s.o.Topology.Sign(s.run)
		s.keepSign(ctx, "broker", func(ctx context.Context) (<-chan struct{}, func(), error) { return where.Broker.Show(ctx, name) })
	})
	both.Wait()
}

// keepSign shows one sign, and again whenever it is lost.
func (s *session) keepSign(ctx context.Context, where string, show func(context.Context) (<-chan struct{}, func(), error)) {
	log := s.log.WithField("where", where)
	pause := backoff.New(firstPause, longPause)
	told := false // people know of this episode
	for ctx.Err() == nil {
		// Bounded, so that a server that hangs does not keep a run from its end, and is spoken of.
		attempt, cancel := context.WithTimeout(ctx, s.o.Lease)
		gone, release, err := show(attempt)
		cancel()
		if err == nil {
			began := time.Now()
			if told {
				log.Info("the sign of this run's presence is shown again")
			}
			s.present.note(true)
			select {
			case <-gone:
			case <-ctx.Done():
			}
			s.present.note(false)
			release()
			told = false
			if time.Since(began) > steadySign {
				pause.Reset()
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case !told && err == nil:
			log.Warn("the sign of this run's presence is lost, showing it again; until then only the lease tells whether it lives")
		case !told:
			log.WithError(err).Warn("the sign of this run's presence cannot be shown, trying again; until then only the lease tells whether it lives")
		default:
			log.WithError(err).Debug("the sign of this run's presence cannot be shown, trying again")
		}
		told = true
		if pause.Wait(ctx) != nil {
			return
		}
	}
}

// steadySign is how long a sign must last for its loss to be no part of a lasting fault.
const steadySign = 30 * time.Second

// impatience is how soon a renewal is tried again that has to contradict, at first.
const impatience = 10 * time.Millisecond

// retryAfter is the pause after a failed renewal. A process that may be taken for gone meanwhile cannot wait as long as one
// that only has to be back before its lease ends.
func (s *session) retryAfter(failed int) time.Duration {
	usual := s.lease.every / 5
	if !s.present.wronged() {
		return usual
	}
	return min(usual, impatience<<min(failed-1, 10))
}

// renewal is what the run tells the store with every sign of life.
func (s *session) renewal() store.Renewal {
	taken, settled := s.pages.cursors()
	return store.Renewal{
		Run: s.run, By: s.info, Lease: s.o.Lease, Taken: taken, Settled: settled, Running: s.jobs.running(), Shown: s.present.say(),
		OwnSession: s.o.Present.Store != nil && s.o.Present.Broker != nil,
	}
}
