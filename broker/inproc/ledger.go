package inproc

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfastq/holdfast"
)

// ledger has the unsettled deliveries of one subscription. Its size depends on their number, not on the distance
// between the oldest and the newest tag. A delivery may be unsettled for hours while thousands of others are settled.
type ledger struct {
	entries []entry // by tag, including settled ones
	first   int     // index of the first entry that may be unsettled
	open    int     // number of unsettled entries
	last    uint64  // newest tag
}

type entry struct {
	message
	tag   uint64
	round uint32 // round of the subscription at the time of delivery; 0 once settled
}

// add records a new delivery and returns its tag.
func (l *ledger) add(x message, round uint32) (tag uint64) {
	if len(l.entries) == cap(l.entries) && l.open <= len(l.entries)/2 {
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.round == 0 })
		l.first = 0
	}
	l.last++
	l.entries = append(l.entries, entry{x, l.last, round})
	l.open++
	return l.last
}

// check returns holdfast.ErrInvalid if no delivery has had the tag.
func (l *ledger) check(tag uint64) error {
	if tag == 0 || tag > l.last {
		return fmt.Errorf("%w: delivery %d was never received", holdfast.ErrInvalid, tag)
	}
	return nil
}

// withdraw removes the newest delivery, which no reader has received, and frees its tag for the next one. It returns
// false if that delivery was settled before.
func (l *ledger) withdraw() (x message, ok bool) {
	n := len(l.entries) - 1
	if n < l.first || l.entries[n].tag != l.last || l.entries[n].round == 0 {
		return x, false
	}
	x = l.entries[n].message
	l.entries[n] = entry{}
	l.entries = l.entries[:n]
	l.open--
	l.last--
	return x, true
}

// settle removes one delivery. It returns false if the delivery was settled before.
func (l *ledger) settle(tag uint64) (e entry, ok bool) {
	open := l.entries[l.first:]
	i, found := slices.BinarySearchFunc(open, tag, func(e entry, tag uint64) int { return cmp.Compare(e.tag, tag) })
	if !found {
		return e, false
	}
	e = l.remove(l.first + i)
	return e, e.round != 0
}

// settleUpTo removes all deliveries up to a tag. It yields those that were unsettled, in the order of their tags. The
// caller must consume the whole sequence.
func (l *ledger) settleUpTo(tag uint64) iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for l.first < len(l.entries) && l.entries[l.first].tag <= tag {
			l.first++
			if e := l.remove(l.first - 1); e.round != 0 && !yield(e) {
				return
			}
		}
	}
}

// remove marks an entry as settled, drops its reference to the message and returns the old entry.
func (l *ledger) remove(i int) entry {
	e := l.entries[i]
	if e.round == 0 {
		return e
	}
	l.entries[i] = entry{tag: e.tag}
	if l.open--; l.open == 0 {
		l.entries, l.first = l.entries[:0], 0
	}
	return e
}
