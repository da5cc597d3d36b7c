package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// Machine has information about the processes of the janitor's machine.
type Machine interface {
	// Place returns the boot of the machine and the namespace of process ids. Each is "" if unknown.
	Place() (boot, namespace string)
	// Gone reports whether the process with this id and start, in clock ticks, has certainly ended. The process was
	// started at the place that Place returns.
	Gone(pid int, started int64) bool
}

// RunNeighbors fences workers of this machine whose processes have certainly ended. So a process that is started again
// gets the tasks of its predecessor at once. It waits neither for the lease nor for the quiet period.
//
// Clones of a machine have the same boot id, so a process that is not found may run on another clone. Therefore its
// presence locks must also be missing at the store and at the broker, for as long as a live process may need to acquire
// them again. If a worker renews its lease although its process is not found, the machine is a clone. Then the machine
// proves nothing, and RunNeighbors returns.
//
// It also returns when ctx is done, and at once if a server or the machine is not set.
func (w *Watcher) RunNeighbors(ctx context.Context) {
	machine := w.o.Machine
	if !w.o.Used() || machine == nil {
		return
	}
	n := &neighbors{Watcher: w, notFound: make(map[holdfast.WorkerID]*notFound)}
	if n.boot, n.namespace = machine.Place(); n.boot == "" || n.namespace == "" {
		return
	}
	for {
		err := n.poll(ctx)
		if errors.Is(err, errCloned) {
			w.o.Log.WithError(err).WithField("duty", "neighbors").Warn("this machine cannot prove the end of a process: presence locks and leases decide")
			return
		}
		if err != nil && ctx.Err() == nil {
			clear(n.missing)
			w.o.Log.WithError(err).WithField("duty", "neighbors").Warn("a duty failed, trying again")
		}
		interval := neighborsInterval
		if len(n.missing) > 0 {
			interval = shortInterval
		}
		if backoff.Sleep(ctx, w.o.Beat(interval)) != nil {
			return
		}
	}
}

// neighbors are the workers of this machine.
type neighbors struct {
	*Watcher
	boot, namespace string
	missing         map[holdfast.WorkerID]*missingWorker // workers of notFound that are missing in the store
	notFound        map[holdfast.WorkerID]*notFound      // workers whose process was not found at the last poll
}

// neighborsInterval is the interval at which the janitor queries the store for the workers of this machine.
const neighborsInterval = 200 * time.Millisecond

// notFound is a worker whose process is not found.
type notFound struct {
	renewedAt time.Time
	renewals  int // number of renewals since the process was not found
}

// lateRenewals is the number of renewals that the store may execute after the process has ended, because one may have
// been in progress.
const lateRenewals = 1

var errCloned = errors.New("a worker renews its lease although its process is not found: this machine is a clone")

// poll checks all workers of this machine once.
func (n *neighbors) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	listed, err := n.o.Store.Neighbors(ctx, n.boot, n.namespace)
	if err != nil {
		return err
	}
	lost := make(map[holdfast.WorkerID]*notFound)
	for _, neighbor := range listed {
		if !n.o.Machine.Gone(neighbor.PID, neighbor.Started) {
			continue
		}
		was := n.notFound[neighbor.Worker]
		if was == nil {
			was = &notFound{renewedAt: neighbor.RenewedAt}
		}
		if !was.renewedAt.Equal(neighbor.RenewedAt) {
			was.renewedAt = neighbor.RenewedAt
			was.renewals++
		}
		if was.renewals > lateRenewals {
			return fmt.Errorf("worker %s: %w", neighbor.Worker, errCloned)
		}
		lost[neighbor.Worker] = was
	}
	if n.notFound = lost; len(lost) == 0 {
		n.missing = nil
		return nil
	}
	workers, err := n.o.Store.Missing(ctx)
	if err != nil {
		return err
	}
	missing, now := make(map[holdfast.WorkerID]*missingWorker), time.Now()
	var failures []error
	for _, m := range workers {
		if lost[m.Worker] == nil {
			continue
		}
		was := n.missing[m.Worker]
		if was == nil || !was.renewedAt.Equal(m.RenewedAt) {
			was = &missingWorker{renewedAt: m.RenewedAt, since: now}
		}
		missing[m.Worker] = was
		if now.Sub(was.since) >= confirmTime {
			failures = append(failures, n.fence(ctx, m))
		}
	}
	n.missing = missing
	return errors.Join(failures...)
}

// fence fences a worker whose process has ended, unless its lock still exists in the broker.
func (n *neighbors) fence(ctx context.Context, m MissingWorker) error {
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	present, err := n.o.Broker.Present(probe, n.o.Presence(m.Worker))
	cancel()
	if err != nil || present {
		return err
	}
	calledAt, err := n.o.Now(ctx)
	if err != nil {
		return err
	}
	const noSettle = 0 // an ended process is proof enough, however recently the server has started
	fenced, err := n.o.Store.FenceMissing(ctx, m, calledAt, noSettle)
	if fenced {
		n.o.Fenced(m.Worker, "worker fenced: its process on this machine has ended")
	}
	return err
}
