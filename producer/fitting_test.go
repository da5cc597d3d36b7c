package producer

import (
	"testing"

	"pgregory.net/rapid"
)

// A transaction has at least one item and at most maxInsertTasks. If it has several, they have at most maxInsertBytes.
func TestFitting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 2*maxInsertBytes), 1, 2*maxInsertTasks).Draw(t, "sizes")
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
		case n < 1 || n > maxInsertTasks || n > len(sizes):
			t.Fatalf("%d of %d items", n, len(sizes))
		case n > 1 && total > maxInsertBytes:
			t.Fatalf("%d items make %d bytes", n, total)
		case n < min(maxInsertTasks, len(sizes)) && total+sizes[n] <= maxInsertBytes:
			t.Fatalf("item %d also fits", n)
		}
	})
}
