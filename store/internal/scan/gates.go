package scan

import (
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/store"
)

// Gate is a gate, as {{gate}} in sql/parts.sql of each adapter selects it.
type Gate struct {
	store.Gate

	// Of a breaker only.
	ProbeAt   time.Time
	ProbeWait time.Duration
	Probes    int
}

// TaskGate is a gate that applies to a task.
type TaskGate struct {
	Task holdfast.TaskID
	Gate
}

// Value returns the gate.
func (r Gate) Value() store.Gate {
	gate := r.Gate
	gate.Kind, gate.Per = fromKind(r.Kind)
	if gate.Kind == store.GateBreaker {
		gate.Breaker = &store.Breaker{ProbeAt: r.ProbeAt, Wait: r.ProbeWait, Probes: r.Probes}
	}
	return gate
}

// Breaker is a breaker and its state.
type Breaker struct {
	ID     int64
	Target string
	Reason string
	breaker.State
	ProbeWait time.Duration
	Blocked   bool // whether it blocks a task
}

// Value returns the state.
func (r *Breaker) Value() *breaker.State {
	state := r.State
	state.Wait = r.ProbeWait
	return &state
}
