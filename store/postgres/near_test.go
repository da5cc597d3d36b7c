package postgres

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// members lists the ids of a set as the statements see them.
func (n near) members() (ids []int64) {
	for i, first := range n.firsts {
		for offset := range int(n.lasts[i]-first) + 1 {
			if at := offset + n.starts[i]; n.bits[at/8]>>(at%8)&1 == 1 {
				ids = append(ids, first+int64(offset))
			}
		}
	}
	return ids
}

func TestNearbyKeepsTheIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alone, together := 0, 0
	for range 10_000 {
		ids := drawn(r)
		sorted := slices.Sorted(slices.Values(ids))
		ranges := 1
		for i := 1; i < len(sorted); i++ {
			if sorted[i]-sorted[i-1] > nearEnough+1 {
				ranges++
			}
		}
		set := nearby(len(ids), func(i int) int64 { return ids[i] })
		if len(set.firsts) != ranges || !slices.Equal(set.members(), sorted) {
			t.Fatalf("%v became %v in %d ranges, want %d", sorted, set.members(), len(set.firsts), ranges)
		}
		for i, first := range set.firsts {
			if set.lasts[i] == first {
				alone++
			} else {
				together++
			}
		}
	}
	if alone < 500 || together < 1000 {
		t.Errorf("only %d ranges of one id were drawn, and %d of several", alone, together)
	}
}

// drawn draws different ids, from places far from each other or near, in any order.
func drawn(r *rand.Rand) (ids []int64) {
	first := r.Int64N(1_000_000)
	for range 1 + r.IntN(4) {
		for range 1 + r.IntN(20) {
			ids = append(ids, first)
			first += 1 + r.Int64N(3)
		}
		first += r.Int64N(4 * nearEnough)
	}
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

func TestNearbyAtTheEdges(t *testing.T) {
	for _, ids := range [][]int64{{}, {math.MinInt64, math.MaxInt64}, {math.MinInt64, 0, math.MaxInt64}} {
		if set := nearby(len(ids), func(i int) int64 { return ids[i] }); !slices.Equal(set.members(), ids) || len(set.firsts) != len(ids) {
			t.Errorf("%v became %+v", ids, set)
		}
	}
	for _, id := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		if set := nearby(1, func(int) int64 { return id }); !slices.Equal(set.firsts, []int64{id}) || !slices.Equal(set.lasts, []int64{id}) || !slices.Equal(set.bits, []byte{1}) {
			t.Errorf("%d alone became %+v", id, set)
		}
	}
}
