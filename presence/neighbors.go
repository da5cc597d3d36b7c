package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
)

// Machine answers a janitor's questions about the processes of its machine.
type Machine interface {
	// Place returns the boot of the machine and the namespace in which process ids count there; "" if unknown.
	Place() (boot, namespace string)
	// Gone reports whether the process of this place with this id and start, in ticks, is proved to have ended.
	Gone(pid int, started int64) bool
}

// RunNeighbors fences workers of this machine if the machine proves that their processes have ended. So a process
// that is started again takes over the tasks of the last one at once: it waits neither for the lease nor until it is
// warm.
//
// Clones of a machine share their boot. A worker that is not found may run on another clone, so its presence must also
// be missing in the store and in the broker, for as long as a living process needs to show it again. If a worker
// continues to renew although its process is not found, the machine is a clone. Then it proves nothing, and the duty
// ends.
func (w *Watcher) RunNeighbors(ctx context.Context) {
	machine := w.o.Machine
	if !w.o.Used() || machine == nil {
		return
	}
	n := &neighbors{Watcher: w, missed: make(map[holdfast.RunID]*miss)}
	if n.boot, n.namespace = machine.Place(); n.boot == "" || n.namespace == "" {
		return
	}
	for {
		err := n.look(ctx)
		if errors.Is(err, errCloned) {
			w.o.Log.WithError(err).WithField("duty", "neighbors").Warn("this machine proves no end of a process: presence and leases decide")
			return
		}
		if err != nil && ctx.Err() == nil {
			clear(n.known)
			w.o.Log.WithError(err).WithField("duty", "neighbors").Warn("a duty failed, trying again")
		}
		every := neighborsEvery
		if len(n.known) > 0 {
			every = lookClosely
		}
		if backoff.Sleep(ctx, w.o.Beat(every)) != nil {
			return
		}
	}
}

// neighbors are the workers of this machine.
type neighbors struct {
	*Watcher
	boot, namespace string
	known           map[holdfast.RunID]*absence // of processes that have ended
	missed          map[holdfast.RunID]*miss    // those that are not found
}

// neighborsEvery is how often the store is asked for the workers of this machine.
const neighborsEvery = 200 * time.Millisecond

// miss is a run whose process is not found.
type miss struct {
	renewedAt time.Time
	renewals  int // that were seen since then
}

// lateRenewals is how many renewals of a process the store may carry out after its end: the one that was in progress.
const lateRenewals = 1

var errCloned = errors.New("a worker renews although its process is not found: this machine is a clone")

// look does one look.
func (n *neighbors) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxGap)
	defer cancel()
	listed, err := n.o.Store.Neighbors(ctx, n.boot, n.namespace)
	if err != nil {
		return err
	}
	missed := make(map[holdfast.RunID]*miss)
	for _, neighbor := range listed {
		if !n.o.Machine.Gone(neighbor.PID, neighbor.Started) {
			continue
		}
		was := n.missed[neighbor.Run]
		if was == nil {
			was = &miss{renewedAt: neighbor.RenewedAt}
		}
		if !was.renewedAt.Equal(neighbor.RenewedAt) {
			was.renewedAt = neighbor.RenewedAt
			was.renewals++
		}
		if was.renewals > lateRenewals {
			return fmt.Errorf("run %s: %w", neighbor.Run, errCloned)
		}
		missed[neighbor.Run] = was
	}
	if n.missed = missed; len(missed) == 0 {
		n.known = nil
		return nil
	}
	absences, err := n.o.Store.Absent(ctx)
	if err != nil {
		return err
	}
	known, now := make(map[holdfast.RunID]*absence), time.Now()
	var failures []error
	for _, a := range absences {
		if missed[a.Run] == nil {
			continue
		}
		was := n.known[a.Run]
		if was == nil || !was.renewedAt.Equal(a.RenewedAt) {
			was = &absence{renewedAt: a.RenewedAt, since: now}
		}
		known[a.Run] = was
		if now.Sub(was.since) >= settleTime {
			failures = append(failures, n.bury(ctx, a))
		}
	}
	n.known = known
	return errors.Join(failures...)
}

// bury fences a run whose process has ended, unless the broker still has its sign.
func (n *neighbors) bury(ctx context.Context, a Absence) error {
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	shown, err := n.o.Broker.Shown(probe, n.o.Sign(a.Run))
	cancel()
	if err != nil || shown {
		return err
	}
	asked, err := n.o.Now(ctx)
	if err != nil {
		return err
	}
	const noSettle = 0 // the proof does not depend on how long the server has been up
	fenced, err := n.o.Store.FenceAbsent(ctx, a, asked, noSettle)
	if fenced {
		n.o.Fenced(a.Run, "a worker's process on this machine has ended: its run is fenced at once, its tasks go back")
	}
	return err
}
