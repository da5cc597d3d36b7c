package producer

import (
	"testing"

	"pgregory.net/rapid"
)

// A transaction holds at least one item, at most batchSize, and of large ones no more than make
// about batchBytes.
func TestFitting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 2*batchBytes), 1, 2*batchSize).Draw(t, "sizes")
		if rapid.Bool().Draw(t, "small") {
			for i := range sizes {
				sizes[i] %= 100
			}
		}
		n := fitting(sizes, func(size int) int { return size })
		total := 0
		for _, size := range sizes[:n] {
			total += size
		}
		switch {
		case n < 1 || n > batchSize || n > len(sizes):
			t.Fatalf("%d of %d items", n, len(sizes))
		case n > 1 && total > batchBytes:
			t.Fatalf("%d items make %d bytes", n, total)
		case n < min(batchSize, len(sizes)) && total+sizes[n] <= batchBytes:
			t.Fatalf("item %d would have fitted", n)
		}
	})
}
