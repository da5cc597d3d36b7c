package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast/store/memory"
)

// queues are the queues that plans use.
var queues = []string{"a", "b"}

// inject starts a fault.
func (w *world) inject(f Fault) {
	p := w.processes[f.Target]
	if f.Kind <= LosePresence && (p.dead || p.ctx.Err() != nil) {
		w.faults-- // the process has already ended
		return
	}
	switch f.Kind {
	case Kill:
		p.killIn, p.killBefore, p.restartAfter = 1+f.N, f.N%2 == 0, f.For
		w.endAfter(f, longestFault, func() { // a process with too few steps survives
			p.killIn = 0
		})
	case Stop:
		p.stop(f)
	case Drain:
		p.cancel()
		w.endAfter(f, f.For, func() { w.start(f.Target, w.life(f.Target)+1) })
	case CutStore:
		p.storeCut, p.answersOnly, p.storeCutAt, p.storeCutUntil = true, f.N%2 == 1, time.Now(), time.Now().Add(f.For)
		p.markTroubled(p.storeCutUntil.Add(driverTimeout))
		w.endAfter(f, f.For, func() { p.storeCut = false })
	case CutBroker:
		p.cutBroker(f)
	case CloseBroker:
		p.breakBroker()
		p.broker.Disconnect()
		w.faults--
	case CloseStore:
		p.breakStore()
		p.store.Disconnect()
		w.faults--
	case LosePresence:
		p.losePresence(f)
	default:
		w.injectServerFault(f)
	}
}

func (w *world) injectServerFault(f Fault) {
	switch f.Kind {
	case StoreRestart:
		w.state.storeDown = true
		w.stopStore()
		w.endAfter(f, f.For, w.storeBack)
	case StoreFailover:
		snapshot := w.store.Snapshot()
		w.endAfter(f, f.For, func() { w.fallBack(snapshot) })
	case StoreLeap:
		if f.N%2 == 1 {
			f.For = -f.For
		}
		// No store can detect that its clock was ahead for less than a second between two calls of NoteTime.
		w.store.NoteTime()
		w.clock.leap += f.For
		w.store.NoteTime()
		if (w.state.lastLeap+f.For).Abs() < time.Second && time.Since(w.state.leapt) < time.Second {
			w.state.leaptBack = time.Now()
		}
		w.state.leaptTwo, w.state.leapt, w.state.lastLeap = w.state.leapt, time.Now(), f.For
		w.faults--
	case BrokerRestart, BrokerWipe:
		w.stopBroker()
		w.endAfter(f, f.For, func() {
			if f.Kind == BrokerWipe {
				w.broker.Wipe()
				w.check.ticketsLost = true
			}
			w.broker.SetDown(false)
			if w.state.brokerDown { // otherwise another outage has already ended this one
				w.state.brokerDown, w.state.disturbed = false, time.Now()
			}
		})
	case DeleteQueue:
		objects := w.topology.Queues(w.plan.subqueues())
		name := objects[f.N%len(objects)].Name
		w.log.logf(time.Since(w.began), "queue %s is deleted", name)
		w.broker.DeleteQueue(name)
		w.check.ticketsLost = true
		w.faults--
	case Purge:
		subqueues := w.plan.subqueues()
		w.broker.PurgeQueue(w.topology.Main(subqueues[f.N%len(subqueues)]))
		w.check.ticketsLost = true
		w.faults--
	case Newer:
		objects := w.topology.Queues(queues)[1:] // without the quarantine
		w.broker.Insert(objects[f.N%len(objects)].Name, []byte(`{"v":2,"t":"of a newer version"}`))
		w.faults--
	case Silence:
		queues := w.topology.Queue(queues[f.N%len(queues)])
		silence := func(by int) {
			for _, name := range queues {
				w.silences[name] += by
				w.broker.SetSilent(name, w.silences[name] > 0)
			}
		}
		silence(+1)
		w.endAfter(f, f.For, func() { silence(-1) })
	case Block:
		if p := w.processes[f.Target]; f.N%2 == 1 {
			p.broker.SetBlocked("simulated: its publishing connection is held back")
			w.endAfter(f, f.For, func() { p.broker.SetBlocked(w.state.blocked) })
			return
		}
		w.block("simulated alarm")
		w.endAfter(f, f.For, func() { w.block("") })
	}
}

// endAfter ends a fault after wait: it calls end and counts the fault as ended.
func (w *world) endAfter(f Fault, wait time.Duration, end func()) {
	w.after(wait, &step{what: f.Kind.String() + " ends", run: func() {
		end()
		w.faults--
	}})
}

// life returns how often a process of the plan was started.
func (w *world) life(index int) int { return w.lives[index] }

// dying counts one step of the process. If the process is to die at this step, dying kills it, and reports whether it
// dies before or after the step takes effect.
func (p *process) dying() (before, after bool) {
	if p.killIn == 0 || p.dead {
		return false, false
	}
	if p.killIn--; p.killIn > 0 {
		return false, false
	}
	sent := time.Duration(p.world.rng.Int64N(int64(p.world.plan.Net.Usual)))
	if p.killBefore {
		sent = -1 // nothing sent later can arrive earlier
	}
	p.kill(sent, p.restartAfter)
	return p.killBefore, !p.killBefore
}

