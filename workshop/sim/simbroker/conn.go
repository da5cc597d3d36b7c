package simbroker

import (
	"context"
	"errors"
	"slices"
)

var errLost = errors.New("lost the connection to the simulated broker")

// role is the purpose of a connection. Like the adapter for RabbitMQ, each client has one connection for each role, so
// that the loss of one does not affect the others.
type role uint8

const (
	consuming role = iota
	publishing
	administering
	roles
)

// conn is one connection. A connection that has ended is never used again.
type conn struct {
	client *Client

	gone     bool // the client has noticed the end of the connection
	calls    []*waiting
	subs     []*subscription // in the order of their creation
	acquired []*presenceQueue

	dead           bool       // the broker has noticed the end of the connection
	channels       []*channel // in the order of their creation
	presenceQueues []*presenceQueue
}

// waiting is a call that waits for its answer.
type waiting struct {
	cancel context.CancelFunc
	index  int
}

func (v *conn) wait(cancel context.CancelFunc) *waiting {
	w := &waiting{cancel, len(v.calls)}
	v.calls = append(v.calls, w)
	return w
}

func (v *conn) arrived(w *waiting) {
	last := len(v.calls) - 1
	if w.index > last || v.calls[w.index] != w { // the connection ended meanwhile
		return
	}
	v.calls[w.index] = v.calls[last]
	v.calls[w.index].index = w.index
	v.calls = v.calls[:last]
}

// hangUp ends the connection on the client's side.
func (v *conn) hangUp() {
	if v.gone {
		return
	}
	v.gone = true
	calls := v.calls
	v.calls = nil
	for _, w := range calls {
		w.cancel()
	}
	for _, s := range slices.Clone(v.subs) {
		s.end()
	}
	for _, s := range v.acquired {
		close(s.gone)
	}
	v.acquired = nil
	for r := range v.client.conns {
		if v.client.conns[r] == v {
			v.client.conns[r] = nil
		}
	}
}

// expire ends connections on the broker's side. It requeues their unsettled messages only when none of these
// connections can receive them.
func expire(conns []*conn) {
	var channels []*channel
	for _, v := range slices.Clone(conns) {
		v.dead = true
		v.client.open = without(v.client.open, v)
		channels = append(channels, v.channels...)
		v.dropAllPresence()
	}
	closeChannels(channels)
}

func without[E comparable](list []E, x E) []E {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
