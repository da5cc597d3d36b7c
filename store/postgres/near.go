package postgres

import "slices"

const (
	// nearEnough is how many ids a walk passes over at most before it begins anew behind them: looking at a row and leaving it costs a
	// fraction of a descent of the index.
	nearEnough = 8
	// leastWalked is how many ids the walks of a set have at least, in the mean: with fewer, looking up each is as quick.
	leastWalked = 4
)

// near is a set of ids most of which stand near others of it, as sql/*_near.sql walk them: stretch by stretch, each along the ids
// from its first to its last, of which the bits say which are meant.
type near struct {
	firsts, lasts []int64
	starts        []int  // where a stretch's bits begin
	bits          []byte // of the ids of all stretches, the lowest bit of a byte first, as get_bit counts them
}

// nearby returns the ids of n tasks as such a set, unless they stand too far apart or one comes twice.
func nearby(n int, id func(i int) int64) (near, bool) {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = id(i)
	}
	slices.Sort(ids)
	var set near
	for i, id := range ids {
		if i > 0 && id == ids[i-1] {
			return near{}, false
		}
		if i == 0 || uint64(id)-uint64(ids[i-1]) > nearEnough+1 {
			set.begin(id)
		}
		set.add(id)
	}
	if walks := len(set.firsts); walks == 0 || walks > 1 && n < leastWalked*walks {
		return near{}, false
	}
	return set, true
}

// begin begins a stretch.
func (n *near) begin(first int64) {
	n.firsts, n.lasts, n.starts = append(n.firsts, first), append(n.lasts, first), append(n.starts, 8*len(n.bits))
}

// add adds an id to the last stretch, to whose end it is near.
func (n *near) add(id int64) {
	last := len(n.firsts) - 1
	n.lasts[last] = id
	at := n.starts[last] + int(id-n.firsts[last])
	for at/8 >= len(n.bits) {
		n.bits = append(n.bits, 0)
	}
	n.bits[at/8] |= 1 << (at % 8)
}

// columns are the stretches as unnest joins them again.
func (n *near) columns() (firsts, lasts, starts []byte) {
	count := len(n.firsts)
	return bigints(count, func(i int) int64 { return n.firsts[i] }), bigints(count, func(i int) int64 { return n.lasts[i] }),
		integers(count, func(i int) int { return n.starts[i] })
}
