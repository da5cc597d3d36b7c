package simbroker

import "fmt"

// channel is the broker's side of a subscription: a channel with at most one consumer at a
// time. The numbers of its deliveries on the wire are never used twice.
type channel struct {
	conn     *conn
	sub      *subscription // the other side
	queue    *queue
	consumer *consumer // the newest one
	lingers  int       // consumers that were cancelled and still have something
	up, down uint64    // lanes
	closed   bool
	finished bool // closed by the client, after which it must not say anything more
	notified bool // told that its consumer was cancelled

	// Deliveries that are not settled, by wire number, with gaps where others were.
	// The first one is not settled.
	unacked []entry
	base    uint64 // wire number of the first one
	last    uint64 // newest wire number

	// Frames of the client that are on their way. Requests overtake them on the network, but not
	// here: they belong to the same channel, so what was sent before arrives before.
	frames        []frame
	sent, arrived uint64
}

type entry struct {
	message  *Message // nil once settled
	consumer *consumer
}

// consumer is what basic.consume makes: one for each time between a Resume and a Pause.
type consumer struct {
	channel  *channel
	prefetch int
	inHand   int
	active   bool
	inTurn   bool
}

// frame settles deliveries.
type frame struct {
	op    verb
	wire  uint64
	wires []uint64 // to requeue
}

type verb uint8

const (
	ackOne verb = iota
	ackUpTo
	requeue
)

// openChannel opens a channel for a subscription, which can hear of it by its lanes.
func (v *conn) openChannel(s *subscription, q *queue, prefetch int) *channel {
	b := v.client.broker
	ch := &channel{conn: v, sub: s, up: b.lanes, down: b.lanes + 1, base: 1}
	b.lanes += 2
	v.channels = append(v.channels, ch)
	s.channel = ch
	ch.consume(q, prefetch)
	return ch
}

// consume starts a consumer, also of a queue that was made anew under its old name.
func (ch *channel) consume(q *queue, prefetch int) {
	if ch.queue != q {
		if ch.queue != nil {
			ch.queue.channels = without(ch.queue.channels, ch)
		}
		ch.queue = q
		q.channels = append(q.channels, ch)
	}
	ch.consumer = &consumer{channel: ch, prefetch: prefetch, active: true}
	q.enlist(ch.consumer)
	q.dispatch()
}

// stop ends the consumer. Its deliveries can still be settled.
func (ch *channel) stop() {
	c := ch.consumer
	if c.active && c.inHand > 0 {
		ch.lingers++
	}
	c.active = false
	if c.inTurn {
		c.inTurn = false
		ch.queue.turns = without(ch.queue.turns, c)
	}
}

func (c *consumer) deliver(m *Message) {
	ch := c.channel
	c.inHand++
	ch.last++
	if len(ch.unacked) == 0 {
		ch.base = ch.last
	}
	ch.unacked = append(ch.unacked, entry{m, c})
	m.Holder = ch.conn.client
	wire, redelivered := ch.last, m.Redelivered()
	ch.conn.client.post(ch.down, Step{"deliver", m.String}, func() { ch.sub.arrive(wire, m, redelivered) })
}

// cancelled tells the client that the broker ended its consumer.
func (ch *channel) cancelled() {
	ch.notified = true
	name := ch.queue.name
	ch.conn.client.post(ch.down, Step{"cancelled", func() string { return short(name) }}, ch.sub.abandon)
}

// send is the client's side of settling: the frame goes on its way.
func (ch *channel) send(f frame, step Step) {
	ch.frames = append(ch.frames, f)
	ch.sent++
	number := ch.sent
	ch.conn.client.post(ch.up, step, func() { ch.arrive(number) })
}

func (ch *channel) arrive(number uint64) {
	switch {
	case ch.conn.dead || number <= ch.arrived:
	case number > ch.arrived+1:
		panic(fmt.Sprintf("simbroker: frame %d of lane %d arrives after frame %d", number, ch.up, ch.arrived))
	default:
		ch.catchUp(number)
	}
}

// catchUp carries out all frames up to a number that were sent before something that has arrived.
func (ch *channel) catchUp(number uint64) {
	for ch.arrived < number {
		f := ch.frames[0]
		ch.frames = ch.frames[1:]
		ch.arrived++
		switch {
		case ch.finished:
			ch.conn.client.broker.misused(ch.conn.client, "a frame arrived on a channel that its client had closed")
		case ch.closed: // by the broker; such frames are ignored
		case !ch.settle(f):
			ch.conn.client.broker.misused(ch.conn.client, fmt.Sprintf("unknown delivery %d of %s", f.wire, short(ch.queue.name)))
			closeChannels([]*channel{ch}) // as RabbitMQ does
			ch.cancelled()
		}
	}
}

// settle reports whether the deliveries were known.
func (ch *channel) settle(f frame) bool {
	switch f.op {
	case ackOne:
		if !ch.ack(f.wire) {
			return false
		}
	case ackUpTo:
		if !ch.has(f.wire) {
			return false
		}
		for len(ch.unacked) > 0 && ch.base <= f.wire {
			ch.ack(ch.base) // which moves on, for the first is never settled
		}
	case requeue:
		for _, f.wire = range f.wires {
			m, ok := ch.take(f.wire)
			if !ok {
				return false
			}
			if !m.gone {
				ch.queue.giveBack(m)
			}
		}
	}
	ch.queue.dispatch()
	return true
}

func (ch *channel) ack(wire uint64) bool {
	m, ok := ch.take(wire)
	if ok && !m.gone {
		ch.conn.client.broker.left(m, Acked)
	}
	return ok
}

func (ch *channel) has(wire uint64) bool {
	return wire >= ch.base && wire-ch.base < uint64(len(ch.unacked)) && ch.unacked[wire-ch.base].message != nil
}

// take removes a delivery and gives its consumer the credit back.
func (ch *channel) take(wire uint64) (*Message, bool) {
	if !ch.has(wire) {
		return nil, false
	}
	e := ch.unacked[wire-ch.base]
	ch.unacked[wire-ch.base] = entry{}
	n := 0
	for n < len(ch.unacked) && ch.unacked[n].message == nil {
		n++
	}
	ch.unacked, ch.base = ch.unacked[n:], ch.base+uint64(n)
	if e.consumer.inHand--; e.consumer.inHand == 0 && !e.consumer.active {
		ch.lingers--
	}
	ch.queue.enlist(e.consumer)
	return e.message, true
}

// closeChannels gives back what the channels hold, when none of them can get it any more.
func closeChannels(channels []*channel) {
	for _, ch := range channels {
		ch.closed = true
		ch.stop()
	}
	for _, ch := range channels {
		for _, e := range ch.unacked {
			if e.message != nil && !e.message.gone {
				ch.queue.giveBack(e.message)
			}
		}
		ch.unacked = nil
		ch.queue.channels = without(ch.queue.channels, ch)
		ch.conn.channels = without(ch.conn.channels, ch)
	}
	for _, ch := range channels {
		ch.queue.dispatch()
	}
}
