package scan

import (
	"github.com/holdfastq/holdfast"
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
}

// TaskGate is a gate that concerns a task.
type TaskGate struct {
	Task holdfast.TaskID
	Gate
}

// Value returns the gate.
func (r *Gate) Value() store.Gate {
	kind, per := fromKind(r.Kind)
	return store.Gate{
		ID: store.ID(r.ID), Kind: kind, Subject: store.Subject{Queue: r.Queue, Type: r.Type, Key: r.Key, Target: r.Target}, Per: per,
		Actor:    store.Actor{Name: r.Actor, Surface: r.Surface, Reason: r.Reason},
		ClosedAt: r.ClosedAt.Time, Until: r.Until.Time, Blocked: r.Blocked,
	}
}

// Gates returns the gates of all rows.
func Gates(rows []Gate) []store.Gate {
	gates := make([]store.Gate, len(rows))
	for i := range rows {
		gates[i] = rows[i].Value()
	}
	return gates
}
