package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// heldLimit is how long an insert continues after the store has reported the first held key. After that, tasks with a
// unique key that are not stored fail.
const heldLimit = time.Second

// errKeysHeld is the error of tasks with unique keys that the store could not insert within heldLimit.
var errKeysHeld = fmt.Errorf("%w: the store waits for unique keys that other open transactions hold; try again when they have ended",
	holdfast.ErrUnavailable)

// partialInsert stores tasks of which the store may refuse some: tasks with held keys, and invalid tasks. It stores all
// others.
type partialInsert struct {
	producer *Producer
	tasks    []holdfast.NewTask
	// callerLeft, if set, reports whether the caller of a task has left. Such a task is neither stored nor refused.
	callerLeft func(i int) bool
	stored     func(indexes []int, inserted store.Inserted)
	refused    func(i int, err error)

	held  map[string]bool // keys
	until time.Time       // the end of heldLimit; zero until the store reports a held key
}

// insert stores the tasks with these indexes, in one transaction if the store refuses none. After an error it returns
// the indexes of the tasks that are neither certainly stored nor refused. It overwrites indexes.
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
			return nil, nil
		case errors.As(err, &held):
			s.noteHeld(held)
		case !errors.Is(err, holdfast.ErrInvalid):
			return indexes, err
		case len(indexes) == 1:
			s.refused(indexes[0], err)
			return nil, nil
		default: // the store does not wait for a key, so inserting halves takes little time
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
		s.until = time.Now().Add(heldLimit)
	}
	if s.held == nil {
		s.held = make(map[string]bool)
	}
	for _, key := range held.Keys {
		s.held[key] = true
	}
}

// refuseHeld refuses the tasks that the store would refuse again, and returns the indexes of the others. It drops the
// tasks of callers that have left.
func (s *partialInsert) refuseHeld(indexes []int) []int {
	over := !s.until.IsZero() && time.Now().After(s.until)
	left := indexes[:0]
	for _, i := range indexes {
		key := s.tasks[i].Unique
		switch {
		case s.callerLeft != nil && s.callerLeft(i):
		case s.held[key]:
			s.refused(i, &store.KeyHeldError{Keys: []string{key}})
		case over && key != "":
			s.refused(i, errKeysHeld)
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
