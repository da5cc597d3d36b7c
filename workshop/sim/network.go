package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/memory"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

// serverState is the current state of the servers.
type serverState struct {
	storeDown, brokerDown bool

	blocked   string        // why the broker accepts no messages; empty if it does
	storeUp   time.Time     // when the store came up, in simulated time
	storeUpAt time.Time     // when the store came up, by its own clock
	leapt     time.Time     // when the clock of the store last leapt
	leaptTwo  time.Time     // when it leapt before that
	lastLeap  time.Duration // last leap of the clock of the store
	leaptBack time.Time     // when a leap last canceled the previous one before a janitor could notice
	disturbed time.Time     // when either server last went down or came up
	fellBack  int           // how often the store lost commits
}

var errNoAnswer = fmt.Errorf("%w: simulated: no answer", holdfast.ErrUnavailable)

const (
	// driverTimeout is how long the database driver waits for an answer over a cut connection.
	driverTimeout = time.Second
	// closeDelay is the longest time until a server notices that a killed process is gone.
	closeDelay = 50 * time.Millisecond
	// slowMessage is the latency above which a message may keep a process from renewing its lease.
	slowMessage = 100 * time.Millisecond
)

// latency draws how long a message of p takes. It notes a slow one as trouble for p.
func (w *world) latency(p *process) time.Duration {
	d := time.Duration(w.rng.Int64N(int64(w.plan.Net.Usual)))
	if w.rng.IntN(1000) < w.plan.Net.PerMilleSlow {
		d += time.Duration(w.rng.Int64N(int64(w.plan.Net.Slow)))
	}
	if d > slowMessage {
		p.markTroubled(time.Now().Add(d))
	}
	return d
}

// request is a request of a process to a server. The process waits for the answer.
type request struct {
	answer    chan error
	abandoned bool  // the process no longer waits
	arrives   *step // the arrival of the request at the server
}

func (req *request) reply(err error) {
	if !req.abandoned {
		req.abandoned = true
		req.answer <- err
	}
}

// send sends a request to a server and waits for the answer. At the server, the driver calls arrives.
func (p *process) send(ctx context.Context, s *step, arrives func(*request)) error {
	w := p.world
	req := &request{answer: make(chan error, 1), arrives: s}
	select {
	case <-p.gone: // wait, so that a caller that retries in a loop does not stop the clock
		time.Sleep(10 * time.Millisecond)
		return errNoAnswer
	default:
	}
	s.owner = p
	s.onLost = func() { req.reply(errNoAnswer) }
	s.run = func() { arrives(req) }
	w.submit(func() {
		if p.dead || w.ended {
			req.reply(errNoAnswer)
			return
		}
		w.after(max(w.latency(p), p.stoppedFor()), s)
	})
	select {
	case err := <-req.answer:
		return err
	case <-ctx.Done():
	}
	w.submit(func() {
		req.abandoned = true
		if w.rng.IntN(2) == 0 { // otherwise the request still arrives
			s.dropped = true
		}
	})
	return fmt.Errorf("%w: simulated: %w", holdfast.ErrUnavailable, context.Cause(ctx))
}

// storeGate is the memory.Gate of a process.
func (p *process) storeGate(ctx context.Context, s memory.Step, effect func()) error {
	return p.send(ctx, &step{direction: toStore, what: s.Op, note: s.Note}, func(req *request) { p.atStore(req, s, effect) })
}

// atStore is the arrival of a request at the store.
func (p *process) atStore(req *request, s memory.Step, effect func()) {
	w := p.world
	switch {
	case w.state.storeDown:
		req.reply(errNoAnswer)
		return
	case p.storeCut && !p.answersOnly:
		again := &step{owner: p, direction: toStore, what: "retry " + req.arrives.what, note: req.arrives.note, onLost: req.arrives.onLost}
		wait := driverTimeout
		again.run = func() { req.reply(errNoAnswer) }
		if left := time.Until(p.storeCutUntil); left < driverTimeout { // the connection is restored in time
			wait, again.run = left, func() { p.atStore(req, s, effect) }
		}
		w.after(wait, again)
		return
	}
	before, after := p.dying()
	if before {
		req.reply(errNoAnswer)
		return
	}
	if w.plan.gated() && w.rng.IntN(4) == 0 && s.Begin() {
		began := time.Now()
		w.after(time.Duration(w.rng.Int64N(int64(w.plan.lockWait()))), &step{what: "lock of " + s.Op, note: s.Note, onLost: func() { req.reply(errNoAnswer) }, run: func() {
			if w.state.storeDown {
				req.reply(errNoAnswer)
				return
			}
			effect() // even if the process is gone
			p.answer(req, after || !p.storeBrokenAt.Before(began))
		}})
		return
	}
	effect()
	p.answer(req, after)
}

