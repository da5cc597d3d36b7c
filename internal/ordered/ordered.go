// Package ordered decides which ordered tasks of a key may start. It does not use a store: an adapter reads the state
// of the key, calls this package, and stores the decision. See store.Order.
//
// A key has at most one active task. The active task holds the key until it has ended. Then the waiting task with the
// lowest id becomes active.
package ordered

import (
	"fmt"
	"slices"

	"github.com/holdfastq/holdfast"
)

// Mark is the state that a store keeps with each ordered task. 0 means that the task is not ordered.
type Mark int

// The marks.
const (
	Ordered Mark = 1 + iota // the task takes part in the order; an active task holds its key even when it is dead
	Doomed                  // the task has left the order: it dies without an attempt
	LetGo                   // the task is dead, and no longer holds its key
	Dooms                   // the task is dead; while it is active, it holds its key and dooms the tasks behind it
)

// markNames are the texts of the marks.
var markNames = []string{"", "ordered", "doomed", "let_go", "dooms"}

// MarshalText implements encoding.TextMarshaler.
func (m Mark) MarshalText() ([]byte, error) {
	if m < 0 || int(m) >= len(markNames) {
		return nil, fmt.Errorf("%w: unknown mark %d of an ordered task", holdfast.ErrInvalid, m)
	}
	return []byte(markNames[m]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mark) UnmarshalText(text []byte) error {
	i := slices.Index(markNames, string(text))
	if i < 0 {
		return fmt.Errorf("%w: unknown mark %.40q of an ordered task", holdfast.ErrInvalid, text)
	}
	*m = Mark(i)
	return nil
}

// MarkOf returns the mark of an ordered task after a transition, or 0 if the transition does not change the mark.
func MarkOf(t *holdfast.Transition) Mark {
	switch t.AfterDeath {
	case holdfast.AfterDeathBlock:
		return Ordered
	case holdfast.AfterDeathSkip:
		return LetGo
	case holdfast.AfterDeathDead:
		return Dooms
	}
	if t.Event == holdfast.EventRequeue && t.OrderedKey != "" {
		return Ordered
	}
	return 0
}

// Active is the active task of a key. The zero value means that there is none, or that it was deleted.
type Active struct {
	State holdfast.State
	Mark  Mark
	Waits bool // a person has retried the task, and it waits for its turn again
}

// Holds reports whether the active task holds its key, and whether it dooms the tasks behind it.
func (a Active) Holds() (holds, dooms bool) {
	switch a.State {
	case holdfast.Ready, holdfast.Running:
		return !a.Waits, false
	case holdfast.Dead:
		return a.Mark != LetGo, a.Mark == Dooms
	}
	return false, false
}

// Place is what happens to a new ordered task. The zero value is for tasks that are not ordered.
type Place int

// The places.
const (
	Leads Place = 1 + iota // the task becomes the active task of its key
	Waits                  // the task waits for its turn
	Dies                   // the task is doomed
)

// Key is the state of a key when ordered tasks are stored.
type Key struct {
	Active  bool // the key has an active task
	Waiting bool // the key may have waiting tasks
	Doomed  bool // the active task is dead and dooms the tasks behind it
}

// Places returns the places of new tasks. keys has the states of the keys of all ordered tasks. Places updates these
// states as if the tasks were stored.
func Places(tasks []holdfast.NewTask, keys map[string]Key) []Place {
	places := make([]Place, len(tasks))
	for i := range tasks {
		if !tasks[i].Ordered {
			continue
		}
		key := keys[tasks[i].Key]
		switch {
		case key.Doomed:
			places[i] = Dies
		case key.Active || key.Waiting:
			places[i], key.Waiting = Waits, true
		default:
			places[i], key.Active = Leads, true
		}
		keys[tasks[i].Key] = key
	}
	return places
}

// Keys returns the keys of the ordered tasks, sorted and without duplicates.
func Keys(tasks []holdfast.NewTask) []string {
	var keys []string
	for i := range tasks {
		if tasks[i].Ordered {
			keys = append(keys, tasks[i].Key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Any reports whether one of the transitions belongs to an ordered task.
func Any(moves []holdfast.Transition) bool {
	for i := range moves { // by index, because a range over values would copy the transitions
		if moves[i].OrderedKey != "" {
			return true
		}
	}
	return false
}

// Moved returns the keys in which the accepted transitions may let another task start, sorted and without duplicates.
// ended reports for each task of these transitions whether it is done or cancelled.
func Moved(moves []holdfast.Transition, accepted []bool) (keys []string, ended map[holdfast.TaskID]bool) {
	for i := range moves {
		m := &moves[i]
		if !accepted[i] || !m.MovesKey() {
			continue
		}
		keys = append(keys, m.OrderedKey)
		if ended == nil {
			ended = make(map[holdfast.TaskID]bool)
		}
		ended[m.Task] = m.To == holdfast.Done || m.To == holdfast.Cancelled
	}
	slices.Sort(keys)
	return slices.Compact(keys), ended
}
