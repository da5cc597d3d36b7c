package holdfast

import (
	"encoding/json"
	"fmt"
)

// Limits of the effects of one attempt.
const (
	MaxNext      = 1000    // tasks of Effects.Next
	MaxNextBytes = 4 << 20 // maximum size of all payloads of Effects.Next
)

// Effects are what a store keeps together with a success, in one transaction. If the store refuses the success, it
// keeps none of them.
type Effects struct {
	Output json.RawMessage // the output of the task, valid JSON; empty means none
	Next   []NewTask       // tasks to store; valid, with their queues
}

// Size returns about how many bytes the effects add to a transaction.
func (e *Effects) Size() int {
	if e == nil {
		return 0
	}
	size := len(e.Output)
	for i := range e.Next {
		size += e.Next[i].size()
	}
	return size
}

// size returns about how many bytes a row of the task has.
func (n *NewTask) size() int { return 200 + len(n.Payload) }

// HasUnique reports whether the store may have to wait for a unique key, or for the tasks of an ordered key, that
// another transaction holds.
func (e *Effects) HasUnique() bool {
	if e == nil {
		return false
	}
	for i := range e.Next {
		if e.Next[i].Unique != "" || e.Next[i].Ordered {
			return true
		}
	}
	return false
}

// AddNext adds a task. It returns an ErrInvalid, and changes nothing, if the effects would exceed MaxNext or
// MaxNextBytes.
func (e *Effects) AddNext(task NewTask) error {
	bytes := len(task.Payload)
	for i := range e.Next {
		bytes += len(e.Next[i].Payload)
	}
	switch {
	case len(e.Next) >= MaxNext:
		return fmt.Errorf("%w: an attempt can store at most %d next tasks; store a task that stores the rest", ErrInvalid, MaxNext)
	case bytes > MaxNextBytes:
		return fmt.Errorf("%w: the payloads of the next tasks of an attempt can have at most %d bytes", ErrInvalid, MaxNextBytes)
	}
	e.Next = append(e.Next, task)
	return nil
}
