package main

import "testing"

// The memory of each system is measured by one step, with at most concurrency tasks at once.
func TestMemoryIsMeasuredWithTheSameConcurrency(t *testing.T) {
	t.Parallel()
	drainStep, memoryStep := stepOf("drain"), stepOf("memory")
	for _, s := range systems {
		st := drainStep
		if s.manyExecutors() {
			st = memoryStep
		}
		if n := s.executorsFor(st); n > concurrency {
			t.Errorf("%s runs %d tasks at once while its memory is measured", s.name, n)
		}
		if s.manyExecutors() == memoryStep.skip(s) {
			t.Errorf("the memory of %s is not measured exactly once", s.name)
		}
	}
	if n := riverSystem.executorsFor(drainStep); !riverSystem.manyExecutors() || n != riverSystem.executors {
		t.Errorf("River runs %d tasks at once in a drain", n)
	}
}
