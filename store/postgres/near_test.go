package postgres

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// members lists the ids of a set as the statements see them.
func (n near) members() (ids []int64) {
	for id := n.first; id <= n.last; id++ {
		if at := id - n.first; n.bits[at/8]>>(at%8)&1 == 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

func TestNearbyKeepsTheIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 10_000 {
		ids := make([]int64, 1+r.IntN(40))
		first, width := r.Int64N(1_000_000), 1+r.Int64N(int64(6*len(ids)))
		for i := range ids {
			ids[i] = first + r.Int64N(width)
		}
		sorted := slices.Sorted(slices.Values(ids))
		twice := len(slices.Compact(slices.Clone(sorted))) < len(ids)
		apart := sorted[len(ids)-1]-sorted[0] >= nearEnough*int64(len(ids))
		set, ok := nearby(len(ids), func(i int) int64 { return ids[i] })
		if ok != (!twice && !apart) {
			t.Fatalf("%v: accepted %t, one comes twice %t, too far apart %t", ids, ok, twice, apart)
		}
		if !ok {
			continue
		}
		accepted++
		if !slices.Equal(set.members(), sorted) {
			t.Fatalf("%v became %v", ids, set.members())
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d sets were accepted", accepted)
	}
}

func TestNearbyAtTheEdges(t *testing.T) {
	for name, ids := range map[string][]int64{"none": {}, "both ends": {math.MinInt64, math.MaxInt64}, "and all between": {math.MaxInt64, 0, math.MinInt64}} {
		if _, ok := nearby(len(ids), func(i int) int64 { return ids[i] }); ok {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, id := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		if set, ok := nearby(1, func(int) int64 { return id }); !ok || set.first != id || set.last != id || !slices.Equal(set.bits, []byte{1}) {
			t.Errorf("%d alone became %+v, %t", id, set, ok)
		}
	}
}
