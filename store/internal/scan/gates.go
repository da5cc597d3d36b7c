package scan

import (
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/breaker"
	"github.com/holdfastq/holdfast/store"
)

// Gate is a gate, as {{gate}} in sql/parts.sql of each adapter selects it.
type Gate struct {
	ID       int64
	Kind     store.GateKind
	Queue    string
	Type     string
	Key      string
	Target   string
	Actor    string
	Surface  store.Surface
	Reason   string
	ClosedAt Time `db:"closed_at"`
	Until    Time
	Blocked  int

	// The other fields belong to breakers.
	ProbeAt   Time  `db:"probe_at"`
	ProbeWait int64 `db:"probe_wait"` // microseconds
	Probes    int
}

// TaskGate is a gate that applies to a task.
type TaskGate struct {
	Task holdfast.TaskID
	Gate
}

// Value returns the gate.
func (r *Gate) Value() store.Gate {
	kind, per := fromKind(r.Kind)
	gate := store.Gate{
		ID: store.ID(r.ID), Kind: kind, Subject: store.Subject{Queue: r.Queue, Type: r.Type, Key: r.Key, Target: r.Target}, Per: per,
		Actor:    store.Actor{Name: r.Actor, Surface: r.Surface, Reason: r.Reason},
		ClosedAt: r.ClosedAt.Time, Until: r.Until.Time, Blocked: r.Blocked,
	}
	if kind == store.GateBreaker {
		gate.Breaker = &store.Breaker{ProbeAt: r.ProbeAt.Time, Wait: time.Duration(r.ProbeWait) * time.Microsecond, Probes: r.Probes}
	}
	return gate
}

// Gates returns the gates of all rows.
func Gates(rows []Gate) []store.Gate {
	gates := make([]store.Gate, len(rows))
	for i := range rows {
		gates[i] = rows[i].Value()
	}
	return gates
}

// Breaker is a breaker and its state.
type Breaker struct {
	ID        int64
	Target    string
	ProbeAt   Time  `db:"probe_at"`
	ProbeWait int64 `db:"probe_wait"` // microseconds
	Probes    int
	Passed    int
	Failed    int
	Blocked   bool // whether the breaker blocks a task
}

// State returns the state.
func (r *Breaker) State() *breaker.State {
	return &breaker.State{
		ProbeAt: r.ProbeAt.Time, Wait: time.Duration(r.ProbeWait) * time.Microsecond, Probes: r.Probes, Passed: r.Passed, Failed: r.Failed,
	}
}
