package simbroker

import "fmt"

// channel is the broker's side of a subscription: an AMQP channel with at most one active consumer. It never uses a
// delivery number twice.
type channel struct {
	conn     *conn
	sub      *subscription // the client's side
	queue    *queue
	consumer *consumer // the newest consumer
	lingers  int       // cancelled consumers with unsettled deliveries
	up, down uint64    // links to the broker and to the client
	closed   bool
	finished bool // the client has closed the channel and must send nothing more on it
	notified bool // the client was notified that its consumer was cancelled

	// unacked holds the unsettled deliveries in the order of their delivery numbers. Settled ones in between are empty
	// entries; the first entry is never empty.
	unacked []entry
	base    uint64 // delivery number of the first entry
	last    uint64 // newest delivery number

	// frames are the frames of the client that are on their way. Requests overtake them on the network. At the broker,
	// a frame still takes effect before a request that was sent later, because both belong to the same channel.
	frames        []frame
	sent, arrived uint64
}

type entry struct {
	message  *Message // nil if settled
	consumer *consumer
}

// consumer is a consumer of the broker. Each basic.consume creates one, at a Subscribe or a Resume.
type consumer struct {
	channel  *channel
	prefetch int
	unacked  int // number of unsettled deliveries
	active   bool
	inTurn   bool
}

// frame settles deliveries.
type frame struct {
	op    verb
	wire  uint64
	wires []uint64 // delivery numbers to requeue
}

type verb uint8

const (
	ackOne verb = iota
	ackUpTo
	requeue
)

// openChannel opens a channel for a subscription. The frames of the channel use two new links.
func (v *conn) openChannel(s *subscription, q *queue, prefetch int) *channel {
	b := v.client.broker
	ch := &channel{conn: v, sub: s, up: b.links, down: b.links + 1, base: 1}
	b.links += 2
	v.channels = append(v.channels, ch)
	s.channel = ch
	ch.consume(q, prefetch)
	return ch
}

// consume starts a consumer. The queue may be a new one with the name of the channel's earlier queue.
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

// stop cancels the consumer. Its deliveries can still be settled.
func (ch *channel) stop() {
	c := ch.consumer
	if c.active && c.unacked > 0 {
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
	c.unacked++
	ch.last++
	if len(ch.unacked) == 0 {
		ch.base = ch.last
	}
	ch.unacked = append(ch.unacked, entry{m, c})
	m.Holder = ch.conn.client
	wire, redelivered := ch.last, m.Redelivered()
	ch.conn.client.post(ch.down, Step{"deliver", m.String}, func() { ch.sub.arrive(wire, m, redelivered) })
}

// cancelled notifies the client that the broker has cancelled its consumer.
func (ch *channel) cancelled() {
	ch.notified = true
	name := ch.queue.name
	ch.conn.client.post(ch.down, Step{"cancelled", func() string { return short(name) }}, ch.sub.abandon)
}

// send sends a frame that settles deliveries. It is called on the client's side.
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
		panic(fmt.Sprintf("simbroker: frame %d of link %d arrived after frame %d", number, ch.up, ch.arrived))
	default:
		ch.catchUp(number)
	}
}

// catchUp carries out all frames up to the given number. It is called when something arrives that was sent after them.
func (ch *channel) catchUp(number uint64) {
	for ch.arrived < number {
		f := ch.frames[0]
		ch.frames = ch.frames[1:]
		ch.arrived++
		switch {
		case ch.finished:
			ch.conn.client.broker.misused(ch.conn.client, "a frame arrived on a channel that its client had closed")
		case ch.closed: // closed by the broker, which ignores such frames
		case !ch.settle(f):
			ch.conn.client.broker.misused(ch.conn.client, fmt.Sprintf("unknown delivery %d of %s", f.wire, short(ch.queue.name)))
			closeChannels([]*channel{ch}) // RabbitMQ does the same
			ch.cancelled()
		}
	}
}

// settle carries out a frame. It reports whether the deliveries were known.
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
			ch.ack(ch.base) // moves base on, because the first entry is never empty
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

// take removes a delivery and returns the credit to its consumer.
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
	if e.consumer.unacked--; e.consumer.unacked == 0 && !e.consumer.active {
		ch.lingers--
	}
	ch.queue.enlist(e.consumer)
	return e.message, true
}

// closeChannels closes channels and requeues their unsettled messages only when none of these channels can receive
// them.
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
