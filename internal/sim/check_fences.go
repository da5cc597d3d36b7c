package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/sim/simstore"
	"github.com/holdfastq/holdfast/store"
)

// recent reports whether what was wrong until t can still show.
func (c *checker) recent(t time.Time) bool { return time.Since(t) < 2*lease+slowish }

// runEnded checks that a run was declared dead for a reason.
func (c *checker) runEnded(run *simstore.Run) {
	c.over[run.ID] = true
	if run.State != store.RunDead {
		return
	}
	w := c.world
	leapt := time.Since(w.state.leapt) < c.look()
	// By the store's own clock, for it has no other: when that leaps, leases look over however long it has been up.
	// If it was set back since, the store cannot know how long that is.
	if up := w.clock.now().Sub(w.state.storeUpAt); up < lease && up > -2*time.Second && !w.state.storeUp.Equal(w.began) && !(run.Early && c.proved(run)) {
		c.fail("run %s was fenced %v after the store came back", run.ID, up)
	}
	if run.Early {
		c.fencedEarly(run)
		return
	}
	// What was wrong when the lease ran out counts: perhaps no janitor lived to fence the run until now, or the store's
	// clock went back.
	ago := max(0, time.Since(c.renewed[run.ID].seen)-lease)
	recent := func(t time.Time) bool { return c.recent(t.Add(ago)) }
	for _, p := range w.processes {
		if p.name != run.Name || p.dead || recent(p.troubled) || recent(w.state.storeUp) || leapt {
			continue
		}
		// The end of a run that its process has given up is put off by a leap of the store's clock. And the answer of OpenRun may
		// have been lost: the process, which renews a run at once, never heard of this one.
		if p.worker.Status().Run != run.ID && (!w.state.leapt.IsZero() || run.RenewedAt.Equal(run.StartedAt)) {
			continue
		}
		c.fail("run %s of %s was fenced, and nothing was wrong with it", run.ID, run.Name)
	}
	if !leapt {
		c.untold(run)
	}
}

// untold fails if a handler still runs under a run that is over and was not told to stop.
func (c *checker) untold(run *simstore.Run) {
	for _, e := range c.executions {
		if !e.over && e.task.Run == run.ID && e.era == c.world.state.fellBack && !e.process.dead && e.process.resumed == nil && e.ctx.Err() == nil {
			c.fail("run %s was fenced while %s still runs task %s under it", run.ID, e.process.name, e.task.ID)
		}
	}
}

// look is how long what happens between the two questions of one look of a janitor may go unseen. Leases are longer where it
// matters.
func (c *checker) look() time.Duration {
	plan := c.world.plan
	if plan.Net.PerMilleSlow > 0 || slices.ContainsFunc(plan.Faults, func(f Fault) bool { return f.Kind == Stop || f.Kind == CutStore }) {
		return 2 * time.Second
	}
	return 2 * plan.Net.Usual
}

// proved reports whether a janitor of the same machine, or of a clone of it, may know, or may have known a moment ago, that the process of a run is gone.
func (c *checker) proved(run *simstore.Run) bool {
	w := c.world
	var index int
	if _, err := fmt.Sscanf(run.Name, "%d.", &index); err != nil {
		return false
	}
	return slices.ContainsFunc(w.processes, func(p *process) bool {
		return (p.role == Serve || p.role == Janitor) && w.plan.boot(p.index) == w.plan.boot(index)
	})
}

// tells is how long a process that has lost both signs has at least to say so.
const tells = time.Second

// fencedEarly checks that a run whose lease goes on was declared dead because its process is gone. One that lives may be
// taken for gone only if all its sessions at the store and its sign at the broker had just ended, or it does not know of the end
// of that sign yet, and nothing that it said about that could reach the store. On a clone of its machine no process is found, so
// there the loss of both is enough.
func (c *checker) fencedEarly(run *simstore.Run) {
	w := c.world
	c.early++
	if ago := time.Since(w.state.disturbed); ago > c.look() && ago < lease && !c.proved(run) {
		c.fail("run %s was fenced before its lease was over, %v after a server was away", run.ID, ago)
	}
	for _, p := range w.processes {
		if p.name != run.Name || p.dead || p.resumed != nil || w.store.Left(run.ID) {
			continue
		}
		status := p.worker.Status()
		if status.Run != run.ID {
			continue
		}
		if time.Since(status.RenewedAt) >= lease-lease/5 { // by its own clock the lease is over: it has stopped itself
			c.untold(run)
			continue
		}
		mute := p.storeCut || w.state.storeDown || time.Since(p.troubled) < slowish
		unaware := time.Until(p.unaware) > 0 // and a renewal that fails ends the session of its renewals
		storeBroke, brokerBroke := time.Since(p.storeBroke) < tells || unaware, time.Since(p.brokerBroke) < tells || unaware
		away := time.Since(w.state.disturbed) < tells
		if storeBroke && brokerBroke && (mute || w.plan.Cloned) || w.plan.Cloned && away {
			c.excused++
			continue
		}
		c.fail("run %s of %s was fenced before its lease was over, although the process lives", run.ID, run.Name)
	}
}
