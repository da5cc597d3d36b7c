package postgres

// nearEnough is how many ids a walk passes at most for each that is meant: looking at a row and leaving it costs a fraction of the
// descent of the index that it takes to look one up.
const nearEnough = 4

// near is a set of ids that stand near each other, as sql/*_near.sql walk them.
type near struct {
	first, last int64
	bits        []byte // of the ids from the first on, the lowest bit of a byte first, as get_bit counts them
}

// nearby returns the ids of n tasks as such a set, unless they stand too far apart or one comes twice.
func nearby(n int, id func(i int) int64) (near, bool) {
	if n == 0 {
		return near{}, false
	}
	set := near{first: id(0), last: id(0)}
	for i := range n {
		set.first, set.last = min(set.first, id(i)), max(set.last, id(i))
	}
	if uint64(set.last)-uint64(set.first) >= nearEnough*uint64(n) {
		return near{}, false
	}
	set.bits = make([]byte, (set.last-set.first)/8+1)
	for i := range n {
		at := id(i) - set.first
		if set.bits[at/8]&(1<<(at%8)) != 0 {
			return near{}, false
		}
		set.bits[at/8] |= 1 << (at % 8)
	}
	return set, true
}
