package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// heldLimit is how long an insert continues after the store has reported the first held key. Then the unstored tasks
// with unique keys and the unstored ordered tasks fail. A test on a slow machine changes the field of its Producer.
const heldLimit = time.Second

// errKeysHeld is the error of tasks that the store could not insert within heldLimit.
var errKeysHeld = fmt.Errorf("%w: the store waits for keys that other open transactions hold; try again when they have ended",
	holdfast.ErrUnavailable)

// partialInsert stores as many tasks as possible. The store may refuse some: tasks with held keys, and invalid tasks.
type partialInsert struct {
	producer *Producer
	tasks    []holdfast.NewTask
	// callerLeft, if set, reports whether the caller of a task has left. Such a task is neither stored nor refused.
	callerLeft func(i int) bool
	stored     func(indexes []int, inserted store.Inserted)
	refused    func(i int, err error)

	held  map[heldKey]bool
	until time.Time // the end of heldLimit; zero until the store reports a held key
}

// heldKey is a unique key or the key of ordered tasks, held by another open transaction.
type heldKey struct {
	ordered bool
	key     string
}

// heldKeyOf returns the held key of the task, if it has one.
func (s *partialInsert) heldKeyOf(t *holdfast.NewTask) (heldKey, bool) {
	for _, key := range []heldKey{{false, t.Unique}, {true, t.Key}} {
		if s.held[key] && (!key.ordered || t.Ordered) {
			return key, true
		}
	}
	return heldKey{}, false
}

// insert stores the tasks with the given indexes, in one transaction if the store refuses none. After an error it
// returns the indexes of the tasks that are neither certainly stored nor refused. It overwrites indexes.
func (s *partialInsert) insert(ctx context.Context, indexes []int) (undecided []int, err error) {
	for {
		if indexes = s.refuseHeld(indexes); len(indexes) == 0 {
			return nil, nil
		}
		inserted, err := s.producer.o.Store.Insert(ctx, s.pick(indexes), s.producer.o.OutboxGrace)
		held := new(store.KeyHeldError)
		switch {
		case err == nil:
			s.stored(indexes, inserted)
			if slices.ContainsFunc(indexes, func(i int) bool { return s.tasks[i].Topic != "" }) {
				s.producer.o.OnTopic()
			}
			return nil, nil
		case errors.As(err, &held):
			s.noteHeld(held)
		case !errors.Is(err, holdfast.ErrInvalid):
			return indexes, err
		case len(indexes) == 1:
			s.refused(indexes[0], err)
			return nil, nil
		default: // inserting halves takes little time, because the store does not wait for a key
			half := len(indexes) / 2
			if undecided, err := s.insert(ctx, indexes[:half:half]); err != nil {
				return append(undecided, indexes[half:]...), err
			}
			indexes = indexes[half:]
		}
	}
}

// noteHeld records held keys.
func (s *partialInsert) noteHeld(held *store.KeyHeldError) {
	if s.until.IsZero() {
		s.until = time.Now().Add(s.producer.heldLimit)
	}
	if s.held == nil {
		s.held = make(map[heldKey]bool)
	}
	for _, key := range held.Keys {
		s.held[heldKey{held.Ordered, key}] = true
	}
}

// refuseHeld refuses the tasks that the store would refuse again, and returns the indexes of the others. It drops tasks
// whose callers have left.
func (s *partialInsert) refuseHeld(indexes []int) []int {
	over := !s.until.IsZero() && time.Now().After(s.until)
	left := indexes[:0]
	for _, i := range indexes {
		key, held := s.heldKeyOf(&s.tasks[i])
		switch {
		case s.callerLeft != nil && s.callerLeft(i):
		case held:
			s.refused(i, &store.KeyHeldError{Ordered: key.ordered, Keys: []string{key.key}})
		case over && (s.tasks[i].Unique != "" || s.tasks[i].Ordered):
			s.refused(i, errKeysHeld)
			if s.tasks[i].Ordered { // no later task of the key may overtake this one
				s.held[heldKey{true, s.tasks[i].Key}] = true
			}
		default:
			left = append(left, i)
		}
	}
	return left
}

// pick returns the tasks with these indexes.
func (s *partialInsert) pick(indexes []int) []holdfast.NewTask {
	if len(indexes) == len(s.tasks) {
		return s.tasks
	}
	picked := make([]holdfast.NewTask, len(indexes))
	for n, i := range indexes {
		picked[n] = s.tasks[i]
	}
	return picked
}
