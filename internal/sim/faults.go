package sim

import (
	"slices"
	"time"

	"github.com/holdfastq/holdfast/internal/sim/simstore"
)

// lanes are those that plans use.
var lanes = []string{"a", "b"}

// strike is the moment of a fault.
func (w *world) strike(f Fault) {
	p := w.processes[f.Target]
	if f.Kind <= LoseSigns && (p.dead || p.ctx.Err() != nil) {
		w.faults-- // it is gone already
		return
	}
	switch f.Kind {
	case Kill:
		p.killIn, p.killBefore, p.restartAfter = 1+f.N, f.N%2 == 0, f.For
		w.during(f, longest, func() { // a process with nothing to do lives on
			p.killIn = 0
		})
	case Stop:
		p.stop(f)
	case Drain:
		p.cancel()
		w.during(f, f.For, func() { w.start(f.Target, w.life(f.Target)+1) })
	case CutStore:
		p.storeCut, p.answersOnly, p.storeCutUntil = true, f.N%2 == 1, time.Now().Add(f.For)
		p.trouble(p.storeCutUntil.Add(giveUp))
		w.during(f, f.For, func() { p.storeCut = false })
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
	case LoseSigns:
		p.loseSigns(f)
	default:
		w.strikeServers(f)
	}
}

func (w *world) strikeServers(f Fault) {
	switch f.Kind {
	case StoreRestart:
		w.state.storeDown = true
		w.stopStore()
		w.during(f, f.For, w.storeBack)
	case StoreBack:
		snapshot := w.store.Snapshot()
		w.during(f, f.For, func() { w.fallBack(snapshot) })
	case StoreLeap:
		if f.N%2 == 1 {
			f.For = -f.For
		}
		// A clock that stands ahead between two notes of it, for less than a second, leaves no trace that any store could see.
		w.store.NoteTime()
		w.clock.leap += f.For
		w.store.NoteTime()
		w.state.leapt = time.Now()
		w.faults--
	case BrokerRestart, BrokerWipe:
		w.stopBroker()
		w.during(f, f.For, func() {
			if f.Kind == BrokerWipe {
				w.broker.Wipe()
				w.check.ticketsLost = true
			}
			w.broker.SetDown(false)
			if w.state.brokerDown { // else another outage has ended before this one
				w.state.brokerDown, w.state.disturbed = false, time.Now()
			}
		})
	case DeleteQueue:
		queues := w.topology.Queues(lanes)
		name := queues[f.N%len(queues)].Name
		w.log.say(time.Since(w.began), "queue %s is deleted", name)
		w.broker.DeleteQueue(name)
		w.check.ticketsLost = true
		w.faults--
	case Purge:
		w.broker.PurgeQueue(w.topology.Main(lanes[f.N%len(lanes)]))
		w.check.ticketsLost = true
		w.faults--
	case Silence:
		queues := w.topology.Lane(lanes[f.N%len(lanes)])
		silence := func(by int) {
			for _, name := range queues {
				w.silences[name] += by
				w.broker.SetSilent(name, w.silences[name] > 0)
			}
		}
		silence(+1)
		w.during(f, f.For, func() { silence(-1) })
	case Block:
		if p := w.processes[f.Target]; f.N%2 == 1 {
			p.broker.SetBlocked("simulated: its publishing connection is held back")
			w.during(f, f.For, func() { p.broker.SetBlocked(w.state.blocked) })
			return
		}
		w.block("simulated alarm")
		w.during(f, f.For, func() { w.block("") })
	}
}

// during ends a fault after a while.
func (w *world) during(f Fault, wait time.Duration, end func()) {
	w.in(wait, &step{what: f.Kind.String() + " ends", run: func() {
		end()
		w.faults--
	}})
}

// life is the number of a process's current life.
func (w *world) life(index int) int { return w.lives[index] }

// dying counts a step down to the planned death of the process, and reports whether it dies before or after this
// one.
func (p *process) dying() (before, after bool) {
	if p.killIn == 0 || p.dead {
		return false, false
	}
	if p.killIn--; p.killIn > 0 {
		return false, false
	}
	sent := time.Duration(p.world.rng.Int64N(int64(p.world.plan.Net.Usual)))
	if p.killBefore {
		sent = -1 // nothing comes after what does not
	}
	p.kill(sent, p.restartAfter)
	return p.killBefore, !p.killBefore
}

