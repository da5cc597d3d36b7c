package inproc

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/holdfastq/holdfast"
)

// ledger holds the deliveries of one subscription that are not settled. Its size follows
// their number, not the distance between the oldest and the newest: a delivery may be
// held for hours while thousands pass by.
type ledger struct {
	entries []entry // by tag, with settled ones in between
	first   int     // entries before it are settled
	open    int     // entries that are not
	last    uint64  // newest tag
}

type entry struct {
	letter
	tag   uint64
	round uint32 // of its subscription when it was delivered; 0 once settled
}

// add gives the next delivery its tag.
func (l *ledger) add(x letter, round uint32) (tag uint64) {
	if len(l.entries) == cap(l.entries) && l.open <= len(l.entries)/2 {
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.round == 0 })
		l.first = 0
	}
	l.last++
	l.entries = append(l.entries, entry{x, l.last, round})
	l.open++
	return l.last
}

// check says whether the tag was ever given.
func (l *ledger) check(tag uint64) error {
	if tag == 0 || tag > l.last {
		return fmt.Errorf("%w: delivery %d was never received", holdfast.ErrInvalid, tag)
	}
	return nil
}

// withdraw takes the newest delivery back: nobody has seen its tag, which is used again. Not ok
// if it was settled all the same.
func (l *ledger) withdraw() (x letter, ok bool) {
	n := len(l.entries) - 1
	if n < l.first || l.entries[n].tag != l.last || l.entries[n].round == 0 {
		return x, false
	}
	x = l.entries[n].letter
	l.entries[n] = entry{}
	l.entries = l.entries[:n]
	l.open--
	l.last--
	return x, true
}

// settle removes one delivery. Not ok if it was settled before.
func (l *ledger) settle(tag uint64) (e entry, ok bool) {
	open := l.entries[l.first:]
	i, found := slices.BinarySearchFunc(open, tag, func(e entry, tag uint64) int { return cmp.Compare(e.tag, tag) })
	if !found {
		return e, false
	}
	e = l.remove(l.first + i)
	return e, e.round != 0
}

// settleUpTo removes all deliveries up to a tag and yields those that were not settled
// before, in order. It must be read to its end.
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

// remove marks an entry as settled, lets go of its letter and returns what it was.
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