// lockWait is how long a statement of the store may wait for a lock, unless the plan has another time.
const lockWait = 100 * time.Millisecond

// lockWait returns how long a statement of the store may wait for a lock.
func (p *Plan) lockWait() time.Duration { return max(lockWait, p.LockWait) }

// answer sends the answer to a request that the store has carried out. If the process or its connection is gone, the
// answer is lost.
func (p *process) answer(req *request, lost bool) {
	if lost {
		req.reply(errNoAnswer)
		return
	}
	var err error
	var wait time.Duration
	if p.storeCut {
		err, wait = errNoAnswer, driverTimeout
	}
	p.reply(req, max(wait, p.stoppedFor()), err)
}

// storeNotify is the memory.Notifier of a process: it carries the notifications of the store. Only steps call it.
func (p *process) storeNotify(s memory.Step, deliver func()) {
	w := p.world
	if p.dead || w.ended {
		return
	}
	notice := &step{owner: p, direction: toProcess, what: s.Op, note: s.Note}
	notice.run = func() {
		if wait := max(p.stoppedFor(), p.cutFor()); wait > 0 {
			w.after(wait, notice)
			return
		}
		deliver()
	}
	w.after(w.latency(p), notice)
}

// cutFor returns how long the process stays cut off from the store.
func (p *process) cutFor() time.Duration {
	if !p.storeCut {
		return 0
	}
	return max(0, time.Until(p.storeCutUntil))
}

// reply answers a request after wait, or later if the process is stopped then.
func (p *process) reply(req *request, wait time.Duration, err error) {
	if wait <= 0 {
		req.reply(err)
		return
	}
	s := &step{owner: p, direction: toProcess, what: "answer", onLost: func() { req.reply(errNoAnswer) }}
	s.run = func() {
		if p.stoppedFor() > 0 {
			p.reply(req, p.stoppedFor(), err)
			return
		}
		req.reply(err)
	}
	p.world.after(wait, s)
}

// brokerNetwork is the simbroker.Network of a process.
type brokerNetwork struct {
	*process
	last map[uint64]time.Time // by link: when its newest frame arrives
}

// Call implements simbroker.Network.
func (n *brokerNetwork) Call(ctx context.Context, s simbroker.Step, effect func(simbroker.Fate)) error {
	p := n.process
	return p.send(ctx, &step{direction: toBroker, what: s.Op, note: s.Note}, func(req *request) {
		before, after := p.dying()
		if before {
			return
		}
		effect(p.fate(s.Op))
		if !after {
			p.reply(req, p.stoppedFor(), nil)
		}
	})
}

// fate draws the mishap of a publish call. Other calls get no mishap.
func (p *process) fate(op string) simbroker.Fate {
	fine := simbroker.Fate{Arrive: -1}
	w := p.world
	if op != "publish" || w.rng.IntN(1000) >= w.plan.Net.PerMilleMishap {
		return fine
	}
	switch w.rng.IntN(5) {
	case 0:
		fine.Arrive = w.rng.IntN(3)
	case 1:
		fine.Unconfirmed = true
	case 2:
		fine.Nacked = true
	case 3:
		fine.Twice = true
	case 4: // all connections of the process break, not only that of the publisher
		fine.Arrive = 0
		w.after(0, &step{owner: p, what: "connections break", run: func() {
			if !p.dead {
				p.breakBroker()
				p.broker.Disconnect()
			}
		}})
	}
	return fine
}

// Post implements simbroker.Network.
func (n *brokerNetwork) Post(link uint64, s simbroker.Step, effect func()) {
	n.process.world.submit(func() { n.post(link, s, effect) })
}

func (n *brokerNetwork) post(link uint64, s simbroker.Step, effect func()) {
	p, w := n.process, n.process.world
	if p.dead || w.ended {
		return
	}
	frame := &step{owner: p, direction: toBroker, what: s.Op, note: s.Note}
	if s.Op == "deliver" || s.Op == "cancelled" {
		frame.direction = toProcess
	}
	frame.run = func() {
		if wait := p.stoppedFor(); wait > 0 && frame.direction == toProcess {
			w.after(wait, frame) // the list keeps the order of the frames
			return
		}
		if frame.direction == toBroker {
			if before, _ := p.dying(); before {
				return
			}
		}
		effect()
	}
	at := time.Now().Add(w.latency(p))
	if frame.direction == toBroker {
		at = at.Add(p.stoppedFor())
	}
	if n.last[link].After(at) {
		at = n.last[link]
	}
	n.last[link] = at
	w.at(at, frame)
}

// unavailable reports whether err wraps holdfast.ErrUnavailable.
func unavailable(err error) bool { return errors.Is(err, holdfast.ErrUnavailable) }
