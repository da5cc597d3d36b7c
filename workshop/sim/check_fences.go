package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

// recent reports whether a fault that ended at t may still have an effect.
func (c *checker) recent(t time.Time) bool { return time.Since(t) < 2*lease+slowMessage }

// workerEnded checks that a worker was declared dead for a reason.
func (c *checker) workerEnded(worker *memory.Worker) {
	c.endedWorkers[worker.ID] = true
	if worker.State != store.WorkerDead {
		return
	}
	w := c.world
	// If two leaps of the clock cancel each other, a lease that was renewed between them looks expired.
	leapt := time.Since(w.state.leapt) < c.outageWindow() || time.Since(w.state.leaptBack) < time.Second
	// The check uses the store's clock, like the store. If that clock leaps, leases seem to have expired, however long
	// the store has been up. If the clock was set back after the store came up, the store cannot know how long it has
	// been up.
	if up := w.clock.now().Sub(w.state.storeUpAt); up < lease && up > -2*time.Second && !w.state.storeUp.Equal(w.began) && !(worker.Early && c.deathProvable(worker)) {
		c.fail("worker %s was fenced %v after the store came back", worker.ID, up)
	}
	if worker.Early {
		c.fencedEarly(worker)
		return
	}
	// A fault excuses a fence only if it was active when the lease expired. The worker may be fenced later, if no
	// janitor was live until then or the store's clock was set back.
	ago := max(0, time.Since(c.renewed[worker.ID].seen)-lease)
	recent := func(t time.Time) bool { return c.recent(t.Add(ago)) }
	for _, p := range w.processes {
		if p.name != worker.Name || p.dead || recent(p.troubledUntil) || recent(w.state.storeUp) || leapt {
			continue
		}
		// If the process no longer uses the worker, two cases are legal: a leap of the store's clock has delayed the
		// end of the worker, or the answer of RegisterWorker was lost. In the second case the process never learned of
		// the worker, and so did not renew it.
		if p.worker.Status().Worker != worker.ID && (!w.state.leapt.IsZero() || worker.RenewedAt.Equal(worker.StartedAt)) {
			continue
		}
		c.fail("worker %s of process %s was fenced without a reason", worker.ID, worker.Name)
	}
	if !leapt {
		c.checkHandlersStopped(worker)
	}
}

// checkHandlersStopped fails if a handler still runs under an ended worker and its context has not ended.
func (c *checker) checkHandlersStopped(worker *memory.Worker) {
	for _, e := range c.executions {
		if !e.done && e.task.Worker == worker.ID && e.era == c.world.state.fellBack && !e.process.dead && e.process.resumed == nil && e.ctx.Err() == nil {
			c.fail("worker %s was fenced while process %s still runs its task %s", worker.ID, e.process.name, e.task.ID)
		}
	}
}

// outageWindow is the longest outage that a janitor may fail to notice. Such an outage falls between the two requests
// that a janitor sends for one decision. Where this matters, leases are longer.
func (c *checker) outageWindow() time.Duration {
	plan := c.world.plan
	if plan.Net.PerMilleSlow > 0 || slices.ContainsFunc(plan.Faults, func(f Fault) bool { return f.Kind == Stop || f.Kind == CutStore }) {
		return 2 * time.Second
	}
	return 2 * plan.Net.Usual
}

// deathProvable reports whether a janitor process runs on the machine of a worker, or on a clone of it. Such a janitor
// may know that the worker's process is gone.
func (c *checker) deathProvable(worker *memory.Worker) bool {
	w := c.world
	var index int
	if _, err := fmt.Sscanf(worker.Name, "%d.", &index); err != nil {
		return false
	}
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		return (p.role == Serve || p.role == Janitor) && w.plan.boot(p.index) == w.plan.boot(index)
	})
}

// reportTime is the least time that a process has to report that it lost its presence at both servers.
const reportTime = time.Second

// fencedEarly checks a worker that was fenced before its lease expired: its process must be gone. There is one
// exception. A live process may have lost all sessions at the store and its presence at the broker. The loss must be
// recent or not noticed yet, and the report of the process cannot reach the store. A janitor on a clone of the machine
// does not find the process, so there the loss alone is enough.
func (c *checker) fencedEarly(worker *memory.Worker) {
	w := c.world
	c.early++
	if ago := time.Since(w.state.disturbed); ago > c.outageWindow() && ago < lease && !c.deathProvable(worker) {
		c.fail("worker %s was fenced before its lease expired, %v after an outage of a server", worker.ID, ago)
	}
	for _, p := range w.processes {
		if p.name != worker.Name || p.dead || p.resumed != nil || w.store.Left(worker.ID) {
			continue
		}
		status := p.worker.Status()
		if status.Worker != worker.ID {
			continue
		}
		if time.Since(status.RenewedAt) >= lease-lease/5 { // the worker has stopped itself, by its own clock
			c.checkHandlersStopped(worker)
			continue
		}
		mute := p.storeCut || w.state.storeDown || time.Since(p.troubledUntil) < slowMessage
		unaware := time.Since(p.unawareUntil) < reportTime // a renewal that fails ends the session of the renewals, too
		// A process that has been cut off since before the loss has had no time to report it.
		excused := func(lost time.Time) bool {
			return time.Since(lost) < reportTime || unaware || p.storeCut && !p.answersOnly && lost.After(p.storeCutAt)
		}
		storeLost, brokerLost := excused(p.storeBrokenAt), excused(p.brokerBrokenAt)
		outage := time.Since(w.state.disturbed) < reportTime
		if storeLost && brokerLost && (mute || w.plan.Cloned) || w.plan.Cloned && outage {
			c.excused++
			continue
		}
		c.fail("worker %s of process %s was fenced before its lease expired, but the process is alive", worker.ID, worker.Name)
	}
}
