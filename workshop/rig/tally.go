package rig

import (
	"sync"

	"github.com/holdfastq/holdfast"
)

// Tally counts observations. The zero value is ready to use. It is safe for concurrent use.
type Tally struct {
	mu     sync.Mutex
	counts map[holdfast.ObservationKind]int
}

// Observe implements holdfast.Observer.
func (t *Tally) Observe(seen holdfast.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[holdfast.ObservationKind]int)
	}
	t.counts[seen.Kind] += seen.Count
}

// Of returns the sum of the observations of a kind.
func (t *Tally) Of(kind holdfast.ObservationKind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts[kind]
}
