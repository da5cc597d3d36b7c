package surface

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

// Paused is the answer to a pause.
type Paused struct {
	store.Gate
	Warnings []string `json:"warnings" doc:"Why the pause may not do what the caller expects."`
}

// PausedOf returns the form of the result of a pause.
func PausedOf(p app.Paused) Paused {
	form := Paused{Gate: p.Gate, Warnings: []string{}}
	for _, w := range p.Gateless {
		form.Warnings = append(form.Warnings, fmt.Sprintf(
			"worker %s (%s, version %s) ignores the pause, because its build has no gates; drain it, or update it", w.ID, w.Name, w.Version))
	}
	if p.UnknownType {
		form.Warnings = append(form.Warnings, fmt.Sprintf(
			"no task of the type %q is stored, and no live worker has a handler for it; the pause is for tasks that come later", p.Gate.Type))
	}
	return form
}

// TaskGate is the closed gate that keeps a task from starting.
type TaskGate struct {
	ID   store.ID       `json:"id"`
	Kind store.GateKind `json:"kind"`
	store.Subject
}

// String returns the gate for people, such as "paused: queue mail".
func (g *TaskGate) String() string { return "paused: " + g.Subject.String() }

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
			return &TaskGate{g.ID, g.Kind, g.Subject}
		}
		return nil
	}, err
}
