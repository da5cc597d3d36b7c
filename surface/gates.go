package surface

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// ListedGate is a closed gate in a list.
type ListedGate struct {
	store.Gate
	Breaker *ListedBreaker `json:"breaker,omitempty" doc:"The state of a breaker."`
}

// ListedBreaker is a breaker with its state.
type ListedBreaker struct {
	State store.BreakerState `json:"state" enum:"open,half-open,ramping" doc:"open: no task starts until probe_at; half-open: up to three probes at a time; ramping: more probes at a time."`
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

// GateOrLimit is a closed gate, or a limit.
type GateOrLimit struct {
	ListedGate
	// Only a limit has the next fields.
	Rate        store.Rate `json:"rate,omitzero"`
	Concurrency int        `json:"concurrency,omitempty"`
	InUse       *int       `json:"in_use,omitempty"` // number of permits: attempts that run or may start
}

// GatesAndLimits returns the closed gates, and then the limits, each in the order in which they were first set.
func GatesAndLimits(ctx context.Context, b *app.Backend) ([]GateOrLimit, error) {
	gates, err := ListGates(ctx, b)
	if err != nil {
		return nil, err
	}
	limits, err := b.Store.Limits(ctx)
	if err != nil {
		return nil, err
	}
	rows := []GateOrLimit{}
	for _, g := range gates {
		rows = append(rows, GateOrLimit{ListedGate: g})
	}
	for _, l := range limits {
		row := OfLimit(l.Limit)
		row.Blocked, row.InUse = l.Blocked, &l.InUse
		rows = append(rows, row)
	}
	return rows, nil
}

// OfLimit returns a limit without its use.
func OfLimit(l store.Limit) GateOrLimit {
	gate := store.Gate{ID: l.ID, Kind: store.GateLimit, Subject: l.Subject, Per: l.Per, Actor: l.Actor, ClosedAt: l.SetAt}
	return GateOrLimit{ListedGate{Gate: gate}, l.Rate, l.Concurrency, nil}
}

// GateSubject is the part of a request that selects the tasks of a gate.
type GateSubject struct {
	Queue  string `json:"queue,omitempty" doc:"Pause this queue."`
	Type   string `json:"type,omitempty" doc:"Pause the tasks of this type."`
	Key    string `json:"key,omitempty" doc:"Pause the tasks of this key."`
	Target string `json:"target,omitempty" doc:"Pause the tasks of type http that call this target: a URL, of which the scheme, the host and the port count."`
}

// Subject returns the subject that the request names. The store validates it.
func (r GateSubject) Subject() (s store.Subject, err error) {
	s = store.Subject{Queue: r.Queue, Type: r.Type, Key: r.Key}
	if r.Target != "" {
		s.Target, err = parseTarget(r.Target)
	}
	return s, err
}

// NewGate is a request to close a gate, or to change it.
type NewGate struct {
	Kind string `json:"kind" enum:"pause"`
	GateSubject
	For    Optional[string] `json:"for,omitzero" flag:"TIME" doc:"End the pause after this duration, such as 30m or 2h; null removes the end; if it is missing, the end of a pause stays, and a new pause has no end."`
	Reason Optional[string] `json:"reason,omitzero" flag:"TEXT" doc:"Why, also for the audit log; null removes the reason; if it is missing, the reason of a pause stays."`
}

// change returns the change that the request describes.
func (r NewGate) change() (c store.PauseChange, err error) {
	if r.Kind != string(store.GatePause) {
		return c, fmt.Errorf("%w: kind %q is not pause", holdfast.ErrInvalid, r.Kind)
	}
	if c.Subject, err = r.Subject(); err != nil {
		return c, err
	}
	c.NoReason = r.Reason.Removes("")
	if r.For.Given {
		c.For = new(time.Duration)
		if r.For.Value != nil {
			*c.For, err = duration("for", *r.For.Value)
		}
	}
	return c, err
}

// Paused is the answer to a pause.
type Paused struct {
	store.Gate
	Before   *store.Gate `json:"before,omitempty" doc:"The pause before the change; missing if there was none."`
	Warnings []string    `json:"warnings" doc:"Why the pause may not do what the caller expects."`
}

// CloseGate pauses tasks, or changes their pause; see store.Gates. check is [store.PauseChange.Check].
func CloseGate(ctx context.Context, b *app.Backend, by store.Actor, r NewGate, check func(*store.Gate) error) (Paused, error) {
	c, err := r.change()
	if err != nil {
		return Paused{}, err
	}
	by.Reason, c.Check = r.Reason.Or(""), check
	p, err := b.Pause(ctx, by, c)
	return Paused{p.After, p.Before, p.Warnings}, err
}

// OpenGate ends a pause, and resets the breaker of a target; see store.Gates.
func OpenGate(ctx context.Context, b *app.Backend, by store.Actor, r GateSubject) (store.Gate, error) {
	s, err := r.Subject()
	if err != nil {
		return store.Gate{}, err
	}
	return b.Resume(ctx, by, s)
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

// sentence returns what blocks a task, such as "queue mail is paused" or "limit type http per key".
func (g *TaskGate) sentence() string {
	switch g.Kind {
	case store.GateLimit:
		return g.Scope.String()
	case store.GateBreaker:
		return "the breaker of " + g.Subject.String()
	}
	return g.Subject.String() + " is paused"
}

// gatesOf reads the gates of tasks. The function that it returns returns the gate of a task, or nil.
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
