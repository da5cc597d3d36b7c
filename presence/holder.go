package presence

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// Holder holds the two signs of a run that its process is there.
//
// While it holds both, the run's renewals say so, and a janitor that finds both gone need not wait for the end of the
// lease. A living process that loses a sign has to contradict: it sends a renewal at once that says so. Until the store
// has heard that, the run stands there as one that would be gone if its signs were. Its methods are safe for concurrent
// use.
type Holder struct {
	mu      sync.Mutex
	missing int  // signs that are not held
	claimed bool // the store may believe that both are: a renewal that said so was sent, none that denies it answered

	changed chan struct{} // has a token when a renewal should say something else than the last one
}

const signs = 2

// NewHolder returns a Holder that holds no sign.
func NewHolder() *Holder { return &Holder{missing: signs, changed: make(chan struct{}, 1)} }

// Changed has a token when the run should send a renewal at once.
func (h *Holder) Changed() <-chan struct{} { return h.changed }

// note counts a sign that is held from now on, or is not any more.
func (h *Holder) note(held bool) {
	h.mu.Lock()
	before := h.missing == 0
	if held {
		h.missing--
	} else {
		h.missing++
	}
	after := h.missing == 0
	h.mu.Unlock()
	if before == after {
		return
	}
	select {
	case h.changed <- struct{}{}:
	default: // a renewal that has not been sent yet will say this too
	}
}

// Say returns whether both signs are held, for a renewal that is about to be sent.
func (h *Holder) Say() (shown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	shown = h.missing == 0
	h.claimed = h.claimed || shown
	return shown
}

// Heard notes that the store answered a renewal that said so.
func (h *Holder) Heard(shown bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claimed = shown
}

// Wronged reports whether the store may take this process's signs for held that are not.
func (h *Holder) Wronged() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimed && h.missing > 0
}

// Hold keeps both signs of the run, whose sign at the broker has that name, until ctx is done. It has released them when
// it returns. A try to show a sign may take as long as a lease. Without both servers it does nothing.
func (h *Holder) Hold(ctx context.Context, where Servers, run holdfast.RunID, name string, lease time.Duration, log logrus.FieldLogger) {
	if !where.Used() {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		h.keep(ctx, lease, log.WithField("where", "store"), func(ctx context.Context) (<-chan struct{}, func(), error) { return where.Store.Show(ctx, run) })
	})
	both.Go(func() {
		h.keep(ctx, lease, log.WithField("where", "broker"), func(ctx context.Context) (<-chan struct{}, func(), error) { return where.Broker.Show(ctx, name) })
	})
	both.Wait()
}

// The pauses between tries to show a sign.
const (
	firstShow = 50 * time.Millisecond
	longShow  = time.Second
)

// keep shows one sign, and again whenever it is lost.
func (h *Holder) keep(ctx context.Context, lease time.Duration, log logrus.FieldLogger, show func(context.Context) (<-chan struct{}, func(), error)) {
	pause := backoff.New(firstShow, longShow)
	told := false // people know of this episode
	for ctx.Err() == nil {
		// Bounded, so that a server that hangs does not keep a run from its end, and is spoken of.
		attempt, cancel := context.WithTimeout(ctx, lease)
		gone, release, err := show(attempt)
		cancel()
		if err == nil {
			began := time.Now()
			if told {
				log.Info("the sign of this run's presence is shown again")
			}
			h.note(true)
			select {
			case <-gone:
			case <-ctx.Done():
			}
			h.note(false)
			release()
			told = false
			if time.Since(began) > steady {
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
