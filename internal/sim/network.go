package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/sim/simbroker"
	"github.com/holdfastq/holdfast/internal/sim/simstore"
)

// weather is what is wrong with the servers.
type weather struct {
	storeDown, brokerDown bool

	blocked   string    // why the broker takes no messages
	storeUp   time.Time // since when
	storeUpAt time.Time // the same by its own clock
	leapt     time.Time // when its clock did
	disturbed time.Time // when either server went away or came back last
	fellBack  int       // how often commits were lost
}

var errAway = fmt.Errorf("%w: simulated: no answer", holdfast.ErrUnavailable)

const (
	// giveUp is how long the database's driver waits on a way that is cut.
	giveUp = time.Second
	// fin is how long it takes at most until a server sees that a killed process is gone.
	fin = 50 * time.Millisecond
	// worth mentioning: a message slower than this may have kept a process from renewing its lease
	slowish = 100 * time.Millisecond
)

// latency draws how long a message of p takes.
func (w *world) latency(p *process) time.Duration {
	d := time.Duration(w.rng.Int64N(int64(w.plan.Net.Usual)))
	if w.rng.IntN(1000) < w.plan.Net.PerMilleSlow {
		d += time.Duration(w.rng.Int64N(int64(w.plan.Net.Slow)))
	}
	if d > slowish {
		p.trouble(time.Now().Add(d))
	}
	return d
}

// question is one that a process asks a server and waits for.
type question struct {
	answer  chan error
	nobody  bool // waits for the answer any more
	arrives *step
}

func (q *question) reply(err error) {
	if !q.nobody {
		q.nobody = true
		q.answer <- err
	}
}

// send puts a question on its way; arrives is its moment at the server.
func (p *process) send(ctx context.Context, s *step, arrives func(*question)) error {
	w := p.world
	q := &question{answer: make(chan error, 1), arrives: s}
	select {
	case <-p.gone: // nobody's answer; but whoever asks again at once must not stop the clock
		time.Sleep(10 * time.Millisecond)
		return errAway
	default:
	}
	s.of = p
	s.lost = func() { q.reply(errAway) }
	s.run = func() { arrives(q) }
	w.submit(func() {
		if p.dead || w.over {
			q.reply(errAway)
			return
		}
		w.in(max(w.latency(p), p.stoppedFor()), s)
	})
	select {
	case err := <-q.answer:
		return err
	case <-ctx.Done():
	}
	w.submit(func() {
		q.nobody = true
		if w.rng.IntN(2) == 0 { // else it is on its way all the same
			s.dropped = true
		}
	})
	return fmt.Errorf("%w: simulated: %w", holdfast.ErrUnavailable, context.Cause(ctx))
}

// ask is the simstore.Gate of a process.
func (p *process) ask(ctx context.Context, s simstore.Step, effect func()) error {
	return p.send(ctx, &step{way: toStore, what: s.Op, note: s.Note}, func(q *question) { p.atStore(q, effect) })
}

// atStore is the moment a question would reach the store.
func (p *process) atStore(q *question, effect func()) {
	w := p.world
	switch {
	case w.state.storeDown:
		q.reply(errAway)
		return
	case p.storeCut && !p.answersOnly:
		again := &step{of: p, way: toStore, what: "again " + q.arrives.what, note: q.arrives.note, lost: q.arrives.lost}
		wait := giveUp
		again.run = func() { q.reply(errAway) }
		if left := time.Until(p.storeCutUntil); left < giveUp { // the way is there again before anybody gives up
			wait, again.run = left, func() { p.atStore(q, effect) }
		}
		w.in(wait, again)
		return
	}
	before, after := p.dying()
	if before {
		return
	}
	effect()
	if after {
		return
	}
	var err error
	var wait time.Duration
	if p.storeCut {
		err, wait = errAway, giveUp
	}
	p.reply(q, max(wait, p.stoppedFor()), err)
}

// hear is the simstore.Herald of a process: what the server says unasked. It is called by a step.
func (p *process) hear(s simstore.Step, deliver func()) {
	w := p.world
	if p.dead || w.over {
		return
	}
	news := &step{of: p, way: back, what: s.Op, note: s.Note}
	news.run = func() {
		if wait := max(p.stoppedFor(), p.cutFor()); wait > 0 {
			w.in(wait, news)
			return
		}
		deliver()
	}
	w.in(w.latency(p), news)
}

// cutFor is how long the process stays cut off from the store.
func (p *process) cutFor() time.Duration {
	if !p.storeCut {
		return 0
	}
	return max(0, time.Until(p.storeCutUntil))
}

// reply answers after a while.
func (p *process) reply(q *question, wait time.Duration, err error) {
	if wait <= 0 {
		q.reply(err)
		return
	}
	s := &step{of: p, way: back, what: "answer", lost: func() { q.reply(errAway) }}
	s.run = func() {
		if p.stoppedFor() > 0 {
			p.reply(q, p.stoppedFor(), err)
			return
		}
		q.reply(err)
	}
	p.world.in(wait, s)
}

// wire is the simbroker.Network of a process.
type wire struct {
	*process
	last map[uint64]time.Time // by lane: when its newest frame arrives
}

// Call implements simbroker.Network.
func (n *wire) Call(ctx context.Context, s simbroker.Step, effect func(simbroker.Fate)) error {
	p := n.process
	return p.send(ctx, &step{way: toBroker, what: s.Op, note: s.Note}, func(q *question) {
		before, after := p.dying()
		if before {
			return
		}
		effect(p.fate(s.Op))
		if !after {
			p.reply(q, p.stoppedFor(), nil)
		}
	})
}

// fate draws what goes wrong with a publish call.
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
	case 4: // all connections break, not only the publisher's
		fine.Arrive = 0
		w.in(0, &step{of: p, what: "connections break", run: func() {
			if !p.dead {
				p.breakBroker()
				p.broker.Disconnect()
			}
		}})
	}
	return fine
}

// Post implements simbroker.Network.
func (n *wire) Post(lane uint64, s simbroker.Step, effect func()) {
	n.process.world.submit(func() { n.post(lane, s, effect) })
}

func (n *wire) post(lane uint64, s simbroker.Step, effect func()) {
	p, w := n.process, n.process.world
	if p.dead || w.over {
		return
	}
	frame := &step{of: p, way: toBroker, what: s.Op, note: s.Note}
	if s.Op == "deliver" || s.Op == "cancelled" {
		frame.way = back
	}
	frame.run = func() {
		if wait := p.stoppedFor(); wait > 0 && frame.way == back {
			w.in(wait, frame) // in the order of the frames, which the list keeps
			return
		}
		if frame.way == toBroker {
			if before, _ := p.dying(); before {
				return
			}
		}
		effect()
	}
	at := time.Now().Add(w.latency(p))
	if frame.way == toBroker {
		at = at.Add(p.stoppedFor())
	}
	if n.last[lane].After(at) {
		at = n.last[lane]
	}
	n.last[lane] = at
	w.on(at, frame)
}

// unavailable reports whether an error says that a server could not be reached.
func unavailable(err error) bool { return errors.Is(err, holdfast.ErrUnavailable) }
