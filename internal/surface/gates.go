package surface

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// ListedGate is a closed gate of a list.
type ListedGate struct {
	store.Gate
	Breaker *ListedBreaker `json:"breaker,omitempty" doc:"The state of a breaker."`
}

// ListedBreaker is the state of a breaker of a list.
type ListedBreaker struct {
	State store.BreakerState `json:"state" enum:"open,half-open,ramping" doc:"open: no task starts until probe_at; half-open: one probe at a time; ramping: several probes at a time."`
	store.Breaker
}

// ListGates reads the closed gates except limits.
func ListGates(ctx context.Context, b *app.Backend) ([]ListedGate, error) {
	gates, err := b.Store.Gates(ctx)
	if err != nil {
		return nil, err
	}
	now, err := b.Store.Now(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]ListedGate, len(gates))
	for i, gate := range gates {
		if list[i].Gate = gate; gate.Breaker != nil {
			list[i].Breaker = &ListedBreaker{gate.Breaker.State(now), *gate.Breaker}
		}
	}
	return list, nil
}

// Paused is the answer to a pause.
type Paused struct {
	store.Gate
	Before   *store.Gate `json:"before,omitempty" doc:"The pause before the change; missing if there was none."`
	Warnings []string    `json:"warnings" doc:"Why the pause may not do what the caller expects."`
}

// PausedOf returns the form of the result of a pause.
func PausedOf(p app.Paused) Paused {
	return Paused{p.After, p.Before, warnings(p.Reach, "pause", p.After.Type)}
}

// Limited is the answer to the setting of a limit.
type Limited struct {
	store.Limit
	Before   *store.Limit `json:"before,omitempty" doc:"The limit before the change; missing if there was none."`
	Warnings []string     `json:"warnings" doc:"Why the limit may not do what the caller expects."`
}

// LimitedOf returns the form of the result of the setting of a limit.
func LimitedOf(l app.Limited) Limited {
	return Limited{l.After, l.Before, warnings(l.Reach, "limit", l.After.Type)}
}

// warnings returns the warnings about a new gate. name says what it is, and taskType is the type that it names.
func warnings(r app.Reach, name, taskType string) []string {
	texts := []string{}
	for _, w := range r.Gateless {
		texts = append(texts, fmt.Sprintf(
			"worker %s (%s, version %s) ignores the %s, because its build has no gates; drain it, or update it", w.ID, w.Name, w.Version, name))
	}
	if r.UnknownType {
		texts = append(texts, fmt.Sprintf(
			"no task of the type %q is stored, and no live worker has a handler for it; the %s is for tasks that come later", taskType, name))
	}
	return texts
}

// TaskGate is the closed gate that keeps a task from starting.
type TaskGate struct {
	ID   store.ID       `json:"id"`
	Kind store.GateKind `json:"kind"`
	store.Scope
}

// String returns the gate for people, such as "paused: queue mail", "limit type http per key" or
// "breaker: target https://example.com:443".
func (g *TaskGate) String() string {
	switch g.Kind {
	case store.GateLimit:
		return g.Scope.String()
	case store.GateBreaker:
		return "breaker: " + g.Subject.String()
	}
	return "paused: " + g.Subject.String()
}

// gatesOf returns a function that returns the gate of a task, and nil if it has none. It reads the gates once.
func gatesOf(ctx context.Context, b *app.Backend, tasks ...holdfast.Task) (func(holdfast.TaskID) *TaskGate, error) {
	var ready []holdfast.TaskID
	for _, task := range tasks {
		if task.State == holdfast.Ready {
			ready = append(ready, task.ID)
		}
	}
	gates, err := b.Store.GatesOf(ctx, ready)
	return func(id holdfast.TaskID) *TaskGate {
		if g, found := gates[id]; found {
			return &TaskGate{g.ID, g.Kind, store.Scope{Subject: g.Subject, Per: g.Per}}
		}
		return nil
	}, err
}
