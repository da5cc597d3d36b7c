package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// heldLimit is how long an insert continues after the store has named the first held key. Tasks that are not stored by
// then fail.
const heldLimit = time.Second

// errKeysHeld refuses tasks that the store could not take within heldLimit.
var errKeysHeld = fmt.Errorf("%w: the store waits for unique keys that other open transactions hold; try again when they have ended",
	holdfast.ErrUnavailable)

// separation stores tasks of which the store may refuse some: tasks with held keys, and tasks that it cannot hold. It
// stores all others.
type separation struct {
	producer *Producer
	tasks    []holdfast.NewTask
	gone     func(i int) bool // whether the caller of a task has left; such a task is neither stored nor refused
	stored   func(indexes []int, inserted store.Inserted)
	refused  func(i int, err error)

	held  map[string]bool // keys
	until time.Time       // the end of heldLimit; zero until the store names a held key
}

// insert stores the tasks of those indexes, in one transaction if the store refuses none. After an error it returns the
// indexes of the tasks that are neither stored for certain nor refused. It overwrites indexes.
func (s *separation) insert(ctx context.Context, indexes []int) (undecided []int, err error) {
	for {
		if indexes = s.worthwhile(indexes); len(indexes) == 0 {
			return nil, nil
		}
		inserted, err := s.producer.o.Store.Insert(ctx, s.pick(indexes), s.producer.o.OutboxGrace)
		held := new(store.KeyHeldError)
		switch {
		case err == nil:
			s.stored(indexes, inserted)
			return nil, nil
		case errors.As(err, &held):
			s.note(held)
		case !errors.Is(err, holdfast.ErrInvalid):
			return indexes, err
		case len(indexes) == 1:
			s.refused(indexes[0], err)
			return nil, nil
		default: // the store waits for no key, so halves take little time
			half := len(indexes) / 2
			if undecided, err := s.insert(ctx, indexes[:half:half]); err != nil {
				return append(undecided, indexes[half:]...), err
			}
			indexes = indexes[half:]
		}
	}
}

// note remembers held keys.
func (s *separation) note(held *store.KeyHeldError) {
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

// worthwhile refuses the tasks that the store would refuse again, and returns the indexes of the others.
func (s *separation) worthwhile(indexes []int) []int {
	over := !s.until.IsZero() && time.Now().After(s.until)
	left := indexes[:0]
	for _, i := range indexes {
		key := s.tasks[i].Unique
		switch {
		case s.gone != nil && s.gone(i):
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

// pick returns the tasks of those indexes.
func (s *separation) pick(indexes []int) []holdfast.NewTask {
	if len(indexes) == len(s.tasks) {
		return s.tasks
	}
	picked := make([]holdfast.NewTask, len(indexes))
	for n, i := range indexes {
		picked[n] = s.tasks[i]
	}
	return picked
}
