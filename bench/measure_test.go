package main

import "testing"

// The memory of every system is measured once, with no more tasks at once than the others have.
func TestMemoryIsMeasuredWithEquallyManyTasksAtOnce(t *testing.T) {
	t.Parallel()
	drained, apart := stepOf("drain"), stepOf("memory")
	for _, s := range systems {
		in := drained
		if s.crowded() {
			in = apart
		}
		if n := s.executorsIn(in); n > concurrency {
			t.Errorf("%s runs %d tasks at once while its memory is measured", s.name, n)
		}
		if s.crowded() == apart.unfit(s) {
			t.Errorf("the memory of %s is measured never or twice", s.name)
		}
	}
	if n := riverSystem.executorsIn(drained); !riverSystem.crowded() || n != riverSystem.executors {
		t.Errorf("River runs %d tasks at once in a drain", n)
	}
}
