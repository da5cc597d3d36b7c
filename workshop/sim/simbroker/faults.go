package simbroker

import (
	"slices"

	"github.com/holdfastq/holdfast/broker"
)

// Disconnect ends all connections of the client on both sides. Its subscriptions end, and unsettled messages go back to
// the front of their queues. The client can connect again at once.
func (c *Client) Disconnect() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	disconnect(c)
}

// HangUp ends the connections on the client's side only: they are half-open. The broker keeps their unsettled messages,
// and still delivers more to them, until Expire. Frames on their way to the broker may still arrive.
func (c *Client) HangUp() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.hangUp()
}

// Expire makes the broker notice half-open connections, as when their heartbeats fail. Connections that the client has
// made since are not affected.
func (c *Client) Expire() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	expire(slices.DeleteFunc(slices.Clone(c.open), func(v *conn) bool { return !v.gone }))
}

// Forget ends all connections of the client on the broker's side only, as when the heartbeats of a dead or suspended
// process fail. A live client notices with its next request, or by HangUp.
func (c *Client) Forget() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	expire(c.open)
}

// LosePresence ends the client's presence at the broker without notifying the client, as on half-open connections. The
// returned function notifies the client.
func (c *Client) LosePresence() (notify func()) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	var lost []*presenceQueue
	for _, v := range c.open {
		lost = append(lost, v.presenceQueues...)
		v.dropAllPresence()
	}
	return func() {
		c.broker.mu.Lock()
		defer c.broker.unlock()
		for _, s := range lost {
			if slices.Contains(s.conn.acquired, s) {
				s.conn.acquired = without(s.conn.acquired, s)
				close(s.gone)
			}
		}
	}
}

// SetCut cuts the client off from the broker if cut is true, and otherwise ends the cut. Both sides notice a cut at
// once.
func (c *Client) SetCut(cut bool) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.cut = cut
	if cut {
		disconnect(c)
	}
	c.wake()
}

// CutSilently cuts the client off; the broker does not notice before Expire. The client may be connected again before
// that.
func (c *Client) CutSilently() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.cut = true
	c.hangUp()
}

// SetBlocked raises an alarm: the broker accepts no messages of the client. An empty reason ends the alarm.
func (c *Client) SetBlocked(reason string) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.blocked = reason
	c.wake()
}

// SetSilent sets whether an AMQP queue is silent. A silent queue neither stores nor confirms messages that are
// published to it. Its consumers are not affected.
func (b *Broker) SetSilent(queue string, silent bool) {
	b.mu.Lock()
	defer b.unlock()
	if b.silent == nil {
		b.silent = make(map[string]bool)
	}
	b.silent[queue] = silent
}

// SetDown stops the server, or starts it again with everything that was stored.
func (b *Broker) SetDown(down bool) {
	b.mu.Lock()
	defer b.unlock()
	b.down = down
	if down {
		disconnect(b.clients...)
		return
	}
	for _, c := range b.clients {
		c.wake()
	}
}

// Wipe disconnects all clients and deletes everything.
func (b *Broker) Wipe() {
	b.mu.Lock()
	defer b.unlock()
	for _, c := range b.clients {
		c.hangUp()
	}
	for _, q := range slices.Clone(b.order) {
		q.remove(Wiped)
	}
	clear(b.exchanges)
	disconnect(b.clients...)
}

// DeleteQueue deletes an AMQP queue, as an operator can. Messages published before are or will be confirmed; later ones
// are Returned. The subscriptions of the queue are cancelled.
func (b *Broker) DeleteQueue(name string) {
	b.mu.Lock()
	defer b.unlock()
	if q := b.queues[name]; q != nil {
		q.remove(Deleted)
	}
}

// PurgeQueue deletes the waiting messages of an AMQP queue, as an operator can. It does not affect unsettled messages.
func (b *Broker) PurgeQueue(name string) {
	b.mu.Lock()
	defer b.unlock()
	q := b.queues[name]
	if q == nil {
		return
	}
	for q.waiting() > 0 {
		b.left(q.pop(), Purged)
	}
}

// Insert stores a message in an AMQP queue, if the queue exists.
func (b *Broker) Insert(name string, body []byte) {
	b.mu.Lock()
	defer b.unlock()
	m := copyMessages([]broker.Message{{Queue: name, Body: body}})
	b.route(&m[0])
}

// disconnect ends the connections of all given clients at once, so that none of them receives a message that another
// one returns.
func disconnect(clients ...*Client) {
	var open []*conn
	for _, c := range clients {
		c.hangUp()
		open = append(open, c.open...)
	}
	expire(open)
}
