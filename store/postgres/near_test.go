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
		for id := first; id <= n.lasts[i]; id++ {
			if at := int(id-first) + n.starts[i]; n.bits[at/8]>>(at%8)&1 == 1 {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func TestNearbyKeepsTheIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	accepted, inStretches := 0, 0
	for range 10_000 {
		ids := drawn(r)
		sorted := slices.Sorted(slices.Values(ids))
		twice, stretches := false, 1
		for i := 1; i < len(sorted); i++ {
			twice = twice || sorted[i] == sorted[i-1]
			if sorted[i]-sorted[i-1] > nearEnough+1 {
				stretches++
			}
		}
		set, ok := nearby(len(ids), func(i int) int64 { return ids[i] })
		if want := !twice && (stretches == 1 || len(ids) >= leastWalked*stretches); ok != want {
			t.Fatalf("%v: accepted %t, one comes twice %t, %d stretches", sorted, ok, twice, stretches)
		}
		if !ok {
			continue
		}
		accepted++
		if stretches > 1 {
			inStretches++
		}
		if len(set.firsts) != stretches || !slices.Equal(set.members(), sorted) {
			t.Fatalf("%v became %v in %d stretches, want %d", sorted, set.members(), len(set.firsts), stretches)
		}
	}
	if accepted < 1000 || inStretches < 500 {
		t.Errorf("only %d sets were accepted, and %d in stretches", accepted, inStretches)
	}
}

// drawn draws ids from places far from each other or near, in any order, rarely one of them twice.
func drawn(r *rand.Rand) (ids []int64) {
	first := r.Int64N(1_000_000)
	for range 1 + r.IntN(4) {
		for range 1 + r.IntN(20) {
			ids = append(ids, first)
			first += 1 + r.Int64N(3)
		}
		first += r.Int64N(4 * nearEnough)
	}
	if r.IntN(10) == 0 {
		ids = append(ids, ids[r.IntN(len(ids))])
	}
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

func TestNearbyAtTheEdges(t *testing.T) {
	for name, ids := range map[string][]int64{"none": {}, "both ends": {math.MinInt64, math.MaxInt64}, "and all between": {math.MaxInt64, 0, math.MinInt64}} {
		if _, ok := nearby(len(ids), func(i int) int64 { return ids[i] }); ok {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, id := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		if set, ok := nearby(1, func(int) int64 { return id }); !ok || !slices.Equal(set.firsts, []int64{id}) || !slices.Equal(set.lasts, []int64{id}) || !slices.Equal(set.bits, []byte{1}) {
			t.Errorf("%d alone became %+v, %t", id, set, ok)
		}
	}
}
