package simbroker

// ledger records the unsettled deliveries of a client and their delivery numbers at the broker. These numbers have gaps
// where a Pause returned deliveries that the client had not received.
type ledger struct {
	base uint64     // tag of open[0]
	open []received // sorted by tag; the first one is not settled, and later ones may be
}

type received struct {
	wire    uint64 // delivery number at the broker; 0 if settled
	message *Message
}

// last returns the newest tag.
func (l *ledger) last() uint64 { return l.base + uint64(len(l.open)) - 1 }

// add adds a delivery and returns its tag.
func (l *ledger) add(wire uint64, m *Message) (tag uint64) {
	l.open = append(l.open, received{wire, m})
	return l.last()
}

// withdraw removes deliveries that the client has not received. tags are in ascending order. The tags at the end of the
// ledger are used again.
func (l *ledger) withdraw(tags []uint64) (wires []uint64) {
	for _, tag := range tags {
		if tag >= l.base {
			if r := l.open[tag-l.base]; r.wire != 0 {
				wires = append(wires, r.wire)
			}
			l.open[tag-l.base] = received{}
		}
	}
	for n := len(tags); n > 0 && len(l.open) > 0 && tags[n-1] == l.last(); n-- {
		l.open = l.open[:len(l.open)-1]
	}
	l.trim()
	return wires
}

// settle marks a delivery as settled, with upTo also all earlier ones. It returns the delivery to settle at the broker;
// its wire is 0 if that was done before.
func (l *ledger) settle(tag uint64, upTo bool) (r received) {
	if tag < l.base {
		return r
	}
	i := int(tag - l.base)
	if upTo {
		newest := i
		for newest > 0 && l.open[newest].wire == 0 {
			newest--
		}
		r = l.open[newest]
		clear(l.open[:i+1])
	} else {
		r, l.open[i] = l.open[i], received{}
	}
	l.trim()
	return r
}

func (l *ledger) trim() {
	n := 0
	for n < len(l.open) && l.open[n].wire == 0 {
		n++
	}
	l.base, l.open = l.base+uint64(n), l.open[n:]
}
