package postgres

import "slices"

// nearEnough is how many ids a range scan skips at most; behind a larger gap a new range begins. To read a row and skip
// it costs a fraction of a descent of the index.
const nearEnough = 8

// near is a set of ids as sql/*_near.sql scan them, range by range. Each range has a first id, a last id, and a bit for
// each id between that says whether it is in the set. An id that is far from all others is a range of its own.
type near struct {
	firsts, lasts []int64
	starts        []int  // where a range's bits begin
	bits          []byte // of the ids of all ranges, the lowest bit of a byte first, as get_bit counts them
}

// nearby returns the ids of n different tasks as such a set.
func nearby(n int, id func(i int) int64) near {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = id(i)
	}
	slices.Sort(ids)
	var set near
	for i, id := range ids {
		if i == 0 || uint64(id)-uint64(ids[i-1]) > nearEnough+1 {
			set.begin(id)
		}
		set.add(id)
	}
	return set
}

// begin begins a range.
func (n *near) begin(first int64) {
	n.firsts, n.lasts, n.starts = append(n.firsts, first), append(n.lasts, first), append(n.starts, 8*len(n.bits))
}

// add adds an id that is near to the end of the last range to that range.
func (n *near) add(id int64) {
	last := len(n.firsts) - 1
	n.lasts[last] = id
	at := n.starts[last] + int(id-n.firsts[last])
	for at/8 >= len(n.bits) {
		n.bits = append(n.bits, 0)
	}
	n.bits[at/8] |= 1 << (at % 8)
}

// columns are the ranges as unnest joins them again.
func (n *near) columns() (firsts, lasts, starts []byte) {
	count := len(n.firsts)
	return bigints(count, func(i int) int64 { return n.firsts[i] }), bigints(count, func(i int) int64 { return n.lasts[i] }),
		integers(count, func(i int) int { return n.starts[i] })
}
