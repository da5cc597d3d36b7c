package rabbitmq

import (
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// ledger tracks the unsettled deliveries of a subscription and their AMQP delivery tags. If a client settles an unknown
// delivery, RabbitMQ closes the channel and requeues all unsettled messages. AMQP tags have gaps, because Pause
// requeues deliveries that no reader has received.
type ledger struct {
	base uint64   // tag of open[0]
	open []uint64 // AMQP tags by tag, 0 once settled; open[0] is unsettled
}

// add records a delivery and returns its tag.
func (l *ledger) add(amqpTag uint64) (tag uint64) {
	if l.base == 0 {
		l.base = 1
	}
	l.open = append(l.open, amqpTag)
	return l.base + uint64(len(l.open)) - 1
}

// withdraw removes the newest delivery, which no reader has received, and returns its AMQP tag.
func (l *ledger) withdraw() (amqpTag uint64) {
	last := len(l.open) - 1
	amqpTag, l.open = l.open[last], l.open[:last]
	return amqpTag
}

// settle marks a delivery as settled, and with UpTo all earlier ones. It returns the AMQP tag to settle, or 0 if
// everything was settled before. It returns holdfast.ErrInvalid for a tag that was never used.
func (l *ledger) settle(tag uint64, mode broker.AckMode) (amqpTag uint64, err error) {
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
		amqpTag = l.open[i]
		clear(l.open[:i+1])
	} else {
		amqpTag, l.open[i] = l.open[i], 0
	}
	n := 0
	for n < len(l.open) && l.open[n] == 0 {
		n++
	}
	l.base, l.open = l.base+uint64(n), l.open[n:]
	return amqpTag, nil
}