// kill is kill -9: what would arrive before sent is over does arrive, and nothing reaches the process any more.
func (p *process) kill(sent, restart time.Duration) {
	w := p.world
	if p.dead {
		return
	}
	p.die()
	p.killed, p.killIn = time.Now(), 0
	w.log.say(time.Since(w.began), "process %s is killed", p.name)
	for _, s := range w.stepsOf(p) {
		if s.lost != nil {
			s.lost()
		}
		if s.way == back || time.Until(s.at) > sent {
			s.dropped = true
		}
	}
	p.cancel()
	w.in(time.Duration(w.rng.Int64N(int64(fin))), &step{what: "connections close", run: func() {
		p.store.Disconnect()
		p.broker.Forget()
	}})
	w.faults++
	w.in(restart, &step{what: "restart", run: func() {
		w.faults--
		w.start(p.index, w.life(p.index)+1)
	}})
}

// stepsOf are the waiting steps of a process, in order.
func (w *world) stepsOf(p *process) []*step {
	var of []*step
	for _, s := range w.steps {
		if s.of == p {
			of = append(of, s)
		}
	}
	slices.SortFunc(of, func(a, b *step) int {
		if steps([]*step{a, b}).Less(0, 1) {
			return -1
		}
		return 1
	})
	return of
}

// stop is SIGSTOP until the fault ends.
func (p *process) stop(f Fault) {
	w := p.world
	if p.resumed != nil { // stopped already
		w.faults--
		return
	}
	p.stoppedUntil, p.resumed = time.Now().Add(f.For), make(chan struct{})
	p.trouble(p.stoppedUntil)
	if f.For > heartbeat {
		w.in(heartbeat, &step{what: "no heartbeats", run: func() {
			if !p.dead {
				p.broker.Forget() // which it learns when it goes on
			}
		}})
	}
	w.during(f, f.For, func() {
		close(p.resumed)
		p.resumed = nil
		if f.For > heartbeat && !p.dead {
			p.breakBroker()
			p.broker.Disconnect()
		}
	})
}

// breakBroker fails what is on its way between the process and the broker.
func (p *process) breakBroker() {
	p.brokerBroke = time.Now()
	p.breakWay(toBroker)
}

// breakStore does so for the store.
func (p *process) breakStore() {
	p.storeBroke = time.Now()
	p.breakWay(toStore)
}

func (p *process) breakWay(to way) {
	w := p.world
	for _, s := range w.stepsOf(p) {
		if s.way != to {
			continue
		}
		if s.lost == nil || w.rng.IntN(2) == 0 { // else it arrives, and the answer does not
			s.dropped = true
		}
		if s.lost != nil {
			s.lost()
		}
	}
}

// breakNow closes the connections to the broker some time from now, again and again.
func (p *process) breakNow() {
	w := p.world
	if time.Since(w.began) > faultTime {
		return
	}
	w.in(time.Duration(w.rng.Int64N(int64(w.plan.Net.Breaks))), &step{of: p, what: "connections break", run: func() {
		if !p.dead {
			p.breakBroker()
			p.broker.Disconnect()
			p.breakNow()
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
		w.in(min(heartbeat, f.For), &step{what: "no heartbeats", run: p.broker.Expire})
	}
	w.during(f, f.For, func() { p.broker.SetCut(false) })
}

// loseSigns ends the sessions of the process's signs at both servers: its side of them stays open until the fault ends.
func (p *process) loseSigns(f Fault) {
	w := p.world
	tellStore, tellBroker := p.store.LoseSigns(), p.broker.LoseSigns()
	if until := time.Now().Add(f.For); until.After(p.unaware) {
		p.unaware = until
	}
	w.during(f, f.For, func() {
		if !p.dead {
			tellStore()
			tellBroker()
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

// stopStore ends everybody's sessions.
func (w *world) stopStore() {
	for _, p := range w.processes {
		p.storeBroke = time.Now()
	}
	w.store.Stopped()
	w.state.disturbed = time.Now()
}

func (w *world) storeBack() {
	w.state.disturbed = time.Now()
	w.state.storeDown, w.state.storeUp, w.state.storeUpAt = false, time.Now(), w.clock.now()
	w.store.Restarted()
}

// fallBack is a failover to a replica that lacks the newest commits.
func (w *world) fallBack(to *simstore.Snapshot) {
	w.stopStore()
	w.store.Restore(to, simstore.IDsAgain)
	w.state.fellBack++
	w.state.storeUp = time.Now() // but it has been running all the while: Fence's settle is over
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