// kill simulates kill -9. Messages that would arrive within the time sent still arrive; later ones are lost. The
// process receives nothing more. A new process starts after the given restart time.
func (p *process) kill(sent, restart time.Duration) {
	w := p.world
	if p.dead {
		return
	}
	p.die()
	p.killed, p.killIn = time.Now(), 0
	w.check.operations.killed(p)
	w.log.logf(time.Since(w.began), "process %s is killed", p.name)
	for _, s := range w.stepsOf(p) {
		if s.onLost != nil {
			s.onLost()
		}
		if s.direction == toProcess || time.Until(s.at) > sent {
			s.dropped = true
		}
	}
	p.cancel()
	w.after(time.Duration(w.rng.Int64N(int64(closeDelay))), &step{what: "connections close", run: func() {
		p.store.Disconnect()
		p.broker.Forget()
	}})
	w.faults++
	w.after(restart, &step{what: "restart", run: func() {
		w.faults--
		w.start(p.index, w.life(p.index)+1)
	}})
}

// stepsOf returns the waiting steps of a process, in order.
func (w *world) stepsOf(p *process) []*step {
	var list []*step
	for _, s := range w.steps {
		if s.owner == p {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *step) int {
		if steps([]*step{a, b}).Less(0, 1) {
			return -1
		}
		return 1
	})
	return list
}

// stop simulates SIGSTOP until the fault ends.
func (p *process) stop(f Fault) {
	w := p.world
	if p.resumed != nil { // the process is already stopped
		w.faults--
		return
	}
	p.stoppedUntil, p.resumed = time.Now().Add(f.For), make(chan struct{})
	p.markTroubled(p.stoppedUntil)
	if f.For > heartbeat {
		w.after(heartbeat, &step{what: "no heartbeats", run: func() {
			if !p.dead {
				p.broker.Forget() // the process notices when it continues
			}
		}})
	}
	w.endAfter(f, f.For, func() {
		close(p.resumed)
		p.resumed = nil
		if f.For > heartbeat && !p.dead {
			p.breakBroker()
			p.broker.Disconnect()
		}
	})
}

// breakBroker breaks the process's connections to the broker. Of each request on its way, either the request or only
// its answer is lost.
func (p *process) breakBroker() {
	p.brokerBrokenAt = time.Now()
	p.breakDirection(toBroker)
}

// breakStore breaks the process's connections to the store, as breakBroker does for the broker.
func (p *process) breakStore() {
	p.storeBrokenAt = time.Now()
	p.breakDirection(toStore)
}

func (p *process) breakDirection(to direction) {
	w := p.world
	for _, s := range w.stepsOf(p) {
		if s.direction != to {
			continue
		}
		if s.onLost == nil || w.rng.IntN(2) == 0 { // otherwise the request arrives and its answer is lost
			s.dropped = true
		}
		if s.onLost != nil {
			s.onLost()
		}
	}
}

// keepBreaking closes the connections to the broker at random intervals, as long as faults begin.
func (p *process) keepBreaking() {
	w := p.world
	if time.Since(w.began) > faultTime {
		return
	}
	w.after(time.Duration(w.rng.Int64N(int64(w.plan.Net.Breaks))), &step{owner: p, what: "connections break", run: func() {
		if !p.dead {
			p.breakBroker()
			p.broker.Disconnect()
			p.keepBreaking()
		}
	}})
}

func (p *process) cutBroker(f Fault) {
	w := p.world
	p.breakBroker()
	if f.N%2 == 0 {
		p.broker.SetCut(true)
	} else {
		p.broker.CutSilently()
		w.after(min(heartbeat, f.For), &step{what: "no heartbeats", run: p.broker.Expire})
	}
	w.endAfter(f, f.For, func() { p.broker.SetCut(false) })
}

// losePresence ends the presence of the process at both servers. The process does not notice until the fault ends.
func (p *process) losePresence(f Fault) {
	w := p.world
	notifyStore, notifyBroker := p.store.LosePresence(), p.broker.LosePresence()
	if until := time.Now().Add(f.For); until.After(p.unawareUntil) {
		p.unawareUntil = until
	}
	w.endAfter(f, f.For, func() {
		if !p.dead {
			notifyStore()
			notifyBroker()
		}
	})
}

func (w *world) stopBroker() {
	for _, p := range w.processes {
		if !p.dead {
			p.breakBroker()
		}
	}
	w.broker.SetDown(true)
	w.state.brokerDown, w.state.disturbed = true, time.Now()
}

// stopStore ends the store sessions of all processes.
func (w *world) stopStore() {
	for _, p := range w.processes {
		p.storeBrokenAt = time.Now()
	}
	w.store.Stopped()
	w.state.disturbed = time.Now()
}

func (w *world) storeBack() {
	w.state.disturbed = time.Now()
	w.state.storeDown, w.state.storeUp, w.state.storeUpAt = false, time.Now(), w.clock.now()
	w.store.Restarted()
}

// fallBack simulates a failover to a replica that lacks the newest commits.
func (w *world) fallBack(to *memory.Snapshot) {
	w.stopStore()
	w.store.Restore(to, memory.IDsAgain)
	w.state.fellBack++
	w.state.storeUp = time.Now() // the replica was already running, so Fence does not wait for its settle time
	w.check.fellBack()
}

func (w *world) block(reason string) {
	w.state.blocked = reason
	for _, p := range w.processes {
		if !p.dead {
			p.broker.SetBlocked(reason)
		}
	}
}
