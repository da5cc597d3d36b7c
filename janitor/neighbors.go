package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/store"
)

// Machine answers a janitor's questions about the processes of its machine.
type Machine interface {
	// Place returns the boot of the machine and the namespace in which process ids count there; "" if unknown.
	Place() (boot, namespace string)
	// Gone reports whether the process of this place with this id and start, in ticks, is proved to have ended.
	Gone(pid int, started int64) bool
}

// watchNeighbors fences workers of this machine if the machine proves that their processes have ended. So a process
// that is started again takes over the tasks of the last one at once: it waits neither for the lease nor until it is
// warm.
//
// Clones of a machine share their boot. A worker that is not found may run on another clone, so its presence must also
// be missing in the store and in the broker, for as long as a living process needs to show it again. If a worker
// continues to renew although its process is not found, the machine is a clone. Then it proves nothing, and the duty
// ends.
func (j *Janitor) watchNeighbors(ctx context.Context) {
	machine := j.o.Machine
	if j.o.Present.Store == nil || j.o.Present.Broker == nil || machine == nil {
		return
	}
	n := &neighbors{Janitor: j, missed: make(map[holdfast.RunID]*miss)}
	if n.boot, n.namespace = machine.Place(); n.boot == "" || n.namespace == "" {
		return
	}
	for {
		err := n.look(ctx)
		if errors.Is(err, errCloned) {
			j.o.Log.WithError(err).WithField("duty", "neighbors").Warn("this machine proves no end of a process: presence and leases decide")
			return
		}
		if err != nil && ctx.Err() == nil {
			clear(n.known)
			j.o.Log.WithError(err).WithField("duty", "neighbors").Warn("a duty failed, trying again")
		}
		every := fenceEvery
		if len(n.known) > 0 {
			every = lookClosely
		}
		if backoff.Sleep(ctx, j.beat(every)) != nil {
			return
		}
	}
}

// neighbors are the workers of this machine.
type neighbors struct {
	*Janitor
	boot, namespace string
	known           map[holdfast.RunID]*absence // of processes that have ended
	missed          map[holdfast.RunID]*miss    // those that are not found
}

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
	listed, err := n.o.Present.Store.Neighbors(ctx, n.boot, n.namespace)
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
	absences, err := n.o.Present.Store.Absent(ctx)
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
func (n *neighbors) bury(ctx context.Context, a store.Absence) error {
	probe, cancel := context.WithTimeout(ctx, probeLimit)
	shown, err := n.o.Present.Broker.Shown(probe, n.o.Topology.Sign(a.Run))
	cancel()
	if err != nil || shown {
		return err
	}
	asked, err := n.o.Store.Now(ctx)
	if err != nil {
		return err
	}
	const noSettle = 0 // the proof does not depend on how long the server has been up
	fenced, err := n.o.Present.Store.FenceAbsent(ctx, a, asked, noSettle)
	if fenced {
		n.declaredDead(a.Run, "a worker's process on this machine has ended: its run is fenced at once, its tasks go back")
	}
	return err
}
