package postgres

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// members returns the ids of a set, decoded as the statements do it.
func (r idRanges) members() (ids []int64) {
	for i, first := range r.firsts {
		for offset := range int(r.lasts[i]-first) + 1 {
			if at := offset + r.starts[i]; r.bits[at/8]>>(at%8)&1 == 1 {
				ids = append(ids, first+int64(offset))
			}
		}
	}
	return ids
}

func TestNearbyKeepsTheIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	single, several := 0, 0
	for range 10_000 {
		ids := randomIDs(r)
		sorted := slices.Sorted(slices.Values(ids))
		ranges := 1
		for i := 1; i < len(sorted); i++ {
			if sorted[i]-sorted[i-1] > maxGap+1 {
				ranges++
			}
		}
		set := idRangesOf(len(ids), func(i int) int64 { return ids[i] })
		if len(set.firsts) != ranges || !slices.Equal(set.members(), sorted) {
			t.Fatalf("the set of %v is %v in %d ranges, want %d", sorted, set.members(), len(set.firsts), ranges)
		}
		for i, first := range set.firsts {
			if set.lasts[i] == first {
				single++
			} else {
				several++
			}
		}
	}
	if single < 500 || several < 1000 {
		t.Errorf("only %d ranges of one id were generated, and %d of several", single, several)
	}
}

// randomIDs returns different ids in any order, some close to each other and some far apart.
func randomIDs(r *rand.Rand) (ids []int64) {
	first := r.Int64N(1_000_000)
	for range 1 + r.IntN(4) {
		for range 1 + r.IntN(20) {
			ids = append(ids, first)
			first += 1 + r.Int64N(3)
		}
		first += r.Int64N(4 * maxGap)
	}
	r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

func TestNearbyAtTheEdges(t *testing.T) {
	for _, ids := range [][]int64{{}, {math.MinInt64, math.MaxInt64}, {math.MinInt64, 0, math.MaxInt64}} {
		if set := idRangesOf(len(ids), func(i int) int64 { return ids[i] }); !slices.Equal(set.members(), ids) || len(set.firsts) != len(ids) {
			t.Errorf("the set of %v is %+v", ids, set)
		}
	}
	for _, id := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
		if set := idRangesOf(1, func(int) int64 { return id }); !slices.Equal(set.firsts, []int64{id}) || !slices.Equal(set.lasts, []int64{id}) || !slices.Equal(set.bits, []byte{1}) {
			t.Errorf("the set of %d is %+v", id, set)
		}
	}
}
