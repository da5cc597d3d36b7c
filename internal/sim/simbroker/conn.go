package simbroker

import (
	"context"
	"errors"
	"slices"
)

var errLost = errors.New("lost the connection to the simulated broker")

// role is what a connection is for. Each client has one for each, as with RabbitMQ: the loss
// of one does not touch the others.
type role uint8

const (
	consuming role = iota
	publishing
	administering
	roles
)

// conn is one connection. It is never revived.
type conn struct {
	client *Client

	gone  bool // the client has noticed its end
	calls []*waiting
	subs  []*subscription // in the order in which they began
	shown []*sign

	dead     bool       // the broker has noticed its end
	channels []*channel // in the order in which they were opened
	signs    []*sign
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

// hangUp is the end on the client's side.
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
	for _, s := range v.shown {
		close(s.gone)
	}
	v.shown = nil
	for r := range v.client.conns {
		if v.client.conns[r] == v {
			v.client.conns[r] = nil
		}
	}
}

// expire is the end of connections on the broker's side. What they held goes back when none of
// them can get it any more.
func expire(conns []*conn) {
	var channels []*channel
	for _, v := range slices.Clone(conns) {
		v.dead = true
		v.client.open = without(v.client.open, v)
		channels = append(channels, v.channels...)
		v.dropSigns()
	}
	closeChannels(channels)
}

func without[E comparable](list []E, x E) []E {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}
