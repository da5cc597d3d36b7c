package rabbitmq

import (
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// ledger knows which deliveries of a subscription are not settled yet, and their
// numbers on the wire. RabbitMQ answers the settlement of an unknown delivery by closing the
// channel, which gives back everything else; and the numbers of the wire have gaps
// where a Pause gave back what nobody had received.
type ledger struct {
	base uint64   // tag of open[0]
	open []uint64 // wire tags by tag, 0 once settled; open[0] is not settled
}

// add gives the next delivery its tag.
func (l *ledger) add(wire uint64) (tag uint64) {
	if l.base == 0 {
		l.base = 1
	}
	l.open = append(l.open, wire)
	return l.base + uint64(len(l.open)) - 1
}

// withdraw takes back the newest add: nobody has seen the tag.
func (l *ledger) withdraw() (wire uint64) {
	last := len(l.open) - 1
	wire, l.open = l.open[last], l.open[:last]
	return wire
}

// settle marks a delivery, with UpTo all earlier ones too, as settled and returns the wire
// tag to settle, 0 if that has been done before.
func (l *ledger) settle(tag uint64, mode broker.AckMode) (wire uint64, err error) {
	if tag == 0 || tag >= max(l.base, 1)+uint64(len(l.open)) {
		return 0, fmt.Errorf("%w: delivery %d was never received", holdfast.ErrInvalid, tag)
	}
	if tag < l.base {
		return 0, nil
	}
	i := int(tag - l.base)
	if mode == broker.UpTo {
		for i > 0 && l.open[i] == 0 {
			i--
		}
		wire = l.open[i]
		clear(l.open[:i+1])
	} else {
		wire, l.open[i] = l.open[i], 0
	}
	n := 0
	for n < len(l.open) && l.open[n] == 0 {
		n++
	}
	l.base, l.open = l.base+uint64(n), l.open[n:]
	return wire, nil
}
