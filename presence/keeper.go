package presence

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// Keeper keeps the two presence locks of a worker.
//
// While the process has both locks, the renewals of the worker report that. A janitor that then finds both locks
// missing need not wait for the end of the lease. So if a live process loses a lock, it must report the loss with a
// renewal at once. Until the store has answered that renewal, a janitor may fence the worker. The methods of a Keeper
// are safe for concurrent use.
type Keeper struct {
	mu      sync.Mutex
	missing int // number of locks that the process does not have
	// claimed means that the store may still record both locks: a renewal has reported them, and the store has not
	// answered a later report of a loss.
	claimed bool

	changed chan struct{} // has a token if the next renewal differs from the last one
}

const locks = 2

// NewHolder returns a Keeper without locks.
func NewHolder() *Keeper { return &Keeper{missing: locks, changed: make(chan struct{}, 1)} }

// Changed returns a channel that has a token when the worker should send a renewal at once.
func (h *Keeper) Changed() <-chan struct{} { return h.changed }

// note records that the process has acquired or lost one lock.
func (h *Keeper) note(acquired bool) {
	h.mu.Lock()
	before := h.missing == 0
	if acquired {
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
	default: // the next renewal reports this change, too
	}
}

// Report reports whether the process has both locks. The caller sends the result with its next renewal.
func (h *Keeper) Report() (present bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	present = h.missing == 0
	h.claimed = h.claimed || present
	return present
}

// Confirmed records that the store has answered a renewal that contained this result of Report.
func (h *Keeper) Confirmed(present bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claimed = present
}

// MustContradict reports whether the store may still record both locks although the process has lost one.
func (h *Keeper) MustContradict() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimed && h.missing > 0
}

// Keep keeps both locks of the worker until ctx is done. name is the name of its lock in the broker. Keep returns after
// it has released both locks. Each try to acquire a lock takes at most lease. If where does not have both servers, Keep
// returns at once.
func (h *Keeper) Keep(ctx context.Context, where Servers, worker holdfast.WorkerID, name string, lease time.Duration, log logrus.FieldLogger) {
	if !where.Used() {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		h.keep(ctx, lease, log.WithField("where", "store"), func(ctx context.Context) (<-chan struct{}, func(), error) { return where.Store.Acquire(ctx, worker) })
	})
	both.Go(func() {
		h.keep(ctx, lease, log.WithField("where", "broker"), func(ctx context.Context) (<-chan struct{}, func(), error) { return where.Broker.Acquire(ctx, name) })
	})
	both.Wait()
}

// The pauses of a worker between tries to acquire a lock.
const (
	firstRetry = 50 * time.Millisecond
	longRetry  = time.Second
)

// keep acquires one lock, and acquires it again whenever it is lost.
func (h *Keeper) keep(ctx context.Context, lease time.Duration, log logrus.FieldLogger, acquire func(context.Context) (<-chan struct{}, func(), error)) {
	pause := backoff.New(firstRetry, longRetry)
	warned := false // the current loss has been logged
	for ctx.Err() == nil {
		// With the time limit, a hanging server causes a log message.
		attempt, cancel := context.WithTimeout(ctx, lease)
		gone, release, err := acquire(attempt)
		cancel()
		if err == nil {
			began := time.Now()
			if warned {
				log.Info("presence lock acquired again")
			}
			h.note(true)
			select {
			case <-gone:
			case <-ctx.Done():
			}
			h.note(false)
			release()
			warned = false
			if time.Since(began) > stableAfter {
				pause.Reset()
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case !warned && err == nil:
			log.Warn("presence lock lost, acquiring it again; meanwhile only the lease shows that this worker is alive")
		case !warned:
			log.WithError(err).Warn("cannot acquire the presence lock, trying again; meanwhile only the lease shows that this worker is alive")
		default:
			log.WithError(err).Debug("cannot acquire the presence lock, trying again")
		}
		warned = true
		if pause.Wait(ctx) != nil {
			return
		}
	}
}
