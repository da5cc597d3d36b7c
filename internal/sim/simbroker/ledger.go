package simbroker

// ledger knows which deliveries a client has not settled yet, and their numbers on the wire,
// which have gaps where a Pause gave back what nobody had received.
type ledger struct {
	base uint64     // tag of open[0]
	open []received // by tag; open[0] is not settled
}

type received struct {
	wire    uint64 // 0 once settled
	message *Message
}

// last is the newest tag.
func (l *ledger) last() uint64 { return l.base + uint64(len(l.open)) - 1 }

// add gives the next delivery its tag.
func (l *ledger) add(wire uint64, m *Message) (tag uint64) {
	l.open = append(l.open, received{wire, m})
	return l.last()
}

// withdraw takes back deliveries, by their tags in order, that nobody has received. Their tags are
// used again, as far as nobody has received a later one.
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

// settle marks a delivery, with upTo all earlier ones too, as settled. What it returns must be settled at the
// broker; its wire is 0 if that has been done before.
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
