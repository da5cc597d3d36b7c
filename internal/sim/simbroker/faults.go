package simbroker

import "slices"

// Disconnect ends all connections of the client, on both sides. Its subscriptions are over, and unsettled
// messages go back to the front of their queues. It can connect again at once.
func (c *Client) Disconnect() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	disconnect(c)
}

// HangUp ends the connections on the client's side only: they are half-open. The broker keeps what they
// held, and even assigns more to them, until Expire; and frames on their way to it may still arrive.
func (c *Client) HangUp() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.hangUp()
}

// Expire has the broker notice that connections are half-open, as when their heartbeats fail. Connections that the
// client has made since remain.
func (c *Client) Expire() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	expire(slices.DeleteFunc(slices.Clone(c.open), func(v *conn) bool { return !v.gone }))
}

// Forget ends all connections of the client on the broker's side only, as when the heartbeats of a process
// fail that is dead or suspended. If it lives it learns of that by its next request, or by HangUp.
func (c *Client) Forget() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	expire(c.open)
}

// LoseSigns ends the client's signs at the broker without a word to the client, as on connections that are half-open. What it
// returns tells the client.
func (c *Client) LoseSigns() (tell func()) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	var lost []*sign
	for _, v := range c.open {
		lost = append(lost, v.signs...)
		v.dropSigns()
	}
	return func() {
		c.broker.mu.Lock()
		defer c.broker.unlock()
		for _, s := range lost {
			if slices.Contains(s.conn.shown, s) {
				s.conn.shown = without(s.conn.shown, s)
				close(s.gone)
			}
		}
	}
}

// SetCut cuts the client off from the broker, which both notice at once, or ends that: it can
// connect again at once.
func (c *Client) SetCut(cut bool) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.cut = cut
	if cut {
		disconnect(c)
	}
	c.wake()
}

// CutSilently cuts the client off without the broker noticing before Expire. The client may be connected again
// before that.
func (c *Client) CutSilently() {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.cut = true
	c.hangUp()
}

// SetBlocked raises an alarm: the broker takes no messages of the client. An empty reason ends it.
func (c *Client) SetBlocked(reason string) {
	c.broker.mu.Lock()
	defer c.broker.unlock()
	c.blocked = reason
	c.wake()
}

// SetSilent makes a queue take and confirm nothing that is published to it, or ends that. Consumers notice nothing.
func (b *Broker) SetSilent(queue string, silent bool) {
	b.mu.Lock()
	defer b.unlock()
	if b.silent == nil {
		b.silent = make(map[string]bool)
	}
	b.silent[queue] = silent
}

// SetDown takes the server away from everybody, or brings it back with everything that was stored.
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

// Wipe disconnects everybody and forgets everything.
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

// DeleteQueue is what an operator can do. Whoever published to the queue before has its confirm, or will
// get it; later messages are Returned. Its subscriptions are cancelled.
func (b *Broker) DeleteQueue(name string) {
	b.mu.Lock()
	defer b.unlock()
	if q := b.queues[name]; q != nil {
		q.remove(Deleted)
	}
}

// PurgeQueue is what an operator can do: the messages that wait in the queue are gone, and those that consumers have are not.
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

// disconnect ends the connections of all these clients at the same moment: none of them gets
// what another gives back.
func disconnect(clients ...*Client) {
	var open []*conn
	for _, c := range clients {
		c.hangUp()
		open = append(open, c.open...)
	}
	expire(open)
}
